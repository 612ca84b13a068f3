#pragma once

#include <trireme/checkpoint/manifest.hpp>
#include <trireme/checkpoint/shard.hpp>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace trireme::checkpoint {

/// A checkpoint is written in three steps. One rank calls begin(). Every rank with slices calls
/// write_shard() with the folder that begin() returned and a distinct number. The first rank calls
/// commit() with all summaries. Only one job may write to a directory at a time. Until commit()
/// returns, all earlier checkpoints are unchanged. The next begin() removes the remains of a killed
/// run.

/// Selects the checkpoints that are kept when a new one is complete. The new one is always kept.
struct Retention {
  std::int64_t keep = 0;        ///< number of newest checkpoints, by step; 0: all
  std::int64_t keep_every = 0;  ///< also keeps steps that are multiples of this; 0: none
};

/// Folder for the shards of a step.
std::string partial_folder(const std::string& directory, std::int64_t step);

/// Creates the directory of a run's checkpoints if it does not exist, and removes the remains of
/// killed runs from it.
void prepare_directory(const std::string& directory);
/// Creates partial_folder(), empty, and removes the remains of killed runs. Returns its path.
std::string begin(const std::string& directory, std::int64_t step);
/// Like begin(), in a directory that must exist. A run creates its directory at its start; if the
/// directory disappears later, it is not created again.
std::string begin_inside(const std::string& directory, std::int64_t step);

/// Completes the checkpoint `directory`/step_00000100. It checks that the shards exist and that
/// their slices cover every array exactly once, writes index, deck, kept files and manifest,
/// flushes everything to the device, renames the folder, names it in the file `latest` and removes
/// old checkpoints. An error removes the shards and leaves all earlier checkpoints unchanged.
/// `progress`, if given, is called after each shard and each removal.
void commit(const std::string& directory, const RunState& state,
            const std::vector<ShardSummary>& summaries, const Retention& retention,
            const std::function<void()>& progress = {});

/// The manifest of these shards and of files_of(state), without an index. Errors as in commit.
Manifest manifest_of(const RunState& state, const std::vector<ShardSummary>& summaries);

/// Completes shards of another directory's checkpoint that were copied to the folder of begin().
/// `files`: the files of the manifest, which has no index.
void commit(const std::string& directory, const Manifest& manifest, const Files& files,
            const Retention& retention, const std::function<void()>& progress = {});

/// Completes a folder that has only one node's shards of a checkpoint: writes manifest
/// (to_json(manifest_of())) and files, renames the folder and removes old folders.
void commit_part(const std::string& directory, std::int64_t step, const std::string& manifest,
                 const Files& files, const Retention& retention);

/// Removes a node's uncommitted part, and all earlier checkpoints but the newest: the disk may have
/// room for only two.
void abandon_part(const std::string& directory, std::int64_t step);

/// Removes the shards of a checkpoint that will not be committed.
void abandon(const std::string& directory, std::int64_t step);

/// A whole global array in host memory, contiguous, last axis fastest. Not owned.
struct ArrayView {
  std::string name;
  DType dtype = DType::fp32;
  Extents shape;
  const void* data = nullptr;
};

/// Runs the three steps in one process that has all arrays. `progress`, if given, is called after
/// each block.
void write(const std::string& directory, const RunState& state, std::span<const ArrayView> arrays,
           std::int64_t keep, const std::function<void()>& progress = {});

/// Writes index.h5 of a folder and flushes it to the device. The HDF5 file shows every whole array
/// as a virtual dataset over the shards, which it names relative to the folder; step, samples,
/// layout and library are attributes. Returns the manifest's entry for the file.
FileInfo write_index(const std::string& folder, const Manifest& manifest);

}  // namespace trireme::checkpoint
