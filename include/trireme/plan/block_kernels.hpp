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

/// A kernel of a rank's blocks, and its number of calls in a training step with the full global
/// batch.
struct BlockKernel {
  /// Label without its folder, with a dot before the pass: "layer_norm.backward_input". The
  /// kernels of a product, an activation or a table have the name of the operation:
  /// "attention.query.forward".
  std::string name;
  /// First call that runs the kernel. For the kernel that adds gradients of a product's input,
  /// `operation` is the product and `sum` is set.
  architecture::OperationCall call;
  /// Whether `call` is the gradient of an activation that the kernel of a product's gradient also
  /// computes, if the library fuses both.
  bool after_product = false;
  std::size_t kind = 0;  ///< index in Architecture::kinds of the block with the operation
  /// Phase of the block's program that runs the call.
  architecture::PhaseProgram architecture::BlockProgram::*phase =
      &architecture::BlockProgram::forward;
  std::int64_t calls = 0;  ///< calls of all layers and micro-batches, recomputation included
};

/// Kernels of the layers: each kernel once, in the order of the operations and passes of the first
/// kind of layer, then the kernels that only later kinds have. All ranks have the same kernels, but
/// different `calls`.
std::vector<BlockKernel> block_kernels(const deck::Config& config,
                                       const architecture::Architecture& architecture,
                                       const architecture::Shard& shard, bool split_backward,
                                       const Machine& machine);
/// Kernels of the embedding and the head that read, pick or place rows. The kernels of their other
/// operations are products, losses, or kernels that layers have as well.
std::vector<BlockKernel> end_kernels(const deck::Config& config,
                                     const architecture::Architecture& architecture);

}  // namespace trireme::plan
