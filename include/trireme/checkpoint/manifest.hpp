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

/// Contents of files, by name.
using Files = std::map<std::string, std::string>;

/// A start of a run, from a checkpoint (the parent) or from initial weights.
struct Start {
  std::string run;           ///< Attempt::run
  std::int64_t attempt = 0;  ///< Attempt::number
  std::int64_t step = 0;     ///< step of the parent; 0 without a parent
  std::string parent = {};   ///< checksum of the parent's manifest; "" without a parent
  bool operator==(const Start&) const = default;
};

/// The state of a run without its arrays. A restart derives the position in the training data from
/// `step` and the deck's [batch], and checks that it equals `samples`.
struct RunState {
  std::int64_t step = 0;
  std::int64_t samples = 0;  ///< samples consumed since the run's first step
  std::string deck_toml;     ///< the resolved deck
  std::string layout = {};   ///< layout of the ranks that wrote the state, for messages
  /// Other state that the run needs, such as the state of the loss scaling, by name.
  std::map<std::string, std::string> values = {};
  /// Files kept in the checkpoint's folder, such as the tokenizer's files. Empty in
  /// Reader::state(); Reader::kept_files() reads these files.
  Files files = {};
  /// The starts that led to this state, in order. Empty: not trained.
  std::vector<Start> starts = {};
};

/// The deck and the kept files of a checkpoint of this state. Error for a kept file with a reserved
/// name, or with a "/" in its name.
Files files_of(const RunState& state);

/// A global array: its name ("a/b/c", where a and b are HDF5 groups), type and shape.
struct ArrayInfo {
  std::string name;
  DType dtype = DType::fp32;
  Extents shape;

  std::int64_t elements() const { return volume(shape); }
  std::int64_t bytes() const { return elements() * size_of(dtype); }
};

/// A slice of an array in a shard: one dataset, which begins at byte `file_offset` of the shard.
struct SliceInfo {
  std::size_t array = 0;  ///< index in Manifest::arrays
  Slab slab;
  std::int64_t file_offset = 0;
  std::vector<Digest> blocks;
};

struct ShardInfo {
  std::string name;
  std::int64_t bytes = 0;
  Digest structure;
  /// The slices that are not empty, in the order of dataset_names().
  std::vector<SliceInfo> slices;
};

/// A file of a checkpoint folder, with the digest of all its bytes.
struct FileInfo {
  std::string name;
  std::int64_t bytes = 0;
  Digest digest;
};

inline constexpr std::int64_t known_format = 2;

/// The content of manifest.json. This file is written last. docs/checkpoint.md documents the
/// format.
struct Manifest {
  std::string library;  ///< name and version of the program that wrote the checkpoint
  std::int64_t step = 0;
  std::int64_t samples = 0;
  std::string layout;
  std::map<std::string, std::string> values;
  std::vector<Start> starts;
  std::vector<FileInfo> files;  ///< all files except shards and manifest
  std::vector<ArrayInfo> arrays;
  std::vector<ShardInfo> shards;

  std::int64_t bytes() const;  ///< total size of the listed files and shards
  std::int64_t slice_bytes(const SliceInfo& slice) const;
  std::vector<Region> storage(const ShardInfo& shard) const;
  std::vector<std::string> datasets(const ShardInfo& shard) const;
};

/// Assembles the arrays and shards of a manifest. Error if the slices of an array differ in the
/// array's type or shape, or do not cover each element of the array exactly once.
Manifest assemble(const std::vector<ShardSummary>& summaries);

std::string to_json(const Manifest& manifest);

/// Inverse of to_json; `path` names the manifest in errors. Error for a manifest that is damaged
/// (it ends with a checksum of the preceding bytes), has another format, or contradicts itself.
Manifest parse_manifest(const std::string& content, const std::string& path);

/// Reads and checks the manifest in a folder. UsageError if the folder has no manifest or the
/// manifest cannot be opened; other errors as for parse_manifest.
Manifest read_manifest(const std::string& folder);

}  // namespace trireme::checkpoint
