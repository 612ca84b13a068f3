#pragma once

#include <trireme/base/checksum.hpp>
#include <trireme/base/types.hpp>
#include <trireme/checkpoint/hyperslab.hpp>
#include <trireme/checkpoint/shard.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace trireme::checkpoint {

/// Where a run stands. `samples` is its whole position in the data.
struct RunState {
  std::int64_t step = 0;
  std::int64_t samples = 0;  ///< consumed since the run's first step
  std::string deck_toml;     ///< the resolved deck
  std::string layout = {};   ///< of the ranks that wrote it, for people
  /// What else the run needs back, such as the state of loss scaling, by name.
  std::map<std::string, std::string> values = {};
};

/// A global array: its name ("a/b/c": parts are HDF5 groups), type and shape.
struct ArrayInfo {
  std::string name;
  DType dtype = DType::fp32;
  Extents shape;

  std::int64_t elements() const { return volume(shape); }
  std::int64_t bytes() const { return elements() * size_of(dtype); }
};

/// A slice of an array as it lies in a shard: one dataset from byte `file_offset` on.
struct SliceInfo {
  std::size_t array = 0;  ///< number in Manifest::arrays
  Slab slab;
  std::int64_t file_offset = 0;
  std::vector<Digest> blocks;
};

struct ShardInfo {
  std::string name;
  std::int64_t bytes = 0;
  Digest structure;
  std::vector<SliceInfo> slices;  ///< not empty ones, in the order of their dataset names
};

/// A file of a checkpoint folder and the digest of all its bytes.
struct FileInfo {
  std::string name;
  std::int64_t bytes = 0;
  Digest digest;
};

inline constexpr std::int64_t known_format = 2;

/// What manifest.json says; written last, so that a folder without one is not a checkpoint.
/// docs/checkpoint.md is the format's description.
struct Manifest {
  std::string library;  ///< what wrote it
  std::int64_t step = 0;
  std::int64_t samples = 0;
  std::string layout;
  std::map<std::string, std::string> values;
  std::vector<FileInfo> files;  ///< all but the shards and the manifest
  std::vector<ArrayInfo> arrays;
  std::vector<ShardInfo> shards;

  std::int64_t bytes() const;  ///< of all files that it names
  std::int64_t slice_bytes(const SliceInfo& slice) const;
  std::vector<Region> storage(const ShardInfo& shard) const;
  std::vector<std::string> datasets(const ShardInfo& shard) const;  ///< their names
};

/// The arrays and shards of a manifest. Error if the slices of an array differ in type or shape or
/// do not cover each of its elements exactly once.
Manifest assemble(const std::vector<ShardSummary>& summaries);

std::string to_json(const Manifest& manifest);

/// Inverse of to_json; `path` is for messages. Error for a manifest that is damaged (it holds its
/// own checksum), of another format, or contradicts itself.
Manifest parse_manifest(const std::string& content, const std::string& path);

/// Reads and checks a folder's manifest.
Manifest read_manifest(const std::string& folder);

}  // namespace trireme::checkpoint
