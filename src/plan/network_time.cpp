// Times of collectives and messages from the positions of ranks on nodes: ring collectives, and
// groups that share a node's network.
#include <trireme/plan/network_time.hpp>

#include <algorithm>

namespace trireme::plan {
namespace {

GroupPlace place_of(std::int64_t ranks, std::int64_t stride, std::int64_t devices) {
  GroupPlace p;
  p.ranks = ranks;
  p.per_node = std::min(ranks, std::max<std::int64_t>(1, devices / stride));
  p.nodes = (ranks + p.per_node - 1) / p.per_node;
  p.sharing = p.nodes == 1 ? 1 : std::max<std::int64_t>(1, devices / p.per_node);
  return p;
}

/// Placement of the groups that two axes form together.
GroupPlace together(const GroupPlace& a, const GroupPlace& b, std::int64_t devices) {
  if (a.ranks == 1) return b;
  if (b.ranks == 1) return a;
  GroupPlace p;
  p.ranks = a.ranks * b.ranks;
  p.per_node = a.per_node * b.per_node;
  p.nodes = (p.ranks + p.per_node - 1) / p.per_node;
  p.sharing = p.nodes == 1 ? 1 : std::max<std::int64_t>(1, devices / p.per_node);
  return p;
}

/// `ranks` consecutive members of a group, on one node as far as the node has room for them.
GroupPlace consecutive(GroupPlace p, std::int64_t ranks, std::int64_t devices) {
  if (ranks >= p.ranks) return p;
  p.ranks = ranks;
  p.per_node = std::min(ranks, p.per_node);
  p.nodes = (ranks + p.per_node - 1) / p.per_node;
  p.sharing = p.nodes == 1 ? 1 : std::max<std::int64_t>(1, devices / p.per_node);
  return p;
}

/// Every `apart`-th member of a group.
GroupPlace spaced(GroupPlace p, std::int64_t apart, std::int64_t devices) {
  if (apart == 1) return p;
  p.ranks = std::max<std::int64_t>(1, p.ranks / apart);
  p.per_node = std::min(p.ranks, std::max<std::int64_t>(1, p.per_node / apart));
  p.nodes = (p.ranks + p.per_node - 1) / p.per_node;
  p.sharing = p.nodes == 1 ? 1 : std::max<std::int64_t>(1, devices / p.per_node);
  return p;
}

}  // namespace

NetworkTime::NetworkTime(const Machine& machine, const deck::ParallelConfig& p)
    : machine_(machine), pipeline_(p.pipeline) {
  const bool data_second = machine.software.second_axis == SecondAxis::data;
  const layout::AxisList axes = p.axes(data_second ? "tensor, data" : "");
  devices_ =
      machine.node.devices == 0 ? axes.ranks() : std::min(axes.ranks(), machine.node.devices);
  for (const layout::AxisSize& a : axes.axes())
    places_[a.axis] = place_of(a.axis == Axis::data ? a.size / p.worker_groups() : a.size,
                               axes.stride(a.axis), devices_);
  places_[Axis::data] = together(places_[Axis::data], places_[Axis::context], devices_);
  shards_ = consecutive(places_[Axis::data], p.shard_ranks(), devices_);
  experts_ = consecutive(places_[Axis::data], p.expert, devices_);
  expert_ranks_ = together(places_[Axis::tensor], experts_, devices_);
  same_experts_ = spaced(places_[Axis::data], p.expert, devices_);
  expert_shards_ = spaced(shards_, p.expert, devices_);
  stride_ = axes.stride(Axis::pipeline);
}

/// The latency of NCCL grows with the number of ranks per node, because its rings pass through each
/// rank, and with the number of nodes.
Seconds NetworkTime::ring(double factor, double bytes, const GroupPlace& group,
                          double efficiency) const {
  if (group.ranks <= 1) return 0;
  const Machine::Node& node = machine_.node;
  double bandwidth = node.link_bandwidth * node.link_efficiency;
  if (group.per_node == 1) bandwidth = machine_.network.bandwidth;
  Seconds latency = 0;
  if (group.per_node > 1)
    latency += node.link_latency * static_cast<double>(group.per_node + 3) / 2;
  if (group.nodes > 1) {
    bandwidth = std::min(
        bandwidth, machine_.network.bandwidth * efficiency / static_cast<double>(group.sharing));
    latency += static_cast<double>(group.nodes - 1) * machine_.network.latency;
  }
  const auto n = static_cast<double>(group.ranks);
  return factor * ((n - 1) / n * bytes / bandwidth + latency);
}

Seconds NetworkTime::collective(architecture::Collective kind, double bytes, Axis axis) const {
  const double factor = kind == architecture::Collective::all_reduce ? 2 : 1;
  const double efficiency =
      axis == Axis::data ? machine_.network.gradient_efficiency : machine_.network.efficiency;
  return ring(factor, bytes, place(axis), efficiency);
}

Seconds NetworkTime::among_shards(architecture::Collective kind, double bytes) const {
  const double factor = kind == architecture::Collective::all_reduce ? 2 : 1;
  return ring(factor, bytes, shards_, machine_.network.gradient_efficiency);
}

Seconds NetworkTime::among_same_experts(architecture::Collective kind, double bytes) const {
  const double factor = kind == architecture::Collective::all_reduce ? 2 : 1;
  return ring(factor, bytes, same_experts_, machine_.network.gradient_efficiency);
}

Seconds NetworkTime::among_expert_shards(architecture::Collective kind, double bytes) const {
  const double factor = kind == architecture::Collective::all_reduce ? 2 : 1;
  return ring(factor, bytes, expert_shards_, machine_.network.gradient_efficiency);
}

Seconds NetworkTime::among_experts(double bytes) const {
  return exchange(bytes, experts_);
}

Seconds NetworkTime::among_expert_ranks(double bytes) const {
  return exchange(bytes, expert_ranks_);
}

Seconds NetworkTime::exchange(double bytes, const GroupPlace& group) const {
  if (group.ranks <= 1) return 0;
  const Machine::Node& node = machine_.node;
  const auto n = static_cast<double>(group.ranks);
  const double near = bytes * static_cast<double>(group.per_node - 1) / n;
  const double far = bytes * static_cast<double>(group.ranks - group.per_node) / n;
  Seconds latency = 0;
  if (group.per_node > 1) latency += node.link_latency;
  if (group.nodes > 1) latency += machine_.network.latency;
  return std::max(near / (node.link_bandwidth * node.link_efficiency),
                  far * static_cast<double>(devices_) /
                      (machine_.network.bandwidth * machine_.network.efficiency)) +
         latency;
}

Seconds NetworkTime::message(double bytes, Rank from, Rank to) const {
  if (from == to) return 0;
  const Machine::Node& node = machine_.node;
  // The node of a stage's first rank represents all ranks of the stage.
  const bool crosses = from * stride_ / devices_ != to * stride_ / devices_;
  // On a host, a message is one copy, which reaches the full bandwidth; a collective needs several
  // copies.
  const double share = machine_.on_device() ? node.link_efficiency : 1;
  if (!crosses) return bytes / (node.link_bandwidth * share) + node.link_latency;
  // Other ranks of the stage send at the same time.
  const auto senders = static_cast<double>(std::min(stride_, devices_));
  return bytes * senders / (machine_.network.bandwidth * machine_.network.efficiency) +
         machine_.network.latency;
}

Seconds NetworkTime::first_and_last(double bytes) const {
  if (pipeline_ == 1) return 0;
  GroupPlace pair{2, 2, 1, 1};
  if (pipeline_ * stride_ > devices_) pair = {2, 1, 2, std::min(stride_, devices_)};
  return ring(2, bytes, pair, machine_.network.gradient_efficiency);
}

}  // namespace trireme::plan
