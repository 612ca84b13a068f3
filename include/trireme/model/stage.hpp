#pragma once

#include <trireme/model/block.hpp>
#include <trireme/model/embedding.hpp>
#include <trireme/model/head.hpp>

#include <functional>
#include <vector>

namespace trireme::model {

/// The part of the model that one rank holds, and its memory: slots of saved activations, as many
/// as the program keeps alive, and scratch. In this version the whole model is one stage.
template <class P>
class Stage {
 public:
  using T = typename P::Compute;

  struct Shape {
    std::int64_t micro = 1;  ///< samples per pass
    int slots = 1;
    bool training = true;  ///< false: one slot, no gradient memory
    bool split_backward =
        false;  ///< the program has backward_input and backward_weight apart: one Work per layer
  };

  Stage(const architecture::Architecture& architecture, const Parameters<P>& parameters,
        const Shape& shape);

  View1<std::int32_t> tokens(int slot) const { return slots_[index(slot)].tokens; }    // [T]
  View1<std::int32_t> targets(int slot) const { return slots_[index(slot)].targets; }  // [T]
  View1<double> loss() const { return loss_; }  // [1], summed over tokens

  void zero_loss(const Exec& exec) const;

  /// Called with the layer's number when all its weight gradients of this pass are complete (−1:
  /// the embedding).
  using LayerDone = std::function<void(std::int64_t layer)>;

  void forward(const Exec& exec, int slot, const MicroContext& context) const;
  void backward(const Exec& exec, int slot, const MicroContext& context,
                const LayerDone& done) const;
  void backward_input(const Exec& exec, int slot, const MicroContext& context) const;
  void backward_weight(const Exec& exec, int slot, const MicroContext& context,
                       const LayerDone& done) const;

  /// loss += Σ_t cross entropy over the slot's first `samples` samples, without dropout.
  void evaluate(const Exec& exec, int slot, const MicroContext& context,
                std::int64_t samples) const;

  std::int64_t saved_bytes() const { return saved_.capacity(); }
  std::int64_t scratch_bytes() const { return scratch_.capacity(); }

 private:
  struct Slot {
    View1<std::int32_t> tokens, targets;
    std::vector<typename Block<P>::Saved> layers;
    std::vector<typename Block<P>::Work> work;  ///< only if the backward pass is split
    View2<T> dx;                                // [T, D] likewise
    typename Head<P>::Saved head;
  };

  static std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }
  void cut_saved(Arena& arena);
  void cut_scratch(Arena& arena);
  void forward_layers(const Exec& exec, const Slot& slot, const MicroContext& context) const;
  View2<T> layer_output(const Slot& slot, std::size_t layer) const;

  deck::ModelConfig model_;
  Shape shape_;
  Embedding<P> embedding_;
  std::vector<Block<P>> blocks_;
  Head<P> head_;

  Arena saved_;
  Arena scratch_;
  std::vector<Slot> slots_;
  View1<double> loss_;
  View2<T> dx_;                   // [T, D] gradient of the residual stream
  typename Block<P>::Work work_;  // shared by all layers
  typename Block<P>::Scratch block_scratch_;
  typename Head<P>::Scratch head_scratch_;
};

}  // namespace trireme::model
