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

/// The checkpoint to resume from: one that a killed run completed without naming it in `latest`,
/// otherwise the one that `latest` names, otherwise the newest intact checkpoint on its branch.
/// Without a usable `latest`, the branch is the last attempt's. File times do not matter. A warning
/// names each rejected checkpoint, with the reason. Manifest, sizes, index and the shards'
/// structures are verified, which is quick. A reader may still find a damaged block; then call
/// again with that folder in `damaged`, to which rejected folders are added. One rank calls this
/// and informs the other ranks. std::nullopt if there is no directory or no checkpoint in it.
std::optional<std::string> latest(const std::string& directory, std::set<std::string>& damaged);
std::optional<std::string> latest(const std::string& directory);

/// Returns `path` if it is a checkpoint, or the latest intact checkpoint in it. UsageError if there
/// is neither.
std::string checkpoint_folder(const std::string& path);

/// Checks of a Reader when it opens a folder.
enum class Opening {
  outline,  ///< all but the arrays' data: manifest, sizes, index, every shard's structure
  manifest  ///< manifest and deck; a shard's size and structure at its first
            ///< read. For ranks whose folder another rank has verified
};

/// Reads slices of a checkpoint's arrays; they need not match the slices that were written. Data
/// are read with pread at the manifest's offsets, without HDF5. Only blocks that are read are
/// verified, each once. Not thread-safe.
class Reader {
 public:
  /// Errors name the damaged file and the remedy.
  explicit Reader(const std::string& folder, Opening opening = Opening::outline);

  const std::string& folder() const { return folder_; }
  const RunState& state() const { return state_; }
  const Manifest& manifest() const { return manifest_; }
  const std::vector<ArrayInfo>& arrays() const { return manifest_.arrays; }
  bool has(const std::string& name) const { return numbers_.contains(name); }
  /// The files that the checkpoint keeps (RunState::files), read and verified.
  Files kept_files() const;

  /// Copies a whole array to `out`. UsageError with both types and shapes if they differ from the
  /// stored type and shape.
  void read(const std::string& name, DType dtype, const Extents& shape, void* out) const;
  /// Copies the block [offset, offset + extent) of an array of this type and shape.
  void read_slice(const std::string& name, DType dtype, const Extents& shape, const Extents& offset,
                  const Extents& extent, void* out) const;

  /// Bytes read from shards so far, and bytes whose checksum was verified.
  std::int64_t bytes_read() const { return bytes_read_; }
  std::int64_t bytes_verified() const { return bytes_verified_; }

 private:
  struct Place {  ///< a slice: shard, and index in the shard
    std::size_t shard = 0;
    std::size_t slice = 0;
    auto operator<=>(const Place&) const = default;
  };
  struct Loaded {  ///< the block in the buffer
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
  std::string only = {};  ///< reason why it cannot be compared: "only in the first", or both shapes
  std::int64_t elements = 0;
  std::int64_t different = 0;   ///< number of elements whose bits differ
  double largest_absolute = 0;  ///< |a - b|; infinite if one is NaN or infinite
  double largest_relative = 0;  ///< |a - b| / max(|a|, |b|)
};

/// Compares all arrays of two checkpoints, in the order of a, followed by arrays that are only in
/// b. Values are converted to double block by block, with a few MiB of memory.
std::vector<Difference> compare(const Reader& a, const Reader& b);

}  // namespace trireme::checkpoint
