#pragma once

#include <trireme/kernels/attention.hpp>
#include <trireme/model/context.hpp>
#include <trireme/model/linear.hpp>
#include <trireme/model/norm.hpp>

namespace trireme::model {

/// One transformer layer, pre-LayerNorm (Radford et al. 2019; Xiong et al. 2020):
///   x1 = x + dropout(attention(norm(x))),  out = x1 + dropout(feed_forward(norm(x1))).
/// The three passes are straight lists of kernel calls; all memory comes from the caller.
template <class P>
class Block {
 public:
  using T = typename P::Compute;

  /// What the backward passes need of the forward pass; one per layer and slot.
  struct Saved {
    View2<T> x;                      // [T, D] input of the layer
    View2<T> y1;                     // [T, D] normalised input
    View2<T> qkv;                    // [T, 3 D]
    View2<T> o;                      // [T, D] output of attention
    View2<T> x1;                     // [T, D] residual stream between the halves
    View2<T> y2;                     // [T, D]
    View2<T> h;                      // [T, F] before GELU
    View2<T> g;                      // [T, F] after GELU
    View3<Accumulate<T>> logsumexp;  // [B, H, S]
    typename Norm<P>::Saved norm1, norm2;
  };

  /// What backward_input leaves for backward_weight: the gradient at each matrix product's output.
  struct Work {
    View2<T> dz2;   // [T, D]
    View2<T> dh;    // [T, F]
    View2<T> dy2;   // [T, D]
    View2<T> dz1;   // [T, D]
    View2<T> dqkv;  // [T, 3 D]
    View2<T> dy1;   // [T, D]
  };

  /// Memory that lives within one call.
  struct Scratch {
    View2<T> d_o;                         // [T, D] gradient of attention's output
    View1<Accumulate<T>> attention_work;  // as the attention kernel asks
  };

  Block(const Parameters<P>& parameters, const deck::ModelConfig& model, std::int64_t layer);

  static Saved cut_saved(Arena& arena, const deck::ModelConfig& model, std::int64_t micro);
  static Work cut_work(Arena& arena, const deck::ModelConfig& model, std::int64_t micro);
  static Scratch cut_scratch(Arena& arena, const deck::ModelConfig& model, std::int64_t micro);

  /// out [T, D] from saved.x; fills the rest of `saved`. out may be saved.x where no backward pass
  /// follows.
  void forward(const Exec& exec, View2<T> out, const Saved& saved,
               const MicroContext& context) const;
  /// dx [T, D]: gradient of out on entry, of saved.x on return.
  void backward_input(const Exec& exec, View2<T> dx, const Work& work, const Scratch& scratch,
                      const Saved& saved, const MicroContext& context) const;
  /// Adds to the weight gradients.
  void backward_weight(const Exec& exec, const Work& work, const Saved& saved) const;

  /// One token per row against the key/value caches [B, S, D] that hold positions 0 … position−1;
  /// for generation. x [B, D] in place. `scratch` holds rows of the same sizes as Saved for T = B.
  void decode(const Exec& exec, View2<T> x, View3<T> key_cache, View3<T> value_cache,
              std::int64_t position, const Saved& scratch) const;

  std::int64_t layer() const { return layer_; }

 private:
  kernels::AttentionShape attention_shape(std::int64_t tokens) const;
  kernels::AttentionDropout attention_dropout(const MicroContext& context) const;

  deck::ModelConfig model_;
  std::int64_t layer_;
  Norm<P> norm1_;
  Linear<P> query_key_value_;
  Linear<P> output_;
  Norm<P> norm2_;
  Linear<P> up_;
  Linear<P> down_;
};

}  // namespace trireme::model
