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

/// Bytes of a dataset are hashed in blocks of this size, the last one shorter, so that a reader
/// verifies no more than it needs. Part of the format.
inline constexpr std::int64_t block_bytes = 4 << 20;

/// A slice [offset, offset + extent) of a global array, contiguous, last axis fastest: in host
/// memory, or wherever `copy` fetches it from. Not owned.
struct SliceView {
  std::string name;
  DType dtype = DType::fp32;
  Extents shape;  ///< of the global array
  Extents offset;
  Extents extent;
  const void* data = nullptr;
  /// Where `data` is null: brings bytes [begin, begin + bytes) of the slice to `out`.
  std::function<void(std::int64_t begin, std::int64_t bytes, void* out)> copy = {};

  std::int64_t bytes() const { return volume(extent) * size_of(dtype); }
};

/// A slice as it lies in a shard: one contiguous dataset from byte `file_offset` on.
struct SliceSummary {
  std::string name;
  DType dtype = DType::fp32;
  Extents shape;
  Slab slab;
  std::int64_t file_offset = 0;
  std::vector<Digest> blocks;

  std::int64_t bytes() const { return volume(slab.extent) * size_of(dtype); }
};

/// What a rank tells about the shard that it wrote.
struct ShardSummary {
  std::string file;  ///< name within the checkpoint's folder
  std::int64_t bytes = 0;
  Digest structure;  ///< of all bytes outside the datasets' storage, in the file's order
  std::vector<SliceSummary> slices;
};

/// 3 -> "shard_000003.h5"
std::string shard_name(int number);

/// Names of the datasets of a shard whose slices are of these arrays: the array's name and, for
/// further slices of the same array, "name@1", "name@2" …
std::vector<std::string> dataset_names(const std::vector<std::string>& arrays);

/// How the numbers go to the device: through the node's memory for files, or past it where slices
/// and file system allow, which takes less of the processor and of memory.
enum class Cache : std::uint8_t { used, bypassed };

/// Writes shard_000003.h5 to a folder, flushed to the device. HDF5 lays the file out; the numbers
/// then go straight to their places, hashed on the way, outside HDF5 and its lock. Slices without
/// elements take no dataset. Bits are stored as they are. `progress`, if given, is called behind
/// each block. Errors (a full disk) name the file.
ShardSummary write_shard(const std::string& folder, int number, std::span<const SliceView> slices,
                         const std::function<void()>& progress = {}, Cache cache = Cache::used);

/// For sending a summary to the rank that commits; parse_summary is the inverse, Error for bytes
/// that are none.
std::string pack(const ShardSummary& summary);
ShardSummary parse_summary(std::string_view bytes);

/// Bytes [begin, begin + bytes) of a file.
struct Region {
  std::int64_t begin = 0;
  std::int64_t bytes = 0;
};

/// The regions in order. Error naming `file` unless they lie in it, are not empty and do not
/// overlap.
std::vector<Region> ordered(const std::string& file, std::int64_t file_bytes,
                            std::vector<Region> regions);

/// Digest of all bytes of a file outside the given regions, in the file's order: what HDF5 keeps of
/// its own around the datasets' storage.
Digest structure_digest(const io::InputFile& file, std::vector<Region> storage);

}  // namespace trireme::checkpoint
