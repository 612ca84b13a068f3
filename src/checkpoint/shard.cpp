// Writes one shard: HDF5 creates the file and its datasets, then the data of each slice are hashed
// and written to their offsets block by block.
#include <trireme/checkpoint/shard.hpp>

#include <trireme/base/check.hpp>
#include <trireme/io/atomic_file.hpp>
#include <trireme/io/hdf5_file.hpp>
#include <trireme/io/input_file.hpp>

#include <algorithm>
#include <map>
#include <set>

namespace trireme::checkpoint {
namespace {

constexpr std::int64_t structure_bytes = 64 << 10;  // upper estimate of HDF5's own part of a shard
constexpr std::int64_t structure_bytes_per_dataset = 1024;
constexpr std::int64_t written_bytes = 512 << 10;  // per call: still in the cache after hashing

void expect_names(std::span<const SliceView> slices) {
  for (const auto& slice : slices) {
    const std::string bounded = "/" + slice.name + "/";
    check(bounded.find("//") == std::string::npos && bounded.find("/./") == std::string::npos,
          "array name '", slice.name, "': expected words separated by /");
    expect_within(text("array '", slice.name, "'"), {slice.offset, slice.extent}, slice.shape);
  }
}

/// Creates the file and its datasets with HDF5, and fills in their offsets.
void lay_out(io::AtomicFile& file, std::vector<SliceSummary>& slices) {
  std::vector<std::string> arrays;
  for (const auto& slice : slices) arrays.push_back(slice.name);
  const auto datasets = dataset_names(arrays);
  const auto count = static_cast<std::int64_t>(slices.size());
  auto hdf5 = io::Hdf5File::create(file.temporary_path(), 0,
                                   structure_bytes + count * structure_bytes_per_dataset,
                                   io::direct_alignment);
  for (std::size_t i = 0; i < slices.size(); ++i) {
    SliceSummary& slice = slices[i];
    const auto dataset = hdf5.create_dataset(datasets[i], slice.dtype, slice.slab.extent);
    slice.file_offset = dataset.file_offset();
    check(slice.file_offset >= 0, file.path(), ": HDF5 did not allocate dataset '", datasets[i],
          "'");
  }
  hdf5.close_into(file);
}

/// Bytes [begin, begin + bytes) of a slice, in `buffer` if they are not in host memory.
const char* fetch(const SliceView& slice, std::int64_t begin, std::int64_t bytes,
                  std::vector<char>& buffer) {
  if (slice.data != nullptr) return static_cast<const char*>(slice.data) + begin;
  buffer.resize(static_cast<std::size_t>(written_bytes));
  slice.copy(begin, bytes, buffer.data());
  return buffer.data();
}

/// Writes the bytes of one dataset and returns the digests of its blocks.
class BlockWriter {
 public:
  BlockWriter(io::AtomicFile& file, Cache cache) : file_(file), cache_(cache) {}

  std::vector<Digest> write(std::int64_t file_offset, const SliceView& slice,
                            const std::function<void()>& progress) {
    std::vector<Digest> blocks;
    for (std::int64_t begin = 0; begin < slice.bytes(); begin += block_bytes) {
      blocks.push_back(
          write_block(file_offset, slice, begin, std::min(slice.bytes(), begin + block_bytes)));
      if (progress) progress();
    }
    return blocks;
  }

 private:
  Digest write_block(std::int64_t file_offset, const SliceView& slice, std::int64_t begin,
                     std::int64_t end) {
    sum_.reset();
    std::int64_t written = begin;
    if (cache_ == Cache::bypassed && slice.data != nullptr) {
      const auto* data = static_cast<const char*>(slice.data) + begin;
      const std::int64_t pages = (end - begin) / io::direct_alignment * io::direct_alignment;
      if (pages > 0 &&
          file_.write_direct(file_offset + begin, data, static_cast<std::size_t>(pages))) {
        sum_.update(data, static_cast<std::size_t>(pages));
        written += pages;
      }
    }
    for (std::int64_t from = written; from < end; from += written_bytes) {
      const std::int64_t count = std::min(written_bytes, end - from);
      const char* data = fetch(slice, from, count, buffer_);
      sum_.update(data, static_cast<std::size_t>(count));
      file_.write(file_offset + from, data, static_cast<std::size_t>(count));
    }
    return sum_.digest();
  }

  io::AtomicFile& file_;
  Cache cache_;
  Checksum sum_;
  std::vector<char> buffer_;
};

}  // namespace

std::string shard_name(int number) {
  const std::string digits = text(number);
  return text("shard_", std::string(6 - std::min<std::size_t>(6, digits.size()), '0'), digits,
              ".h5");
}

std::vector<std::string> dataset_names(const std::vector<std::string>& arrays) {
  std::map<std::string_view, int> times;
  std::vector<std::string> names;
  for (const auto& array : arrays) {
    const int before = times[array]++;
    names.push_back(before == 0 ? array : text(array, "@", before));
  }
  return names;
}

ShardSummary write_shard(const std::string& folder, int number, std::span<const SliceView> slices,
                         const std::function<void()>& progress, Cache cache) {
  expect_names(slices);
  ShardSummary shard{shard_name(number), 0, {}, {}};
  std::vector<SliceSummary> empty;
  std::vector<const SliceView*> sources;
  std::int64_t bytes = structure_bytes;
  for (const auto& slice : slices) {
    SliceSummary summary{slice.name, slice.dtype, slice.shape, {slice.offset, slice.extent}, 0, {}};
    bytes += summary.bytes() + structure_bytes_per_dataset + io::direct_alignment;
    if (summary.bytes() == 0) {
      empty.push_back(std::move(summary));
      continue;
    }
    shard.slices.push_back(std::move(summary));
    sources.push_back(&slice);
  }
  io::AtomicFile file(folder + "/" + shard.file);
  file.probe_space(bytes);  // a full disk is found before any byte is written
  lay_out(file, shard.slices);
  std::vector<Region> regions;
  BlockWriter writer(file, cache);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    SliceSummary& slice = shard.slices[i];
    regions.push_back({slice.file_offset, slice.bytes()});
    slice.blocks = writer.write(slice.file_offset, *sources[i], progress);
  }
  const io::InputFile written(file.temporary_path());
  shard.bytes = written.size();
  shard.structure = structure_digest(written, regions);
  file.commit();
  std::ranges::move(empty, std::back_inserter(shard.slices));
  return shard;
}

}  // namespace trireme::checkpoint
