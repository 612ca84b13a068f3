#pragma once

#include <trireme/train/saver.hpp>
#include <trireme/train/skips.hpp>

#include "support/training.hpp"

#include <string>

/// Checkpoints of the tests' models; all ranks use rank 0's folder.
namespace trireme::train {

inline std::string shared_folder(const testing::TemporaryFolder& folder) {
  return testing::runtime().world().broadcast(folder.file("checkpoints"), 0, "rank 0's folder");
}

/// Saves a checkpoint; steps have 12 samples.
inline void save(Engine& engine, const std::string& directory, std::int64_t step,
                 grid::Communicator& world = testing::runtime().world()) {
  deck::CheckpointConfig where;
  where.directory = directory;
  Saver(where, world, engine, 0)
      .save({step, 12 * step, "# deck", "", to_values(engine.result().skips, step)}, false);
}

}  // namespace trireme::train
