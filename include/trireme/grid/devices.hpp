#pragma once

#include <trireme/grid/runtime.hpp>

#include <span>
#include <string>
#include <vector>

namespace trireme::grid {

/// The device on which a rank's kernels run.
struct RankDevice {
  std::string node;
  std::string name;
  std::string id;  ///< equal for ranks that share a device
};

/// Sets two environment variables, unless they are set. Call it before CUDA and NCCL read them.
/// CUDA_DEVICE_MAX_CONNECTIONS=32 gives up to 32 streams separate hardware queues, so that a
/// waiting receive does not block other kernels. NCCL_LAUNCH_ORDER_IMPLICIT=1: all devices see the
/// kernels of several communicators in the same order (since NCCL 2.26).
void set_device_environment();

/// Table with one line per rank: the rank's node and device. Only the first 64 ranks are listed; a
/// last line counts the other ranks and the nodes.
std::string device_table(std::span<const RankDevice> ranks);

/// Message about the first two ranks that share a device, with a remedy; "" if no ranks share one.
std::string shared_device(std::span<const RankDevice> ranks);

/// Logs device_table(). All ranks throw if two ranks share a device, unless `may_share`. Without
/// devices, nothing is logged or checked. Collective.
void expect_devices(Runtime& runtime, bool may_share);

}  // namespace trireme::grid
