#pragma once

#include <trireme/architecture/block_program.hpp>

#include <vector>

/// The calls of a block's phases, with the values that each call reads and writes. This is the
/// first half of lowering (block_program.hpp).
namespace trireme::architecture {

std::vector<OperationCall> forward_calls(const BlockDescription& layer);

/// The backward passes, from the last operation to the first. If several operations read a tensor,
/// its gradient is summed in this order.
struct BackwardCalls {
  std::vector<OperationCall>
      both;  ///< a weight's gradient follows the gradient of its operation's input
  std::vector<OperationCall> input;
  std::vector<OperationCall> weight;
};
BackwardCalls backward_calls(const BlockDescription& layer);

/// `calls`, each preceded by the recomputation of the tensors that it reads and that are neither
/// kept nor recomputed by an earlier call.
std::vector<OperationCall> with_recomputation(const BlockDescription& layer, const Kept& kept,
                                              const std::vector<OperationCall>& calls);

/// The tensor whose gradient a backward_input call computes: the input of its operation, or of the
/// activation whose gradient the call computes as well.
int gradient_target(const BlockDescription& layer, const OperationCall& call);

/// The values that a call reads and writes.
struct CallEffects {
  std::vector<Value> reads;
  std::vector<Value> writes;
  std::vector<int> scratch;  ///< tensors that the call uses as work memory
};
CallEffects effects(const BlockDescription& layer, const OperationCall& call);

/// The minimum number of bytes that a call reads and writes on a rank.
struct CallBytes {
  double moved = 0;     ///< read and written; a value that the call changes counts twice
  double resident = 0;  ///< size of all values together; they stay in a cache of at least this size
};
/// Counts the rows and columns of tensors and gradients that the call uses, and the rows of tables.
/// Weights of products and of norms are not counted. `call` may also be the backward_weight of an
/// operation whose rule has weights_with_input.
CallBytes least_bytes(const BlockDescription& part, const OperationCall& call,
                      const RankSizes& sizes, Bytes element, Bytes accumulate);

}  // namespace trireme::architecture
