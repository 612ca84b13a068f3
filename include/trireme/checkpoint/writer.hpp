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
/// write_shard() with the folder that begin() returned and a number of its own. The first rank
/// calls commit() with all summaries. Only one job may write to a directory at a time. Until
/// commit() returns, all earlier checkpoints are unchanged. The next begin() removes what a killed
/// run left.

/// The checkpoints kept when a new one is complete. The new one is always kept.
struct Retention {
  std::int64_t keep = 0;        ///< number of newest ones, by step; 0: all
  std::int64_t keep_every = 0;  ///< also those whose step is a multiple; 0: none
};

/// The folder for the shards of a step.
std::string partial_folder(const std::string& directory, std::int64_t step);

/// Creates the directory of a run's checkpoints if it is not there, and removes what killed runs
/// left in it.
void prepare_directory(const std::string& directory);
/// Creates that folder, empty, and removes what killed runs left. Returns its path.
std::string begin(const std::string& directory, std::int64_t step);
/// The same in a directory that must exist. A run creates its directory when it begins; if it goes
/// away later, it is not made again.
std::string begin_inside(const std::string& directory, std::int64_t step);

/// Completes the checkpoint `directory`/step_00000100. It checks that the shards exist and that
/// their slices cover every array exactly once, writes index, deck, kept files and manifest,
/// flushes everything to the device, renames the folder, names it in the file `latest` and removes
/// old checkpoints. An error removes the shards and leaves all earlier checkpoints unchanged.
/// `progress`, if given, is called after each shard and each removal.
void commit(const std::string& directory, const RunState& state,
            const std::vector<ShardSummary>& summaries, const Retention& retention,
            const std::function<void()>& progress = {});

/// The manifest of these shards and of files_of(state), without an index. Error as in commit.
Manifest manifest_of(const RunState& state, const std::vector<ShardSummary>& summaries);

/// Completes shards of another directory's checkpoint that were copied to the folder of begin().
/// `files` are those of the manifest, which has no index.
void commit(const std::string& directory, const Manifest& manifest, const Files& files,
            const Retention& retention, const std::function<void()>& progress = {});

/// Completes a folder that has only a part of a checkpoint's shards, those of a node: writes
/// manifest (to_json(manifest_of())) and files, renames the folder and removes old ones.
void commit_part(const std::string& directory, std::int64_t step, const std::string& manifest,
                 const Files& files, const Retention& retention);

/// Removes such a folder, and all former ones but the newest: the disk may have room for only two.
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

/// The three steps in one process that has all arrays. `progress`, if given, is called after each
/// block.
void write(const std::string& directory, const RunState& state, std::span<const ArrayView> arrays,
           std::int64_t keep, const std::function<void()>& progress = {});

/// Writes index.h5 of a folder and flushes it to the device. The HDF5 file shows every whole array
/// as a virtual dataset over the shards, which it names relative to the folder; step, samples,
/// layout and library are attributes. Returns the manifest's entry for the file.
FileInfo write_index(const std::string& folder, const Manifest& manifest);

}  // namespace trireme::checkpoint
