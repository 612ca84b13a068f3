#pragma once

#include <trireme/base/clock.hpp>
#include <trireme/checkpoint/local.hpp>
#include <trireme/checkpoint/writer.hpp>
#include <trireme/deck/config.hpp>
#include <trireme/grid/communicator.hpp>
#include <trireme/grid/nodes.hpp>
#include <trireme/train/background.hpp>
#include <trireme/train/worker.hpp>

#include <cstdint>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace trireme::train {

/// Writes local checkpoints. Every rank copies its share to host memory and sends it to a rank of
/// the partner node; both write it to their disks, in threads while training continues. One
/// checkpoint is in progress at a time, in phases that all ranks enter together, as in Saver. A
/// failure costs a warning and at most this checkpoint: the run continues.
class LocalSaver {
 public:
  /// Allocates memory for this rank's share and for the shares that it receives. Collective. All
  /// arguments must outlive this.
  LocalSaver(const deck::CheckpointConfig& config, grid::Communicator& world, Worker& worker);
  /// Waits for this rank's thread and messages. An incomplete checkpoint stays incomplete.
  ~LocalSaver();
  LocalSaver(const LocalSaver&) = delete;
  LocalSaver& operator=(const LocalSaver&) = delete;

  /// Begins the attempt that rank 0 names: local checkpoints of earlier attempts are removed.
  /// Collective.
  void begin(const checkpoint::Attempt& attempt);
  /// Writes a checkpoint, in the background unless the deck says otherwise. First waits for a
  /// checkpoint in progress. Collective.
  void save(const checkpoint::RunState& state);
  /// 1 if this rank's part of the phase is not complete, otherwise 0. Does not block.
  std::int64_t unfinished();
  /// Enters the next phase if no rank is unfinished. `of_all`: largest unfinished(). Collective.
  void advance(std::int64_t of_all);
  /// Waits until the checkpoint in progress is complete. Collective.
  void finish();
  /// Removes the run's local checkpoints, which an orderly end makes superfluous. Collective.
  void remove();

 private:
  enum class Phase : std::uint8_t { none, shards, manifest, completion };
  struct Received {  ///< a share of the partner node
    Rank rank = 0;
    std::vector<checkpoint::SliceView> slices;  ///< in `memory`
    std::unique_ptr<CopyMemory> memory;
  };
  struct Shard {
    Rank rank = 0;
    std::vector<checkpoint::SliceView> slices;
  };

  void find_partners();
  Rank own_receiver() const;
  void exchange_outlines(const std::vector<checkpoint::SliceView>& share);
  void expect_own_folder();
  void exchange();
  bool exchanged();
  void write(std::vector<Shard> shards);
  void collect();
  void make_manifest();
  void complete(const std::string& manifest);
  void report();
  std::string manifest_of(const std::vector<std::string>& reports);
  void warn_about(const std::vector<std::string>& errors);
  void wait_for_own_part();
  bool leads() const { return nodes_[node_].ranks.front() == world_.rank(); }

  const deck::CheckpointConfig& config_;
  grid::Communicator& world_;
  Worker& worker_;
  std::unique_ptr<grid::Communicator> partners_;
  std::vector<grid::Node> nodes_;
  std::size_t node_ = 0;
  std::vector<std::int64_t> share_bytes_;  ///< per rank, as in CopyMemory
  std::unique_ptr<CopyMemory> memory_;
  std::vector<Received> received_;
  checkpoint::Attempt attempt_;
  std::string folder_;  ///< folder of this attempt on this node

  Phase phase_ = Phase::none;
  checkpoint::RunState state_;
  std::vector<grid::Request> messages_;
  bool copies_begun_ = false;
  std::future<std::string> part_;     ///< this rank's part of the phase
  std::vector<std::string> written_;  ///< packed summaries of the shards that this rank wrote
  std::string manifest_;              ///< on the first rank
  std::string error_;                 ///< "": none
  std::set<std::string> failing_;     ///< on the first rank: nodes that failed in this checkpoint
  std::set<std::string> warned_;      ///< nodes whose failure has been reported in a warning
  bool reported_ = false;
  Clock::time_point began_;
};

}  // namespace trireme::train
