#pragma once

#include <trireme/checkpoint/manifest.hpp>
#include <trireme/io/input_file.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace trireme::checkpoint {

/// Folder of the checkpoint to resume from: the announced() checkpoint, otherwise the checkpoint
/// that `latest` names, otherwise the newest checkpoint on the branch of the named checkpoint or,
/// without a name, of the last attempt. Skips checkpoints that are in `damaged` or that
/// verify_outline() rejects; adds the latter to `damaged`, with a warning. std::nullopt if no
/// checkpoint remains. One rank calls this function and informs the other ranks.
std::optional<std::string> latest(const std::string& directory, std::set<std::string>& damaged);
std::optional<std::string> latest(const std::string& directory);

/// Returns `path` if it has a manifest; otherwise latest(`path`) or, if there is none,
/// latest(`path`/checkpoints). UsageError if there is no checkpoint.
std::string checkpoint_folder(const std::string& path);

/// Checks of a Reader.
enum class Opening {
  /// When the folder is opened, verifies everything except the arrays' data (verify_outline).
  outline,
  /// Verifies manifest and deck, and each shard's size and HDF5 metadata when the shard is first
  /// read. For ranks whose folder another rank has verified.
  manifest
};

/// Reads slices of a checkpoint's arrays, which need not match the slices that were written. Data
/// are read with pread at the manifest's offsets, without HDF5. Each block is verified when it is
/// first read. Not thread-safe.
class Reader {
 public:
  /// Opens the checkpoint in `folder`. Errors name the damaged file and the remedy.
  explicit Reader(const std::string& folder, Opening opening = Opening::outline);

  const std::string& folder() const { return folder_; }
  const RunState& state() const { return state_; }
  const Manifest& manifest() const { return manifest_; }
  const std::vector<ArrayInfo>& arrays() const { return manifest_.arrays; }
  bool has(const std::string& name) const { return numbers_.contains(name); }
  /// The files that the checkpoint keeps (RunState::files), read and verified.
  Files kept_files() const;

  /// Copies a whole array to `out`. UsageError if there is no such array, or if its type or shape
  /// differ from `dtype` and `shape`.
  void read(const std::string& name, DType dtype, const Extents& shape, void* out) const;
  /// Copies the block [offset, offset + extent) of an array to `out`. Errors as for read(); Error
  /// if the block is not within `shape`.
  void read_slice(const std::string& name, DType dtype, const Extents& shape, const Extents& offset,
                  const Extents& extent, void* out) const;

  /// Bytes of array data read from shards so far, and the number of these bytes that were verified.
  std::int64_t bytes_read() const { return bytes_read_; }
  std::int64_t bytes_verified() const { return bytes_verified_; }

 private:
  struct Place {  ///< a slice: index of its shard, and index in the shard
    std::size_t shard = 0;
    std::size_t slice = 0;
    auto operator<=>(const Place&) const = default;
  };
  struct Loaded {  ///< a block of a slice, by number
    Place place;
    std::size_t number = 0;
    bool operator==(const Loaded&) const = default;
  };
  void read_part(Place place, const Slab& part, const Slab& target, char* out) const;
  void copy_bytes(Place place, std::int64_t begin, std::int64_t end, char* out) const;
  bool is_verified(const Loaded& block) const;
  const io::InputFile& file(std::size_t shard) const;
  void fetch(Place place, std::int64_t begin, char* out, std::int64_t bytes) const;
  void fetch_block(const Loaded& block, char* out, std::int64_t bytes) const;

  std::string folder_;
  Manifest manifest_;
  RunState state_;
  std::map<std::string, std::size_t> numbers_;  ///< array indices by name
  std::vector<std::vector<Place>> places_;      ///< slices of each array
  mutable std::vector<bool> structure_verified_;
  mutable std::map<Place, std::vector<bool>> block_verified_;
  mutable std::map<std::size_t, io::InputFile> files_;
  mutable std::vector<char> buffer_;
  mutable std::optional<Loaded> loaded_;
  mutable std::int64_t bytes_read_ = 0;
  mutable std::int64_t bytes_verified_ = 0;
};

/// Differences of an array between two checkpoints a and b.
struct Difference {
  std::string name;
  std::string only = {};  ///< why not compared: "only in the first", both types and shapes, …
  std::int64_t elements = 0;
  std::int64_t different = 0;   ///< number of elements whose bits differ
  double largest_absolute = 0;  ///< |a - b|; infinite if one is NaN or infinite
  double largest_relative = 0;  ///< |a - b| / max(|a|, |b|); infinite if one is NaN or infinite
};

/// Compares all arrays of two checkpoints. The arrays that are only in `b` are last.
std::vector<Difference> compare(const Reader& a, const Reader& b);

}  // namespace trireme::checkpoint
