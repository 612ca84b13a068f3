#pragma once

#include <trireme/architecture/operation.hpp>
#include <trireme/base/types.hpp>
#include <trireme/deck/config.hpp>
#include <trireme/plan/machine.hpp>

#include <cstdint>

namespace trireme::plan {

/// Placement of a group of ranks on nodes, such as the ranks of an axis.
struct GroupPlace {
  std::int64_t ranks = 1;
  std::int64_t per_node = 1;  ///< ranks of the group on a node
  std::int64_t nodes = 1;     ///< nodes that the group spans
  std::int64_t sharing = 1;   ///< groups that share a node's network
  bool operator==(const GroupPlace&) const = default;
};

/// Times of messages between ranks in seconds. Collectives move the bytes of a ring (Patarasuk and
/// Yuan 2009): each of n ranks sends (n − 1)/n of all bytes once, or twice for an all-reduce.
/// Groups on the same node share the node's network.
class NetworkTime {
 public:
  NetworkTime(const Machine& machine, const deck::ParallelConfig& parallel);

  /// Time of an exchange among the replicas that divide the experts, in which each rank sends
  /// `bytes`, an equal part to each rank and to itself. All ranks of a node use its network.
  Seconds among_experts(double bytes) const;
  /// The same among the tensor ranks of these replicas.
  Seconds among_expert_ranks(double bytes) const;
  /// Time of a collective among the replicas with the same experts, or those of them that divide
  /// state.
  Seconds among_same_experts(architecture::Collective kind, double bytes) const;
  Seconds among_expert_shards(architecture::Collective kind, double bytes) const;
  /// Time of a collective of an axis; Axis::data includes the context axis. `bytes`: size of the
  /// whole buffer.
  Seconds collective(architecture::Collective kind, double bytes, Axis axis) const;
  /// Time of a collective among the replicas that divide state: all data ranks, or a group of them.
  Seconds among_shards(architecture::Collective kind, double bytes) const;
  /// Time of an all-reduce between the first and the last pipeline rank, while all tensor and data
  /// ranks do the same.
  Seconds first_and_last(double bytes) const;
  /// Time of a message between two pipeline ranks, while the other ranks of their stages send, too;
  /// 0 within a rank.
  Seconds message(double bytes, Rank from, Rank to) const;

  const GroupPlace& place(Axis axis) const { return places_[axis]; }

 private:
  Seconds ring(double factor, double bytes, const GroupPlace& group, double efficiency) const;
  Seconds exchange(double bytes, const GroupPlace& group) const;

  const Machine& machine_;
  layout::PerAxis<GroupPlace> places_;
  GroupPlace shards_, experts_, expert_ranks_, same_experts_, expert_shards_;
  std::int64_t stride_ = 1;  ///< distance between neighbouring pipeline ranks
  std::int64_t pipeline_ = 1;
  std::int64_t devices_ = 1;  ///< devices in use per node
};

}  // namespace trireme::plan
