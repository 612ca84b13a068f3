#pragma once

#include <trireme/checkpoint/manifest.hpp>
#include <trireme/io/hdf5_file.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace trireme::checkpoint {

/// The checkpoint to go on from: the one that `latest` names or, where that is broken, the newest
/// that is whole. Broken ones are passed over with a warning. Every byte is read against its
/// checksum: one rank asks and tells the others. Nothing if there is no directory or no checkpoint
/// in it.
std::optional<std::string> latest(const std::string& directory);

/// Reads a checkpoint. Not thread-safe.
class Reader {
 public:
  /// Verifies manifest, sizes and checksums before HDF5 sees a byte. Errors name the broken file.
  explicit Reader(const std::string& folder);

  const std::string& folder() const { return folder_; }
  const RunState& state() const { return state_; }
  std::vector<ArrayInfo> arrays() const { return manifest_.arrays; }
  bool has(const std::string& name) const { return find(name) != nullptr; }

  /// Copies a whole array to `out`. Error with both if type or shape are not the stored ones.
  void read(const std::string& name, DType dtype, const std::vector<std::int64_t>& shape,
            void* out) const;
  /// Copies the block [offset, offset + extent) of an array of this type and shape.
  void read_slice(const std::string& name, DType dtype, const std::vector<std::int64_t>& shape,
                  const std::vector<std::int64_t>& offset, const std::vector<std::int64_t>& extent,
                  void* out) const;

 private:
  const ArrayInfo* find(const std::string& name) const;
  std::string folder_;
  Manifest manifest_;
  RunState state_;
  std::map<std::string, io::Hdf5File> shards_;
};

}  // namespace trireme::checkpoint
