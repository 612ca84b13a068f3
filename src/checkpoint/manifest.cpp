// A manifest: its files, arrays and shards. Slices of several ranks are assembled to arrays, which
// they must tile.
#include <trireme/checkpoint/manifest.hpp>

#include <trireme/base/check.hpp>
#include <trireme/checkpoint/folders.hpp>
#include <trireme/checkpoint/lineage.hpp>
#include <trireme/io/input_file.hpp>

#include <algorithm>
#include <filesystem>

namespace trireme::checkpoint {
namespace {

constexpr std::int64_t manifest_limit_bytes = std::int64_t{4} << 30;

/// The number of the slice's array in the manifest, to which a new array is added.
std::size_t number_of(const SliceSummary& slice, Manifest& manifest,
                      std::map<std::string, std::size_t>& numbers) {
  const auto [at, added] = numbers.emplace(slice.name, manifest.arrays.size());
  if (added) manifest.arrays.push_back({slice.name, slice.dtype, slice.shape});
  const ArrayInfo& array = manifest.arrays[at->second];
  check(array.dtype == slice.dtype && array.shape == slice.shape, "array '", slice.name, "' is ",
        name_of(array.dtype), " ", shape_text(array.shape), " in one slice and ",
        name_of(slice.dtype), " ", shape_text(slice.shape), " in another");
  return at->second;
}

std::string content_of(const std::string& path) {
  std::error_code error;  // with one, opening the file says why
  check_usage(std::filesystem::exists(path, error) || error, path,
              ": is missing; this folder is not a complete checkpoint");
  return io::read_text_file(path, manifest_limit_bytes);
}

}  // namespace

Files files_of(const RunState& state) {
  Files files = state.files;
  for (const auto& [name, content] : files)
    check(name != deck_name && name != index_name && name != manifest_name &&
              !name.starts_with("shard_") && name.find('/') == std::string::npos,
          "a checkpoint cannot keep a file '", name, "'");
  files[deck_name] = state.deck_toml;
  return files;
}

std::int64_t Manifest::bytes() const {
  std::int64_t sum = 0;
  for (const auto& file : files) sum += file.bytes;
  for (const auto& shard : shards) sum += shard.bytes;
  return sum;
}

std::int64_t Manifest::slice_bytes(const SliceInfo& slice) const {
  return volume(slice.slab.extent) * size_of(arrays[slice.array].dtype);
}

std::vector<Region> Manifest::storage(const ShardInfo& shard) const {
  std::vector<Region> regions;
  for (const auto& slice : shard.slices) regions.push_back({slice.file_offset, slice_bytes(slice)});
  return regions;
}

std::vector<std::string> Manifest::datasets(const ShardInfo& shard) const {
  std::vector<std::string> of_arrays;
  for (const auto& slice : shard.slices) of_arrays.push_back(arrays[slice.array].name);
  return dataset_names(of_arrays);
}

Manifest assemble(const std::vector<ShardSummary>& summaries) {
  Manifest manifest;
  std::map<std::string, std::size_t> numbers;
  std::vector<std::vector<Slab>> slabs;
  for (const auto& summary : summaries) {
    ShardInfo shard{summary.file, summary.bytes, summary.structure, {}};
    for (const auto& slice : summary.slices) {
      const std::size_t array = number_of(slice, manifest, numbers);
      slabs.resize(manifest.arrays.size());
      slabs[array].push_back(slice.slab);
      if (slice.bytes() > 0)
        shard.slices.push_back({array, slice.slab, slice.file_offset, slice.blocks});
    }
    manifest.shards.push_back(std::move(shard));
  }
  for (std::size_t a = 0; a < slabs.size(); ++a)
    expect_tiling(text("array '", manifest.arrays[a].name, "'"), manifest.arrays[a].shape,
                  slabs[a]);
  return manifest;
}

Manifest read_manifest(const std::string& folder) {
  const std::string path = folder + "/" + manifest_name;
  return parse_manifest(content_of(path), path);
}

Lineage read_lineage(const std::string& folder) {
  const std::string path = folder + "/" + manifest_name;
  return parse_lineage(content_of(path), path);
}

}  // namespace trireme::checkpoint
