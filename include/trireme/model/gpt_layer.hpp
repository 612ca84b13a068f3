#pragma once

#include <trireme/architecture/local_sizes.hpp>
#include <trireme/kernels/attention.hpp>
#include <trireme/model/context.hpp>
#include <trireme/model/linear.hpp>
#include <trireme/model/norm.hpp>
#include <trireme/model/tensor_axis.hpp>

namespace trireme::model {

/// One transformer layer, pre-LayerNorm (Radford et al. 2019; Xiong et al. 2020):
///   x1 = x + dropout(attention(norm(x))),  out = x1 + dropout(feed_forward(norm(x1))).
/// The tensor axis cuts attention by heads and the feed-forward by its width; `gather` and `reduce`
/// of TensorAxis stand around each. The three passes are straight lists of calls; all memory comes
/// from the caller. Sizes are those of this rank.
template <class P>
class Block {
 public:
  using T = typename P::Compute;

  /// What the backward passes need of the forward pass; one per layer and slot. What is computed
  /// again (see `Recompute`) lies in memory that all layers share: with `selective` y1, y2 and g,
  /// with `full` everything but x.
  struct Saved {
    View2<T> x;                      // [R, D] input of the layer
    View2<T> y1;                     // [R, D] normalised input
    View2<T> qkv;                    // [T, 3 H K]
    View2<T> o;                      // [T, H K] output of attention
    View2<T> x1;                     // [R, D] residual stream between the halves
    View2<T> y2;                     // [R, D]
    View2<T> h;                      // [T, F] before GELU
    View2<T> g;                      // [T, F] after GELU
    View3<Accumulate<T>> logsumexp;  // [B, H, S]
    typename Norm<P>::Saved norm1, norm2;
  };

  /// What backward_input leaves for backward_weight: the gradient at each matrix product's output.
  struct Work {
    View2<T> dz2;   // [T, D]
    View2<T> dh;    // [T, F]
    View2<T> dy2;   // [R, D]
    View2<T> dz1;   // [T, D]
    View2<T> dqkv;  // [T, 3 H K]
    View2<T> dy1;   // [R, D]
  };

  /// Memory that lives within one call.
  struct Scratch {
    View2<T> all;                         // [T, D] all tokens, where R is a part of T
    View2<T> d_o;                         // [T, H K] gradient of attention's output
    View1<Accumulate<T>> attention_work;  // as the attention kernel asks
  };

  /// `axis` must outlive this.
  Block(const Parameters<P>& parameters, const deck::ModelConfig& model, const TensorAxis& axis,
        std::int64_t layer, Recompute recompute = Recompute::none);

  /// The memory that the layers share.
  static Saved cut_shared(Arena& arena, const architecture::LocalSizes& sizes, Recompute recompute);
  static Saved cut_saved(Arena& arena, const architecture::LocalSizes& sizes,
                         Recompute recompute = Recompute::none, const Saved& shared = {});
  static Work cut_work(Arena& arena, const architecture::LocalSizes& sizes);
  static Scratch cut_scratch(Arena& arena, const architecture::LocalSizes& sizes, bool training);

  /// out [R, D] from saved.x; fills the rest of `saved`. out may be saved.x where no backward pass
  /// follows.
  void forward(const Exec& exec, View2<T> out, const Saved& saved, const Scratch& scratch,
               const MicroContext& context) const;
  /// With recompute = full: fills `saved` from saved.x, as forward did; to be called before a
  /// backward pass. Otherwise nothing.
  void forward_again(const Exec& exec, const Saved& saved, const Scratch& scratch,
                     const MicroContext& context) const;
  /// dx [R, D]: gradient of out on entry, of saved.x on return.
  void backward_input(const Exec& exec, View2<T> dx, const Work& work, const Scratch& scratch,
                      const Saved& saved, const MicroContext& context) const;
  /// Adds to the weight gradients.
  void backward_weight(const Exec& exec, const Work& work, const Scratch& scratch,
                       const Saved& saved) const;

  /// One token per row against the key/value caches [B, S, D] that hold positions 0 … position−1;
  /// for generation, on one tensor rank. x [B, D] in place. `scratch` holds rows of the same sizes
  /// as Saved for T = B.
  void decode(const Exec& exec, View2<T> x, View3<T> key_cache, View3<T> value_cache,
              std::int64_t position, const Saved& scratch) const;

  std::int64_t layer() const { return layer_; }

 private:
  void attend(const Exec& exec, const Saved& saved, const Scratch& scratch,
              const MicroContext& context) const;
  /// The feed-forward up to its inner activations, and from there to the output.
  void widen(const Exec& exec, const Saved& saved, const Scratch& scratch) const;
  void narrow(const Exec& exec, View2<T> out, const Saved& saved, const Scratch& scratch,
              const MicroContext& context) const;
  /// This rank's rows within all tokens.
  View2<T> own_rows(View2<T> all) const;
  kernels::AttentionShape attention_shape(std::int64_t tokens) const;
  kernels::AttentionDropout attention_dropout(const MicroContext& context) const;

  deck::ModelConfig model_;
  const TensorAxis& axis_;
  layout::Slice heads_;
  std::int64_t layer_;
  Recompute recompute_;
  Norm<P> norm1_;
  ColumnParallelLinear<P> query_key_value_;
  RowParallelLinear<P> output_;
  Norm<P> norm2_;
  ColumnParallelLinear<P> up_;
  RowParallelLinear<P> down_;
};

}  // namespace trireme::model
