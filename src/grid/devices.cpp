#include <trireme/grid/devices.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/log.hpp>
#include <trireme/base/text.hpp>
#include <trireme/grid/nodes.hpp>
#include <trireme/tensor/device.hpp>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <vector>

namespace trireme::grid {
namespace {

constexpr std::size_t most_lines = 64;

}  // namespace

void set_device_environment() {
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);
}

std::string device_table(std::span<const RankDevice> ranks) {
  std::size_t node_width = 0;
  // Index of each device on its node.
  std::map<std::string, std::map<std::string, std::size_t>> numbers;
  for (const RankDevice& r : ranks) {
    node_width = std::max(node_width, r.node.size());
    numbers[r.node].emplace(r.id, numbers[r.node].size());
  }
  std::string out;
  const std::size_t lines = std::min(ranks.size(), most_lines);
  for (std::size_t i = 0; i < lines; ++i) {
    const RankDevice& r = ranks[i];
    out += text("  rank ", padded(std::to_string(i), std::to_string(ranks.size() - 1).size()), "  ",
                padded(r.node, node_width), "  device ", numbers[r.node][r.id], "  ", r.name, "\n");
  }
  if (lines < ranks.size())
    out +=
        text("  and ", ranks.size() - lines, " more ranks; ", numbers.size(), " nodes in total\n");
  if (!out.empty()) out.pop_back();
  return out;
}

std::string shared_device(std::span<const RankDevice> ranks) {
  std::map<std::string, std::size_t> first;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const auto [found, is_new] = first.emplace(ranks[i].id, i);
    if (is_new) continue;
    const auto on_node = [&](const RankDevice& r) { return r.node == ranks[i].node; };
    return text("ranks ", found->second, " and ", i, " use the same device of ", ranks[i].node,
                " (", ranks[i].name, "), which runs ", std::ranges::count_if(ranks, on_node),
                " ranks; start one rank per device, or set [parallel] share_devices = true");
  }
  return "";
}

void expect_devices(Runtime& runtime, bool may_share) {
  std::string mine;
  runtime.together([&] {
    if (const auto device = device_info())
      mine = text(node_name(), '\n', device->name, '\n', device->id);
  });
  std::vector<RankDevice> ranks;
  for (const std::string& one : runtime.world().gather(mine, 0, "devices")) {
    const std::size_t a = one.find('\n');
    const std::size_t b = one.find('\n', a + 1);
    if (b != std::string::npos)
      ranks.push_back({one.substr(0, a), one.substr(a + 1, b - a - 1), one.substr(b + 1)});
  }
  if (!ranks.empty()) say("devices\n", device_table(ranks));
  runtime.together([&] {
    const std::string shared = shared_device(ranks);
    check_usage(may_share || shared.empty(), shared);
  });
}

}  // namespace trireme::grid
