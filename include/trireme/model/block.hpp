#pragma once

#include <trireme/base/check.hpp>
#include <trireme/model/operations.hpp>

#include <algorithm>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace trireme::model {

/// A block of the model: the embedding, a layer or the head. It runs the calls of its program. The
/// caller provides all memory.
template <class P>
class Block {
 public:
  using T = typename P::Compute;

  /// Arguments must outlive this object. `number`: number of the block in Architecture::blocks.
  Block(const BlockPlan& plan, const Parameters<P>& parameters,
        const architecture::Architecture& architecture, const TensorAxis& axis,
        std::int64_t number);

  /// Takes memory from `arena` for values that are valid in several passes: the scales of DoRA.
  void take_memory(Arena& arena);

  /// Input [R, D] of a layer or of the head, at the beginning of the kept memory.
  View2<T> input(const BlockMemory& memory) const;

  /// Computes out [R, D] from input(), or in the embedding from the context's fields, and fills the
  /// kept memory. The embedding of a shared vocabulary adds to out, which holds the tokens' rows of
  /// the table on entry. The head has no out: it adds to the context's losses, and in training
  /// computes the gradients that HeadGradient assigns to the forward pass.
  void forward(const Handle& handle, View2<T> out, const BlockMemory& memory,
               const BlockScratch<P>& scratch, const MicroContext& context) const;
  /// dx [R, D]: on entry, the gradient of out (except in the head); on return, the gradient of the
  /// input (except in the embedding). Adds to the gradients of the weights.
  void backward(const Handle& handle, View2<T> dx, const BlockMemory& memory,
                const BlockScratch<P>& scratch, const MicroContext& context) const;
  /// For the head: the backward pass from the losses to the output of the final norm. Call it
  /// before backward() or backward_input().
  void backward_losses(const Handle& handle, const BlockMemory& memory,
                       const BlockScratch<P>& scratch, const MicroContext& context) const;
  /// The two halves of backward(), if the program splits the backward pass.
  void backward_input(const Handle& handle, View2<T> dx, const BlockMemory& memory,
                      const BlockScratch<P>& scratch, const MicroContext& context) const;
  void backward_weight(const Handle& handle, const BlockMemory& memory,
                       const BlockScratch<P>& scratch, const MicroContext& context) const;
  /// Forward pass of generation over one token per row. Reads input(memory), or in the embedding
  /// the context's fields. The embedding and layers write x [R, D], which may be a layer's input;
  /// the head writes decoding.logits. A pass that has no rows of the tokens, or none of the source,
  /// skips the operations on these rows.
  void decode(const Handle& handle, View2<T> x, const BlockMemory& memory,
              const BlockScratch<P>& scratch, const Decoding<P>& decoding,
              const MicroContext& context = {}) const;

  /// A tensor of the head by name. The tensor is in `memory`, or in `scratch` until the next pass.
  /// Error if the head has no tensor of this name.
  template <class U = T>
  View2<U> tensor(std::string_view name, const BlockMemory& memory,
                  std::byte* scratch = nullptr) const {
    const auto& all = plan_.description.tensors;
    const auto found = std::ranges::find(all, name, &architecture::Tensor::name);
    check(found != all.end(), "the head has no tensor ", name);
    return BlockValues<P>(plan_, plan_.program.forward, memory, scratch, {}, {})
        .template numbers<U>(static_cast<int>(found - all.begin()));
  }

  /// Runs one call, without the gradients of weights that a rule computes with the input's
  /// gradient. `values`: views of the places that `phase` assigns, also in `arguments`.
  void run(const architecture::OperationCall& call, const architecture::PhaseProgram& phase,
           const PassArguments<P>& arguments, BlockValues<P>& values) const;
  const BlockOperation<P>& operation(int number) const {
    return *operations_[static_cast<std::size_t>(number)];
  }

  std::int64_t number() const { return number_; }
  const architecture::BlockProgram& program() const { return plan_.program; }

 private:
  void backward_input(const architecture::OperationCall& call,
                      const architecture::PhaseProgram& phase, const PassArguments<P>& arguments,
                      BlockValues<P>& values) const;
  /// Whether an operation has rows, in its output or in an input from the same block.
  bool has_rows(const architecture::Operation& op) const;
  void run(const architecture::PhaseProgram& phase, const Handle& handle, View2<T> stream,
           View2<T> output, const BlockMemory& memory, const BlockScratch<P>& scratch,
           const MicroContext& context, const Decoding<P>* decoding = nullptr) const;

  const BlockPlan& plan_;
  std::int64_t number_;
  std::vector<std::unique_ptr<BlockOperation<P>>> operations_;
};

/// Takes scratch for the passes of all blocks of `plans` from `arena`.
template <class P>
BlockScratch<P> take_block_scratch(Arena& arena, std::span<const BlockPlan> plans,
                                   const deck::ModelConfig& model, bool training,
                                   const kernels::KernelChoice& choice = {});

}  // namespace trireme::model
