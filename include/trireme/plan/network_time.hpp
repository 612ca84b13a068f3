#pragma once

#include <trireme/architecture/operation.hpp>
#include <trireme/base/types.hpp>
#include <trireme/deck/config.hpp>
#include <trireme/plan/machine.hpp>

#include <cstdint>

namespace trireme::plan {

/// Where the ranks of a group are: consecutive ranks of an axis are `stride` ranks apart.
struct GroupPlace {
  std::int64_t ranks = 1;
  std::int64_t per_node = 1;  ///< ranks of the group on a node
  std::int64_t nodes = 1;     ///< over which the group is spread
  std::int64_t sharing = 1;   ///< groups that share a node's network
  bool operator==(const GroupPlace&) const = default;
};

/// Seconds of messages between ranks. Collectives move the bytes of a ring (Patarasuk and Yuan
/// 2009): of n ranks each sends (n − 1)/n of all bytes once, or twice to sum them on all ranks.
/// Groups on the same node share its network.
class NetworkTime {
 public:
  NetworkTime(const Machine& machine, const deck::ParallelConfig& parallel);

  /// `bytes`: of the whole buffer. With a context axis, the data axis stands for all ranks with the
  /// same weights.
  Seconds collective(architecture::Collective kind, double bytes, Axis axis) const;
  /// The same among the replicas that divide state: all of the data axis, or a group of them.
  Seconds among_shards(architecture::Collective kind, double bytes) const;
  /// A sum between the first and the last pipeline rank, which all tensor and data ranks make.
  Seconds first_and_last(double bytes) const;
  /// A message between two pipeline ranks, while the other ranks of their stages send too; none
  /// within a rank.
  Seconds message(double bytes, Rank from, Rank to) const;

  const GroupPlace& place(Axis axis) const { return places_[axis]; }

 private:
  Seconds ring(double factor, double bytes, const GroupPlace& group, double efficiency) const;

  const Machine& machine_;
  layout::PerAxis<GroupPlace> places_;
  GroupPlace shards_;
  std::int64_t stride_ = 1;  ///< between pipeline ranks
  std::int64_t pipeline_ = 1;
  std::int64_t devices_ = 1;  ///< of a node that are in use
};

}  // namespace trireme::plan
