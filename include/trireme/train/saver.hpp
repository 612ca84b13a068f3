#pragma once

#include <trireme/base/clock.hpp>
#include <trireme/checkpoint/writer.hpp>
#include <trireme/deck/config.hpp>
#include <trireme/grid/communicator.hpp>
#include <trireme/train/background.hpp>
#include <trireme/train/engine.hpp>

#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <future>
#include <string>
#include <vector>

namespace trireme::train {

/// Writes the checkpoints of a run, one at a time, in two phases that all ranks enter together:
/// every rank writes its share as one shard, then the first rank completes the folder. For a
/// background checkpoint, threads write copies of the shares while training continues.
class Saver {
 public:
  /// Progress of one rank, or the maximum over all ranks.
  struct Progress {
    std::int64_t unfinished = 0;  ///< 1: a rank's part of the phase is not complete
    std::int64_t failed = 0;      ///< 1: a rank's part has failed
  };

  /// Creates the directory of the checkpoints, and removes the remains of killed runs from it.
  /// `copy_bytes`: host memory for background checkpoints; if 0 on all ranks, the run waits for
  /// each checkpoint. Collective. All other arguments must outlive this object.
  Saver(const deck::CheckpointConfig& config, grid::Communicator& world, Engine& engine,
        Bytes copy_bytes);
  /// Waits for this rank's thread. An incomplete checkpoint stays incomplete.
  ~Saver();
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  /// Writes a checkpoint: in the background if there is memory for a copy and training continues
  /// (`goes_on`), otherwise returns when the checkpoint is complete. First waits for a checkpoint
  /// in progress. Collective.
  void save(const checkpoint::RunState& state, bool goes_on);

  /// Progress of this rank.
  Progress progress();
  /// Enters the next phase if no rank is unfinished; if a rank has failed, removes the checkpoint,
  /// and all ranks throw. `of_all`: maximum of progress() over all ranks. Collective.
  void advance(const Progress& of_all);
  /// Waits for the checkpoint in progress. If a rank has failed, all ranks throw. Collective.
  void finish();

  /// Time of the previous checkpoint; without one, the time of this rank's share at 100 MB/s.
  Seconds expected_seconds() const;
  bool under_way() const { return phase_ != Phase::none; }
  /// Number of phase changes, including the ends of checkpoints; equal on all ranks.
  std::int64_t phases() const { return phases_; }
  Bytes copy_bytes() const { return copy_memory_.bytes(); }

 private:
  enum class Phase : std::uint8_t { none, shards, completion };

  void enter(Phase phase) {
    phase_ = phase;
    ++phases_;
  }
  void write_share(std::vector<checkpoint::SliceView> slices);
  void has_moved();
  void complete();
  void wait_for_own_part();
  void report() const;

  const deck::CheckpointConfig& config_;
  grid::Communicator& world_;
  Engine& engine_;
  CopyMemory copy_memory_;

  Phase phase_ = Phase::none;
  std::int64_t phases_ = 0;
  bool in_background_ = false;  ///< whether any rank has memory for a copy
  bool background_ = false;     ///< whether the checkpoint in progress is written in the background
  checkpoint::RunState state_;
  std::string shard_;              ///< packed summary of this rank's shard; empty: no shard
  std::future<std::string> part_;  ///< this rank's part of the phase
  std::exception_ptr error_;
  std::atomic<std::int64_t> moved_{0};  ///< number of completed pieces of work, for the watchdog
  Clock::time_point began_;
  Seconds held_up_ = 0;
  Seconds last_seconds_ = 0;
  Bytes share_bytes_ = 0;
  Bytes written_bytes_ = 0;  ///< on the first rank: bytes of the last checkpoint's shards
};

}  // namespace trireme::train
