#pragma once

#include <trireme/base/clock.hpp>
#include <trireme/checkpoint/writer.hpp>
#include <trireme/deck/config.hpp>
#include <trireme/grid/communicator.hpp>
#include <trireme/train/worker.hpp>

#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <future>
#include <string>
#include <vector>

namespace trireme::train {

/// Writes the checkpoints of a run. Every rank writes its share as one shard, then the first rank
/// completes the folder. One checkpoint is under way at a time, in two phases that all ranks enter
/// together: shards, completion. In the background a thread of each rank writes a copy of the share
/// in host memory while training goes on; ranks then agree on the phases by exchanging their
/// `Progress`, for which the trainer's agreement at each step's end serves.
class Saver {
 public:
  /// What a rank knows of itself, or, as the maximum over all ranks, of all.
  struct Progress {
    std::int64_t unfinished = 0;  ///< 1: still at work on its part of the phase
    std::int64_t failed = 0;      ///< 1: its part has failed
  };

  /// `copy_bytes` of host memory are for writing in the background; 0 on all ranks: each checkpoint
  /// is written while the run waits. Collective. All but these must outlive this.
  Saver(const deck::CheckpointConfig& config, grid::Communicator& world, Worker& worker,
        Bytes copy_bytes);
  /// Waits for this rank's thread. A checkpoint that is not complete then never will be.
  ~Saver();
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  /// Writes a checkpoint: in the background if there is memory for a copy and training `goes_on`,
  /// otherwise until it is complete. Waits for the one under way, if any. All ranks throw the first
  /// error of any of them together. Collective.
  void save(const checkpoint::RunState& state, bool goes_on);

  /// How far this rank is.
  Progress progress();
  /// Goes on to the next phase when all ranks are done with this one. `of_all`: the maximum of the
  /// progress of all ranks. All ranks throw together, as in save. Collective.
  void advance(const Progress& of_all);
  /// Waits until the checkpoint under way is complete. Collective.
  void finish();

  /// How long the next checkpoint will take: as long as the last one and, before there was one, at
  /// 100 MB/s per rank.
  Seconds expected_seconds() const;
  bool under_way() const { return phase_ != Phase::none; }
  Bytes copy_bytes() const { return copy_bytes_; }

 private:
  enum class Phase : std::uint8_t { none, shards, completion };

  std::vector<checkpoint::SliceView> copied(const std::vector<checkpoint::SliceView>& share);
  void write_share(std::vector<checkpoint::SliceView> slices);
  void has_moved();
  void complete();
  void wait_for_own_part();
  void report() const;
  template <class Work>
  void start(Work work);

  const deck::CheckpointConfig& config_;
  grid::Communicator& world_;
  Worker& worker_;
  StagingBuffer copy_memory_;
  Bytes copy_bytes_;

  Phase phase_ = Phase::none;
  bool in_background_ = false;  ///< some rank has memory for a copy
  bool background_ = false;     ///< the checkpoint under way
  checkpoint::RunState state_;
  std::string shard_;              ///< this rank's summary, packed; empty: it has written none
  std::future<std::string> part_;  ///< this rank's part of the phase
  std::exception_ptr error_;
  std::atomic<std::int64_t> moved_{0};  ///< pieces of work done, for the watchdog
  Clock::time_point began_;
  Seconds held_up_ = 0;
  Seconds last_seconds_ = 0;
  Bytes share_bytes_ = 0;
  Bytes written_bytes_ = 0;  ///< on the first rank: of the last checkpoint's shards
};

}  // namespace trireme::train
