#pragma once

#include <trireme/grid/runtime.hpp>

#include <span>
#include <string>
#include <vector>

namespace trireme::grid {

/// The device of a rank's kernels.
struct RankDevice {
  std::string node;
  std::string name;
  std::string id;  ///< equal for ranks that share a device
};

/// Sets these variables of the environment unless they are set, before CUDA and NCCL read them:
/// CUDA_DEVICE_MAX_CONNECTIONS=32, so that streams do not share a hardware queue, where a receive
/// that spins could hold back the kernel that it waits for; and NCCL_LAUNCH_ORDER_IMPLICIT=1, so
/// that all devices see the kernels of several communicators in the same order (NCCL 2.26).
void set_device_environment();

/// One line per rank with its node and device. A large job's table has the first ranks and a count.
std::string device_table(std::span<const RankDevice> ranks);

/// A message about the first two ranks that share a device, with a remedy; empty if none do.
std::string shared_device(std::span<const RankDevice> ranks);

/// Logs the device of every rank. Throws Error if two ranks share a device, unless `may_share`.
/// Does nothing in host builds. Collective.
void expect_devices(Runtime& runtime, bool may_share);

}  // namespace trireme::grid
