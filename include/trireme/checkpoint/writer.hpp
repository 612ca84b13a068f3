#pragma once

#include <trireme/checkpoint/manifest.hpp>
#include <trireme/checkpoint/shard.hpp>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace trireme::checkpoint {

/// A checkpoint is written in three steps: one rank calls begin(), every rank that has slices
/// write_shard() with the folder that begin() returned and a number of its own, and the first rank
/// commit() with all summaries. One job writes to a directory at a time. Until commit() has
/// returned, all former checkpoints are as they were; what it leaves out is removed by the next
/// begin().

/// Which checkpoints stay when another one is complete. That one always does.
struct Retention {
  std::int64_t keep = 0;        ///< the newest so many by step; 0: all
  std::int64_t keep_every = 0;  ///< beside them those whose step is a multiple; 0: none
};

/// The folder in which the shards of a step are written.
std::string partial_folder(const std::string& directory, std::int64_t step);

/// Makes that folder, empty, and removes what a killed run has left. Returns its path.
std::string begin(const std::string& directory, std::int64_t step);

/// Makes a checkpoint `directory`/step_00000100 of the shards: checks that they are there and that
/// their slices cover every array exactly once, writes index, deck and manifest, everything flushed
/// to the device, renames the folder, names it in the file `latest` and removes old checkpoints.
/// An error removes the shards and leaves all former checkpoints as they were. `progress`, if
/// given, is called behind each shard and each removal.
void commit(const std::string& directory, const RunState& state,
            const std::vector<ShardSummary>& summaries, const Retention& retention,
            const std::function<void()>& progress = {});

/// Removes the shards of a checkpoint that will not be.
void abandon(const std::string& directory, std::int64_t step);

/// A whole global array in host memory, contiguous, last axis fastest. Not owned.
struct ArrayView {
  std::string name;
  DType dtype = DType::fp32;
  Extents shape;
  const void* data = nullptr;
};

/// The three steps in one process, which has all arrays. `progress`, if given, is called behind
/// each block.
void write(const std::string& directory, const RunState& state, std::span<const ArrayView> arrays,
           std::int64_t keep, const std::function<void()>& progress = {});

/// Writes index.h5 of a folder, flushed to the device: an HDF5 file that shows every array whole,
/// as a virtual dataset over the shards, by their names relative to the folder; step, samples,
/// layout and library are attributes. Returns what the manifest says of the file.
FileInfo write_index(const std::string& folder, const Manifest& manifest);

}  // namespace trireme::checkpoint
