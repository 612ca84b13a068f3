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

/// A start of a run, from a checkpoint or from initial weights.
struct Start {
  std::string run;           ///< see Attempt
  std::int64_t attempt = 0;  ///< number of the attempt
  std::int64_t step = 0;     ///< step of the checkpoint from which it continued; 0: initial weights
  std::string parent = {};   ///< digest of that checkpoint's manifest; "": initial weights
  bool operator==(const Start&) const = default;
};

/// The state of a run. `samples` is its complete position in the data.
struct RunState {
  std::int64_t step = 0;
  std::int64_t samples = 0;  ///< samples consumed since the run's first step
  std::string deck_toml;     ///< the resolved deck
  std::string layout = {};   ///< layout of the ranks that wrote it, for information
  /// Other state that the run needs, such as the loss scaling's, by name.
  std::map<std::string, std::string> values = {};
  /// Files kept in the checkpoint's folder, such as the tokenizer's. Empty in Reader::state(): see
  /// Reader::kept_files().
  Files files = {};
  /// The starts that led to this state; last: the start of the writing job. Empty: not trained.
  std::vector<Start> starts = {};
};

/// All files of a checkpoint of this state except index, manifest and shards: its deck and the kept
/// files. Error for a file with the name of another member of a checkpoint.
Files files_of(const RunState& state);

/// A global array: its name ("a/b/c", where a and b are HDF5 groups), type and shape.
struct ArrayInfo {
  std::string name;
  DType dtype = DType::fp32;
  Extents shape;

  std::int64_t elements() const { return volume(shape); }
  std::int64_t bytes() const { return elements() * size_of(dtype); }
};

/// A slice of an array in a shard: one dataset that begins at byte `file_offset`.
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
  std::vector<SliceInfo> slices;  ///< without empty slices, in the order of their dataset names
};

/// A file of a checkpoint folder, with the digest of all its bytes.
struct FileInfo {
  std::string name;
  std::int64_t bytes = 0;
  Digest digest;
};

inline constexpr std::int64_t known_format = 2;

/// The content of manifest.json, which is written last, so that a folder without it is not a
/// checkpoint. docs/checkpoint.md documents the format.
struct Manifest {
  std::string library;  ///< the program that wrote it
  std::int64_t step = 0;
  std::int64_t samples = 0;
  std::string layout;
  std::map<std::string, std::string> values;
  std::vector<Start> starts;
  std::vector<FileInfo> files;  ///< all files except shards and manifest
  std::vector<ArrayInfo> arrays;
  std::vector<ShardInfo> shards;

  std::int64_t bytes() const;  ///< sum over all listed files
  std::int64_t slice_bytes(const SliceInfo& slice) const;
  std::vector<Region> storage(const ShardInfo& shard) const;
  std::vector<std::string> datasets(const ShardInfo& shard) const;  ///< dataset names
};

/// Assembles the arrays and shards of a manifest. Error if the slices of an array differ in type or
/// shape or do not cover each of its elements exactly once.
Manifest assemble(const std::vector<ShardSummary>& summaries);

std::string to_json(const Manifest& manifest);

/// Inverse of to_json; `path` is for errors. Error for a manifest that is damaged (it contains a
/// checksum of itself), has another format, or contradicts itself.
Manifest parse_manifest(const std::string& content, const std::string& path);

/// Reads and checks a folder's manifest.
Manifest read_manifest(const std::string& folder);

}  // namespace trireme::checkpoint
