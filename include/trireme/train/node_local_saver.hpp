#pragma once

#include <trireme/base/clock.hpp>
#include <trireme/checkpoint/node_local.hpp>
#include <trireme/checkpoint/writer.hpp>
#include <trireme/deck/config.hpp>
#include <trireme/grid/communicator.hpp>
#include <trireme/grid/nodes.hpp>
#include <trireme/train/background.hpp>
#include <trireme/train/engine.hpp>

#include <cstdint>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace trireme::train {

/// Writes local checkpoints, one at a time. Every rank writes a copy of its share to its node's
/// disk and, if there are several nodes, sends the copy to a rank of the partner node, which also
/// writes the copy. Threads write while training continues, unless checkpoint.asynchronous is
/// false. Failures of writing are logged, and do not end the run.
class NodeLocalSaver {
 public:
  /// Allocates memory for own and received shares. Arguments must outlive this object. Collective.
  NodeLocalSaver(const deck::CheckpointConfig& config, grid::Communicator& world, Engine& engine);
  /// Waits for this rank's thread and messages. An incomplete checkpoint stays incomplete.
  ~NodeLocalSaver();
  NodeLocalSaver(const NodeLocalSaver&) = delete;
  NodeLocalSaver& operator=(const NodeLocalSaver&) = delete;

  /// Begins the attempt that rank 0 names, and removes the local checkpoints of the run's other
  /// attempts. UsageError if nodes share a folder. Collective.
  void begin(const checkpoint::Attempt& attempt);
  /// Writes a checkpoint. First waits for a checkpoint in progress. Collective.
  void save(const checkpoint::RunState& state);
  /// 1 if this rank's part of the phase is not complete, otherwise 0. Starts to write received
  /// shares once all have arrived. Does not wait for other ranks.
  std::int64_t unfinished();
  /// Enters the next phase if `of_all`, the maximum of all ranks' unfinished(), is 0. Collective.
  void advance(std::int64_t of_all);
  /// Waits until the checkpoint in progress is complete. Collective.
  void finish();
  /// Waits for the checkpoint in progress, and removes the run's local checkpoints. Collective.
  void remove();

 private:
  enum class Phase : std::uint8_t { none, shards, manifest, completion };
  /// A share that this rank receives from a rank of another node.
  struct Received {
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
  Engine& engine_;
  std::unique_ptr<grid::Communicator> partners_;
  std::vector<grid::Node> nodes_;
  std::size_t node_ = 0;
  std::vector<std::int64_t> share_bytes_;  ///< copy_bytes() of each rank's share
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
  std::string manifest_;           ///< on the first rank, later on all; "": incomplete checkpoint
  std::string error_;              ///< error of this rank's part; "": none
  std::set<std::string> failing_;  ///< on the first rank: nodes that failed in this checkpoint
  std::set<std::string> warned_;   ///< nodes that failed in the previous checkpoint
  bool reported_ = false;
  Clock::time_point began_;
};

}  // namespace trireme::train
