#pragma once

#include <trireme/model/operations.hpp>

#include <memory>
#include <span>
#include <vector>

namespace trireme::model {

/// One transformer layer, which runs the steps of its program. The caller provides all memory.
template <class P>
class Layer {
 public:
  using T = typename P::Compute;

  /// Arguments must outlive this object.
  Layer(const LayerPlan& plan, const Parameters<P>& parameters,
        const architecture::Architecture& architecture, const TensorAxis& axis, std::int64_t layer);

  /// Takes memory that keeps its values between passes.
  void take_memory(Arena& arena);

  /// The layer's input [R, D], which is at the beginning of its kept memory.
  View2<T> input(const LayerMemory& memory) const;

  /// Computes out [R, D] from input(), and fills the kept memory. out may be the input if no
  /// backward pass follows.
  void forward(const Handle& handle, View2<T> out, const LayerMemory& memory,
               const LayerScratch<P>& scratch, const MicroContext& context) const;
  /// dx [R, D]: gradient of out on entry, of the input on return; adds to the weight gradients.
  void backward(const Handle& handle, View2<T> dx, const LayerMemory& memory,
                const LayerScratch<P>& scratch, const MicroContext& context) const;
  /// The two halves of backward(), if the program splits the backward pass.
  void backward_input(const Handle& handle, View2<T> dx, const LayerMemory& memory,
                      const LayerScratch<P>& scratch, const MicroContext& context) const;
  void backward_weight(const Handle& handle, const LayerMemory& memory,
                       const LayerScratch<P>& scratch, const MicroContext& context) const;
  /// One token per row with the caches of keys and values, for generation. x [R, D] is overwritten.
  void decode(const Handle& handle, View2<T> x, const LayerMemory& memory,
              const LayerScratch<P>& scratch, const Decoding<P>& decoding) const;

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
