#pragma once

#include <trireme/base/types.hpp>
#include <trireme/grid/communicator.hpp>

#include <string>
#include <vector>

namespace trireme::grid {

/// Name of this process's node: the variable TRIREME_NODE_NAME, otherwise the host name.
std::string node_name();

/// A node of the job.
struct Node {
  std::string name;
  std::vector<Rank> ranks;  ///< ascending
};

/// The nodes of the job, in the order of their first ranks, on every rank. Collective.
std::vector<Node> nodes(Communicator& world);

/// Index of the node of a rank.
std::size_t node_of(const std::vector<Node>& nodes, Rank rank);

/// Index of the node that holds copies of node `node`'s checkpoint shards. This partner is half of
/// all nodes away, so that the two nodes seldom share a rack.
inline std::size_t partner_of(std::size_t node, std::size_t nodes) {
  return (node + nodes / 2) % nodes;
}

}  // namespace trireme::grid
