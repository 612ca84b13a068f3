#pragma once

#include <trireme/architecture/local_sizes.hpp>
#include <trireme/kernels/attention.hpp>
#include <trireme/model/context.hpp>
#include <trireme/model/norm.hpp>
#include <trireme/model/tensor_axis.hpp>

#include <memory>
#include <string>

namespace trireme::model {

/// One transformer layer. Each family has its own (gpt_layer.hpp, llama_layer.hpp), in which the
/// passes are straight lists of calls; what they keep is alike. All memory comes from the caller.
/// Sizes are those of this rank.
template <class P>
class Layer {
 public:
  using T = typename P::Compute;

  /// What the backward passes need of the forward pass; one per layer and slot. What is computed
  /// again (see `Recompute`) lies in memory that all layers share: with `selective` y1, y2 and g,
  /// with `full` everything but x.
  struct Saved {
    View2<T> x;                      // [R, D] input of the layer
    View2<T> y1;                     // [R, D] normalised input
    View2<T> qkv;                    // [T, (H + 2 Hkv) K] as attention takes it
    View2<T> o;                      // [T, H K] output of attention
    View2<T> x1;                     // [R, D] residual stream between the halves
    View2<T> y2;                     // [R, D]
    View2<T> h;                      // [T, F] before the non-linearity; [T, 2F] gate and up
    View2<T> g;                      // [T, F] after it
    View3<Accumulate<T>> logsumexp;  // [B, H, S]
    NormSaved<P> norm1, norm2;
  };

  /// What backward_input leaves for backward_weight: the gradient at each matrix product's output.
  struct Work {
    View2<T> dz2;   // [T, D]
    View2<T> dh;    // as h
    View2<T> dy2;   // [R, D]
    View2<T> dz1;   // [T, D]
    View2<T> dqkv;  // as qkv, before rotary positions
    View2<T> dy1;   // [R, D]
  };

  /// Memory that lives within one call.
  struct Scratch {
    View2<T> all;                         // [T, D] all tokens, where R is a part of T
    View2<T> d_o;                         // [T, H K] gradient of attention's output
    View2<T> dg;                          // [T, F] of g where there is a gate; shares d_o's memory
    View1<Accumulate<T>> attention_work;  // as the attention kernel asks
  };

  /// `axis` must outlive this.
  Layer(const Parameters<P>& parameters, const deck::ModelConfig& model, const TensorAxis& axis,
        std::int64_t layer, Recompute recompute);
  virtual ~Layer() = default;
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;

  /// The memory that the layers share.
  static Saved cut_shared(Arena& arena, const architecture::LocalSizes& sizes, Recompute recompute);
  static Saved cut_saved(Arena& arena, const architecture::LocalSizes& sizes,
                         Recompute recompute = Recompute::none, const Saved& shared = {});
  static Work cut_work(Arena& arena, const architecture::LocalSizes& sizes);
  static Scratch cut_scratch(Arena& arena, const architecture::LocalSizes& sizes, bool training);

  /// out [R, D] from saved.x; fills the rest of `saved`. out may be saved.x where no backward pass
  /// follows.
  virtual void forward(const Exec& exec, View2<T> out, const Saved& saved, const Scratch& scratch,
                       const MicroContext& context) const = 0;
  /// With recompute = full: fills `saved` from saved.x, as forward did; to be called before a
  /// backward pass. Otherwise nothing.
  virtual void forward_again(const Exec& exec, const Saved& saved, const Scratch& scratch,
                             const MicroContext& context) const = 0;
  /// dx [R, D]: gradient of out on entry, of saved.x on return.
  virtual void backward_input(const Exec& exec, View2<T> dx, const Work& work,
                              const Scratch& scratch, const Saved& saved,
                              const MicroContext& context) const = 0;
  /// Adds to the weight gradients.
  virtual void backward_weight(const Exec& exec, const Work& work, const Scratch& scratch,
                               const Saved& saved) const = 0;

  /// One token per row against the key/value caches [B, S, Hkv·K] that hold positions 0 …
  /// position−1; for generation, on one tensor rank. x [B, D] in place. `scratch` holds rows of the
  /// same sizes as Saved for T = B.
  virtual void decode(const Exec& exec, View2<T> x, View3<T> key_cache, View3<T> value_cache,
                      std::int64_t position, const Saved& scratch) const = 0;

  std::int64_t layer() const { return layer_; }

 protected:
  /// This rank's rows within all tokens.
  View2<T> own_rows(View2<T> all) const;
  kernels::AttentionShape attention_shape(std::int64_t tokens) const;
  kernels::AttentionDropout attention_dropout(const MicroContext& context) const;
  /// Of the outputs of attention and feed-forward, on this rank's rows.
  kernels::Dropout attention_site(const MicroContext& context) const;
  kernels::Dropout feed_forward_site(const MicroContext& context) const;

  deck::ModelConfig model_;
  const TensorAxis& axis_;
  layout::Slice heads_;           ///< query heads of this rank
  std::int64_t key_value_heads_;  ///< those that they use
  std::int64_t layer_;
  Recompute recompute_;
};

/// "layers.3.attention.query".
inline std::string array_name(std::int64_t layer, const char* name) {
  return text("layers.", layer, ".", name);
}

/// The layer of the model's family.
template <class P>
std::unique_ptr<Layer<P>> make_layer(const Parameters<P>& parameters,
                                     const deck::ModelConfig& model, const TensorAxis& axis,
                                     std::int64_t layer, Recompute recompute);

}  // namespace trireme::model
