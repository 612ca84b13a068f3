#pragma once

#include <trireme/model/operations.hpp>

#include <memory>
#include <vector>

namespace trireme::model {

/// One transformer layer: it runs the steps of its program. All memory comes from the caller.
template <class P>
class Layer {
 public:
  using T = typename P::Compute;

  /// Arguments must outlive this.
  Layer(const LayerPlan& plan, const Parameters<P>& parameters, const deck::ModelConfig& model,
        const TensorAxis& axis, std::int64_t layer);

  /// The layer's input [R, D], with which its kept memory begins.
  View2<T> input(const LayerMemory& memory) const;

  /// out [R, D] from input(); fills what is kept. out may be the input where no backward pass
  /// follows.
  void forward(const Handle& handle, View2<T> out, const LayerMemory& memory,
               const LayerScratch<P>& scratch, const MicroContext& context) const;
  /// dx [R, D]: gradient of out on entry, of the input on return; adds to the weight gradients.
  void backward(const Handle& handle, View2<T> dx, const LayerMemory& memory,
                const LayerScratch<P>& scratch, const MicroContext& context) const;
  /// The same in two parts, where the program has them.
  void backward_input(const Handle& handle, View2<T> dx, const LayerMemory& memory,
                      const LayerScratch<P>& scratch, const MicroContext& context) const;
  void backward_weight(const Handle& handle, const LayerMemory& memory,
                       const LayerScratch<P>& scratch, const MicroContext& context) const;
  /// One token per row against the key/value caches; for generation, on one tensor rank. x [B, D]
  /// in place.
  void decode(const Handle& handle, View2<T> x, const LayerMemory& memory,
              const LayerScratch<P>& scratch, const Decoding<P>& decoding) const;

  std::int64_t layer() const { return layer_; }

 private:
  void run(const architecture::PhaseProgram& phase, const Handle& handle, View2<T> stream,
           View2<T> output, const LayerMemory& memory, const LayerScratch<P>& scratch,
           const MicroContext& context, const Decoding<P>* decoding = nullptr) const;

  const LayerPlan& plan_;
  std::int64_t layer_;
  std::vector<std::unique_ptr<LayerOperation<P>>> operations_;
};

/// Memory for one pass: `all`, attention's workspace and the transient values.
template <class P>
LayerScratch<P> take_layer_scratch(Arena& arena, const LayerPlan& plan,
                                   const deck::ModelConfig& model, bool training,
                                   const kernels::KernelChoice& choice = {});

}  // namespace trireme::model
