#include <trireme/checkpoint/folders.hpp>
#include <trireme/checkpoint/writer.hpp>
#include <trireme/io/atomic_file.hpp>
#include <trireme/io/hdf5_file.hpp>
#include <trireme/io/input_file.hpp>

#include <algorithm>

namespace trireme::checkpoint {
namespace {

constexpr std::int64_t index_bytes = 1 << 20;
constexpr std::int64_t index_bytes_per_array = 4096;
constexpr std::int64_t index_bytes_per_part = 256;  // besides names and extents
constexpr std::size_t attribute_limit_bytes = 4096;

using Parts = std::vector<std::vector<io::VirtualPart>>;  // per array

Parts parts_of_arrays(const Manifest& manifest) {
  Parts parts(manifest.arrays.size());
  for (const auto& shard : manifest.shards) {
    const auto datasets = manifest.datasets(shard);
    for (std::size_t i = 0; i < shard.slices.size(); ++i) {
      const Slab& slab = shard.slices[i].slab;
      parts[shard.slices[i].array].push_back({shard.name, datasets[i], slab.offset, slab.extent});
    }
  }
  return parts;
}

std::int64_t estimated_bytes(const Parts& parts) {
  std::int64_t bytes = index_bytes;
  for (const auto& of_array : parts) {
    bytes += index_bytes_per_array;
    for (const auto& part : of_array)
      bytes += index_bytes_per_part + std::ssize(part.file) + std::ssize(part.dataset) +
               64 * std::ssize(part.extent);
  }
  return bytes;
}

}  // namespace

FileInfo write_index(const std::string& folder, const Manifest& manifest) {
  const Parts parts = parts_of_arrays(manifest);
  io::AtomicFile file(folder + "/" + index_name);
  file.probe_space(estimated_bytes(parts));
  auto hdf5 = io::Hdf5File::create(file.temporary_path());
  hdf5.set_attribute("format", known_format);
  hdf5.set_attribute("library", manifest.library);
  hdf5.set_attribute("step", manifest.step);
  hdf5.set_attribute("samples", manifest.samples);
  hdf5.set_attribute("layout",
                     std::string_view(manifest.layout)
                         .substr(0, std::min(manifest.layout.size(), attribute_limit_bytes)));
  for (std::size_t a = 0; a < parts.size(); ++a) {
    const ArrayInfo& array = manifest.arrays[a];
    if (parts[a].empty())  // an array without elements has nothing to map
      hdf5.create_dataset(array.name, array.dtype, array.shape);
    else
      hdf5.create_virtual_dataset(array.name, array.dtype, array.shape, parts[a]);
  }
  hdf5.close_into(file);
  FileInfo info{index_name, io::InputFile(file.temporary_path()).size(),
                io::file_checksum(file.temporary_path())};
  file.commit();
  return info;
}

}  // namespace trireme::checkpoint
