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
/// write_shard() with the folder that begin() returned and a distinct number. The rank that called
/// begin() calls commit() with the summaries of all shards. Only one job may write to a directory
/// at a time. Earlier checkpoints are unchanged until commit() has completed the new checkpoint.

/// Selects the old checkpoints that are kept when a new checkpoint is complete. The new checkpoint,
/// and checkpoints from which it does not continue, are always kept.
struct Retention {
  std::int64_t keep = 0;  ///< number of newest checkpoints to keep, the new one included; 0: all
  std::int64_t keep_every = 0;  ///< also keeps steps that are multiples of this number; 0: none
};

/// Folder for the shards of a checkpoint until commit() renames it.
std::string partial_folder(const std::string& directory, std::int64_t step);

/// Creates the directory of a run's checkpoints if it is missing. Removes remains of killed runs.
void prepare_directory(const std::string& directory);
/// Like prepare_directory(), and creates the empty partial_folder(), whose path is returned.
std::string begin(const std::string& directory, std::int64_t step);
/// Like begin(), but does not create the directory.
std::string begin_inside(const std::string& directory, std::int64_t step);

/// Completes a checkpoint: checks that the shards exist and that their slices cover every array
/// exactly once; writes index, deck, kept files and manifest, and flushes them to the device;
/// renames the folder, names the checkpoint in the file `latest` and removes old checkpoints. A
/// checkpoint of the same step is replaced, or moved aside if the new checkpoint does not continue
/// its branch. An error up to the rename removes the shards and keeps all earlier checkpoints.
/// `progress`, if given, is called after each shard and each removal.
void commit(const std::string& directory, const RunState& state,
            const std::vector<ShardSummary>& summaries, const Retention& retention,
            const std::function<void()>& progress = {});

/// The manifest of these shards and of files_of(state), without an index. Error for a negative step
/// or number of samples; other errors as for assemble() and files_of().
Manifest manifest_of(const RunState& state, const std::vector<ShardSummary>& summaries);

/// Like commit() above, for the shards of another directory's checkpoint, which were copied to the
/// folder of begin(). `manifest` has no index. `files`: the files that the manifest lists.
void commit(const std::string& directory, const Manifest& manifest, const Files& files,
            const Retention& retention, const std::function<void()>& progress = {});

/// Completes a folder that has only one node's shards of a checkpoint: writes the manifest and the
/// files, renames the folder and removes old folders. An error up to the rename calls
/// abandon_part(). `manifest`: to_json(manifest_of()).
void commit_part(const std::string& directory, std::int64_t step, const std::string& manifest,
                 const Files& files, const Retention& retention);

/// Removes a node's uncommitted part, and the parts that precede the directory's newest part.
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

/// Runs the three steps in one process that has all arrays. `keep`: Retention::keep. `progress`, if
/// given, is called after each block.
void write(const std::string& directory, const RunState& state, std::span<const ArrayView> arrays,
           std::int64_t keep, const std::function<void()>& progress = {});

/// Writes index.h5 of a folder and flushes it to the device: an HDF5 file with every whole array as
/// a virtual dataset, which refers to the shards by their names. Arrays without elements are
/// ordinary datasets. Returns the manifest's entry for the file.
FileInfo write_index(const std::string& folder, const Manifest& manifest);

}  // namespace trireme::checkpoint
