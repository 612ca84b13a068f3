#pragma once

#include <trireme/architecture/architecture.hpp>
#include <trireme/architecture/layer_program.hpp>
#include <trireme/architecture/shard.hpp>
#include <trireme/deck/config.hpp>
#include <trireme/plan/machine.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace trireme::plan {

/// A kernel of a rank's layers and its calls in a training step with the full global batch.
struct LayerKernel {
  /// Label without its folder, with a dot before the pass: "layer_norm.backward_input". A matrix
  /// product has the operation's name instead: "attention.query.forward".
  std::string name;
  /// First step that calls the kernel. `operation` is the activation if its gradient follows a
  /// product (`fused`), and a linear operation if `accumulate` adds the gradients of its input.
  architecture::Step step;
  std::size_t kind = 0;    ///< kind of layer whose operations `step` counts
  std::int64_t calls = 0;  ///< calls of all layers and micro-batches, recomputation included
};

/// Each kernel once, in the order of the first layer's operations and their passes, then the
/// kernels of other kinds of layers. All ranks have the same kernels, but different `calls`.
std::vector<LayerKernel> layer_kernels(const deck::Config& config,
                                       const architecture::Architecture& architecture,
                                       const architecture::Shard& shard, bool split_backward,
                                       const Machine& machine);

}  // namespace trireme::plan
