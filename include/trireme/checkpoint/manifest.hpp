#pragma once

#include <trireme/base/types.hpp>
#include <trireme/io/checksum.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::checkpoint {

/// Where a run stands. `samples` is its whole position in the data.
struct RunState {
  std::int64_t step = 0;
  std::int64_t samples = 0;  ///< consumed since the run's first step
  std::string deck_toml;     ///< the resolved deck
};

/// A global array: its name ("a/b/c": parts are HDF5 groups), type and shape.
struct ArrayInfo {
  std::string name;
  DType dtype = DType::fp32;
  std::vector<std::int64_t> shape;
  std::string shard;  ///< file of the folder that holds it

  std::int64_t elements() const;
  std::int64_t bytes() const { return elements() * size_of(dtype); }
};

/// A file of a checkpoint folder and the digest of all its bytes.
struct FileInfo {
  std::string name;
  std::int64_t bytes = 0;
  io::Digest digest;
};

/// What manifest.json says; written last, so that a folder without one is not a checkpoint.
/// docs/checkpoint.md is the format's description.
struct Manifest {
  std::int64_t format = 1;
  std::string library;  ///< what wrote it
  std::int64_t step = 0;
  std::int64_t samples = 0;
  std::vector<FileInfo> files;
  std::vector<ArrayInfo> arrays;
};

std::string to_json(const Manifest& manifest);

/// Reads and checks a folder's manifest. Error naming the file if it is missing or damaged (it
/// holds its own checksum).
Manifest read_manifest(const std::string& folder);

/// Checks that the files of a checkpoint are there and have the right size: quick.
void verify_sizes(const std::string& folder, const Manifest& manifest);

/// Reads every byte against the checksums. Errors name the file.
void verify(const std::string& folder, const Manifest& manifest);

/// "[2, 3]"
std::string shape_text(const std::vector<std::int64_t>& shape);

}  // namespace trireme::checkpoint
