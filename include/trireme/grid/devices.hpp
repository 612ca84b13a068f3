#pragma once

#include <trireme/grid/runtime.hpp>

#include <span>
#include <string>
#include <utility>
#include <vector>

namespace trireme::grid {

/// Where a rank's kernels run.
struct RankDevice {
  std::string node;
  std::string name;
  std::string id;  ///< the same for ranks that share a device
};

/// The nodes of the job in the order of their first ranks, and how many ranks each has: on rank 0,
/// elsewhere nothing. Collective.
std::vector<std::pair<std::string, std::int64_t>> nodes(Communicator& world);

/// Ranks with their nodes and devices, a line each; of large jobs the first ones and a count.
std::string device_table(std::span<const RankDevice> ranks);

/// The first two ranks that share a device, and what to do; empty if none do.
std::string shared_device(std::span<const RankDevice> ranks);

/// Says which device every rank has; a device of two ranks is an error unless `may_share`. Nothing
/// where kernels run on hosts. Collective.
void expect_devices(Runtime& runtime, bool may_share);

}  // namespace trireme::grid
