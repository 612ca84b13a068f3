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

/// The checkpoint to go on from: one that was completed after `latest` was written (by a run that
/// was killed then), the one that `latest` names or, where that is not intact, the newest that is.
/// Those passed over are named in a warning with the reason. Manifest, sizes, index and the shards'
/// structures are verified, which is quick; a reader may still find a damaged block of numbers:
/// then ask again with that folder among `damaged`, to which those passed over are added. One rank
/// asks and tells the others. Nothing if there is no directory or no checkpoint in it.
std::optional<std::string> latest(const std::string& directory, std::set<std::string>& damaged);
std::optional<std::string> latest(const std::string& directory);

/// `path` if it is a checkpoint, or the latest intact one of a folder of them. UsageError if it is
/// neither.
std::string checkpoint_folder(const std::string& path);

/// What a Reader verifies when it opens a folder.
enum class Opening {
  outline,  ///< all but the numbers: manifest, sizes, index, structure of every shard
  manifest  ///< manifest and deck; a shard's size and structure when it is first read: for ranks
            ///< whose folder another one has found to be intact
};

/// Reads slices of a checkpoint's arrays, whatever the slices were that wrote it. The numbers are
/// read with pread where the manifest says they lie; HDF5 is not needed and sees nothing. Of the
/// numbers, exactly the blocks that are touched are verified, each once. Not thread-safe.
class Reader {
 public:
  /// Errors name the broken file and the remedy.
  explicit Reader(const std::string& folder, Opening opening = Opening::outline);

  const std::string& folder() const { return folder_; }
  const RunState& state() const { return state_; }
  const Manifest& manifest() const { return manifest_; }
  const std::vector<ArrayInfo>& arrays() const { return manifest_.arrays; }
  bool has(const std::string& name) const { return numbers_.contains(name); }

  /// Copies a whole array to `out`. UsageError with both if type or shape are not the stored ones.
  void read(const std::string& name, DType dtype, const Extents& shape, void* out) const;
  /// Copies the block [offset, offset + extent) of an array of this type and shape.
  void read_slice(const std::string& name, DType dtype, const Extents& shape, const Extents& offset,
                  const Extents& extent, void* out) const;

  /// Bytes read from shards so far, and bytes of them whose checksum was computed.
  std::int64_t bytes_read() const { return bytes_read_; }
  std::int64_t bytes_verified() const { return bytes_verified_; }

 private:
  struct Place {  ///< a slice of an array: shard, and slice of it
    std::size_t shard = 0;
    std::size_t slice = 0;
    auto operator<=>(const Place&) const = default;
  };
  struct Loaded {  ///< the block that lies in the buffer
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
  std::map<std::string, std::size_t> numbers_;  ///< of arrays
  std::vector<std::vector<Place>> places_;      ///< per array
  mutable std::vector<bool> structure_verified_;
  mutable std::map<Place, std::vector<bool>> block_verified_;
  mutable std::map<std::size_t, io::InputFile> files_;
  mutable std::vector<char> buffer_;
  mutable std::optional<Loaded> loaded_;
  mutable std::int64_t bytes_read_ = 0;
  mutable std::int64_t bytes_verified_ = 0;
};

/// How an array differs between two checkpoints a and b.
struct Difference {
  std::string name;
  std::string only = {};  ///< what keeps it from being compared: "only in a", both shapes
  std::int64_t elements = 0;
  std::int64_t different = 0;   ///< elements whose bits differ
  double largest_absolute = 0;  ///< of |a - b|; infinite where one is NaN or infinite
  double largest_relative = 0;  ///< of |a - b| / max(|a|, |b|)
};

/// Compares all arrays of two checkpoints, in order of a and then what b alone has. Numbers go
/// through double, block by block: memory is bounded by a few MiB.
std::vector<Difference> compare(const Reader& a, const Reader& b);

}  // namespace trireme::checkpoint
