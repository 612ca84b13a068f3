#pragma once

#include <trireme/architecture/architecture.hpp>
#include <trireme/architecture/shard.hpp>
#include <trireme/deck/config.hpp>
#include <trireme/schedule/needs.hpp>

#include <string>

namespace trireme::plan {

/// Whether this installation's kernels run on a device, with memory of its own.
bool has_device();

/// What [parallel] offload comes to here: nothing without a device.
bool offloads_optimizer(const deck::ParallelConfig& parallel);
bool offloads_activations(const deck::ParallelConfig& parallel);

/// The deck's choice in words, for `check` and the log; empty if it is "none".
std::string offload_note(const deck::ParallelConfig& parallel);

}  // namespace trireme::plan
