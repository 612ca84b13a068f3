#include <trireme/grid/nodes.hpp>

#include <trireme/base/process.hpp>
#include <trireme/base/text.hpp>

#include <algorithm>
#include <cstdlib>
#include <map>

namespace trireme::grid {

std::string node_name() {
  if (const char* given = std::getenv("TRIREME_NODE_NAME"); given != nullptr && *given != '\0')
    return given;
  return this_process().host;
}

std::vector<Node> nodes(Communicator& world) {
  const std::string all =
      world.broadcast(pack_texts(world.gather(node_name(), 0, "nodes")), 0, "nodes");
  std::vector<Node> found;
  std::map<std::string, std::size_t> places;
  Rank rank = 0;
  for (const std::string& name : unpack_texts(all)) {
    const auto [place, is_new] = places.emplace(name, found.size());
    if (is_new) found.push_back({name, {}});
    found[place->second].ranks.push_back(rank++);
  }
  return found;
}

std::size_t node_of(const std::vector<Node>& nodes, Rank rank) {
  const auto holds = [&](const Node& node) { return std::ranges::binary_search(node.ranks, rank); };
  return static_cast<std::size_t>(std::ranges::find_if(nodes, holds) - nodes.begin());
}

}  // namespace trireme::grid
