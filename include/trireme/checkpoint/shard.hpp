#pragma once

#include <trireme/base/checksum.hpp>
#include <trireme/base/types.hpp>
#include <trireme/checkpoint/hyperslab.hpp>
#include <trireme/io/input_file.hpp>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::checkpoint {

/// Size of the blocks in which a dataset's bytes are hashed; the last block may be shorter. The
/// size is part of the format.
inline constexpr std::int64_t block_bytes = 4 << 20;

/// A slice [offset, offset + extent) of a global array, contiguous, last axis fastest. Its bytes
/// are in host memory at `data`, or `copy` fetches them. Not owned.
struct SliceView {
  std::string name;
  DType dtype = DType::fp32;
  Extents shape;  ///< shape of the global array
  Extents offset;
  Extents extent;
  const void* data = nullptr;
  /// Used if `data` is null: copies bytes [begin, begin + bytes) of the slice to `out`.
  std::function<void(std::int64_t begin, std::int64_t bytes, void* out)> copy = {};

  std::int64_t bytes() const { return volume(extent) * size_of(dtype); }
};

/// A slice in a shard: one contiguous dataset, which begins at byte `file_offset` of the shard; no
/// dataset if the slice is empty.
struct SliceSummary {
  std::string name;
  DType dtype = DType::fp32;
  Extents shape;
  Slab slab;
  std::int64_t file_offset = 0;
  std::vector<Digest> blocks;

  std::int64_t bytes() const { return volume(slab.extent) * size_of(dtype); }
};

/// A rank's summary of the shard that it wrote.
struct ShardSummary {
  std::string file;  ///< name within the checkpoint's folder
  std::int64_t bytes = 0;
  Digest structure;  ///< digest of all bytes outside the datasets' storage, in file order
  std::vector<SliceSummary> slices;
};

/// 3 -> "shard_000003.h5"
std::string shard_name(int number);

/// Names of a shard's datasets, given the arrays of its slices: the array's name, and for further
/// slices of the same array "name@1", "name@2" …
std::vector<std::string> dataset_names(const std::vector<std::string>& arrays);

/// Whether data go through the page cache or, where possible, bypass it.
enum class Cache : std::uint8_t { used, bypassed };

/// Writes shard `number` to a folder and flushes it to the device. HDF5 lays out the file; the data
/// are then hashed and written in place, without HDF5 and its lock. `progress`, if given, is called
/// after each block.
ShardSummary write_shard(const std::string& folder, int number, std::span<const SliceView> slices,
                         const std::function<void()>& progress = {}, Cache cache = Cache::used);

/// Serializes a summary for the rank that commits. parse_summary is the inverse; Error for invalid
/// bytes.
std::string pack(const ShardSummary& summary);
ShardSummary parse_summary(std::string_view bytes);

/// Bytes [begin, begin + bytes) of a file.
struct Region {
  std::int64_t begin = 0;
  std::int64_t bytes = 0;
};

/// Returns the regions in ascending order. Error naming `file` unless the regions are within the
/// file, not empty and disjoint.
std::vector<Region> ordered(const std::string& file, std::int64_t file_bytes,
                            std::vector<Region> regions);

/// Digest of all bytes of a file outside the regions `storage`, in file order.
Digest structure_digest(const io::InputFile& file, std::vector<Region> storage);

}  // namespace trireme::checkpoint
