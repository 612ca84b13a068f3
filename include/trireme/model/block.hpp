#pragma once

#include <trireme/base/check.hpp>
#include <trireme/model/operations.hpp>

#include <algorithm>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace trireme::model {

/// A block of the model, the embedding, a layer or the head, which runs the steps of its program.
/// The caller provides all memory.
template <class P>
class Block {
 public:
  using T = typename P::Compute;

  /// Arguments must outlive this object. `layer`: number of the layer; −1 for the
  /// embedding, L for the head.
  Block(const LayerPlan& plan, const Parameters<P>& parameters,
        const architecture::Architecture& architecture, const TensorAxis& axis, std::int64_t layer);

  /// Takes memory that keeps its values between passes.
  void take_memory(Arena& arena);

  /// A layer's input [R, D], which is at the beginning of its kept memory.
  View2<T> input(const LayerMemory& memory) const;

  /// Computes out [R, D] from input(), or from the context's fields, and fills the kept memory. out
  /// may be the input if no backward pass follows. A shared vocabulary's look-up is in out on
  /// entry.
  void forward(const Handle& handle, View2<T> out, const LayerMemory& memory,
               const LayerScratch<P>& scratch, const MicroContext& context) const;
  /// dx [R, D]: gradient of out on entry, of the input on return; adds to the weight gradients.
  void backward(const Handle& handle, View2<T> dx, const LayerMemory& memory,
                const LayerScratch<P>& scratch, const MicroContext& context) const;
  /// Computes the gradient of the head's losses down to its final norm's output, before backward().
  void backward_losses(const Handle& handle, const LayerMemory& memory,
                       const LayerScratch<P>& scratch, const MicroContext& context) const;
  /// The two halves of backward(), if the program splits the backward pass.
  void backward_input(const Handle& handle, View2<T> dx, const LayerMemory& memory,
                      const LayerScratch<P>& scratch, const MicroContext& context) const;
  void backward_weight(const Handle& handle, const LayerMemory& memory,
                       const LayerScratch<P>& scratch, const MicroContext& context) const;
  /// One token per row with the caches of keys and values, for generation. x [R, D] is overwritten.
  void decode(const Handle& handle, View2<T> x, const LayerMemory& memory,
              const LayerScratch<P>& scratch, const Decoding<P>& decoding) const;

  /// A tensor of the head by name: in `memory`, or in `scratch` after a pass.
  template <class U = T>
  View2<U> tensor(std::string_view name, const LayerMemory& memory,
                  std::byte* scratch = nullptr) const {
    const auto& all = plan_.description.tensors;
    const auto found = std::ranges::find(all, name, &architecture::Tensor::name);
    check(found != all.end(), "the head has no tensor ", name);
    return LayerValues<P>(plan_, plan_.program.forward, memory, scratch, {}, {})
        .template numbers<U>(static_cast<int>(found - all.begin()));
  }

  std::int64_t layer() const { return layer_; }
  const architecture::LayerProgram& program() const { return plan_.program; }

 private:
  void run(const architecture::PhaseProgram& phase, const Handle& handle, View2<T> stream,
           View2<T> output, const LayerMemory& memory, const LayerScratch<P>& scratch,
           const MicroContext& context, const Decoding<P>* decoding = nullptr) const;

  const LayerPlan& plan_;
  std::int64_t layer_;
  std::vector<std::unique_ptr<LayerOperation<P>>> operations_;
};

/// Takes the memory of one pass of a layer of any kind: `all`, attention's workspace and the
/// transient values.
template <class P>
LayerScratch<P> take_layer_scratch(Arena& arena, std::span<const LayerPlan> plans,
                                   const deck::ModelConfig& model, bool training,
                                   const kernels::KernelChoice& choice = {});

}  // namespace trireme::model
