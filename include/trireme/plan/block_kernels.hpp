#pragma once

#include <trireme/architecture/architecture.hpp>
#include <trireme/architecture/block_program.hpp>
#include <trireme/architecture/shard.hpp>
#include <trireme/deck/config.hpp>
#include <trireme/plan/machine.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace trireme::plan {

/// A kernel of a rank's layers, and its number of calls in a training step with the full global
/// batch.
struct BlockKernel {
  /// Label without its folder, with a dot before the pass: "layer_norm.backward_input". The
  /// kernels of a product or an activation have the name of the operation:
  /// "attention.query.forward".
  std::string name;
  /// First call that runs the kernel. For the gradient of an activation after a product,
  /// `operation` is the activation and `fused` the product. For the kernel that adds gradients of a
  /// product's input, `operation` is the product and `sum` is set.
  architecture::OperationCall call;
  std::size_t kind = 0;    ///< kind of layer with the operations of `call`
  std::int64_t calls = 0;  ///< calls of all layers and micro-batches, recomputation included
};

/// Each kernel once, in the order of the operations and passes of the first kind of layer, then the
/// kernels that only later kinds have. All ranks have the same kernels, but different `calls`.
std::vector<BlockKernel> block_kernels(const deck::Config& config,
                                       const architecture::Architecture& architecture,
                                       const architecture::Shard& shard, bool split_backward,
                                       const Machine& machine);

}  // namespace trireme::plan
