// The head of masked tokens and sentence pairs (Devlin et al. 2019, arXiv 1810.04805, section 3.1).
// It picks its rows first, so that products have only these rows.
#include <trireme/model/masked_head.hpp>

#include <trireme/architecture/objective.hpp>
#include <trireme/base/check.hpp>
#include <trireme/kernels/cross_entropy.hpp>
#include <trireme/kernels/elementwise.hpp>
#include <trireme/kernels/rows.hpp>

#include <algorithm>

namespace trireme::model {
namespace {

template <class Fields>
Fields fields_of(const architecture::TrainingObjective& o) {
  return {o.field("targets"), o.field("rows"), o.find("pairs")};
}

}  // namespace

template <class P>
MaskedHead<P>::MaskedHead(const Parameters<P>& parameters, const deck::ModelConfig& m,
                          const TensorAxis& axis, architecture::HeadGradient gradient)
    : axis_(axis),
      gradient_(gradient),
      fields_(fields_of<Fields>(architecture::objective_of(m))),
      gelu_(m.gelu),
      masked_(m.targets()),
      dense_(parameters, "masked_head.dense", "masked_head.dense_bias", m.hidden, m.hidden),
      norm_(parameters, "masked_head.norm", m),
      logits_(parameters, m, axis, gradient) {
  if (!m.has_sentence_head()) return;
  pairs_.emplace(Pairs{
      Linear<P>(parameters, "sentence_head.dense", "sentence_head.dense_bias", m.hidden, m.hidden),
      Linear<P>(parameters, "sentence_head.output", "sentence_head.output_bias", 2, m.hidden)});
}

template <class P>
layout::Slice MaskedHead<P>::predicted(const Tensors& s) const {
  const std::int64_t samples = extent(s.picked, 0) / (masked_ + (pairs_ ? 1 : 0));
  return axis_.context().part(samples * masked_);
}

template <class P>
layout::Slice MaskedHead<P>::first_rows(const Tensors& s) const {
  const std::int64_t samples = extent(s.picked, 0) / (masked_ + 1);
  const layout::Slice mine = axis_.context().part(samples);
  return {samples * masked_ + mine.offset, mine.extent};
}

template <class P>
layout::Slice MaskedHead<P>::own(std::int64_t n) const {
  return axis_.cuts_tokens() ? layout::split(n, axis_.size(), axis_.rank()) : layout::Slice{0, n};
}

template <class P>
void MaskedHead<P>::backward_weight(const Handle& handle, const Linear<P>& linear,
                                    View2<const T> dy, View2<const T> x) const {
  const layout::Slice mine = own(extent(dy, 0));
  kernels::linear_backward_weight<T>(handle, linear.dw, linear.db, part(dy, mine), part(x, mine));
}

template <class P>
void MaskedHead<P>::pick(const Handle& handle, const Tensors& s, View2<const T> y,
                         View1<const std::int32_t> rows) const {
  kernels::pick_rows<T>(handle, s.picked, y, rows, axis_.rows().offset);
  if (axis_.cuts_tokens()) axis_.sum(handle, s.picked, "the head's rows, forward");
  axis_.context().sum(handle, s.picked, "the head's rows, forward");
}

template <class P>
void MaskedHead<P>::share_gradients(const Handle& handle, const Tensors& s) const {
  if (axis_.context().size() == 1) return;
  std::int64_t begin = 0;
  const auto clear_before = [&](const layout::Slice& mine) {
    kernels::fill(handle, flat(part(s.picked, {begin, mine.offset - begin})), 0.0);
    begin = mine.end();
  };
  clear_before(predicted(s));
  if (pairs_) clear_before(first_rows(s));
  clear_before({extent(s.picked, 0), 0});
  axis_.context().sum(handle, s.picked, "the head's rows, backward");
}

/// normed = LayerNorm(gelu(picked Wᵀ + b)).
template <class P>
void MaskedHead<P>::transform(const Handle& handle, const Tensors& s) const {
  const View2<T> y = part(s.picked, predicted(s));
  if (y.extent(0) == 0) return;
  kernels::linear_gelu_forward<T>(handle, s.activated, s.dense, y, dense_.w, dense_.b, gelu_);
  norm_.forward(handle, s.normed, s.norm, s.activated);
}

/// Computes the gradient of `picked` from the gradient in `normed`.
template <class P>
void MaskedHead<P>::transform_backward(const Handle& handle, const Tensors& s) const {
  const View2<T> y = part(s.picked, predicted(s));
  if (y.extent(0) == 0) return;
  const layout::Slice mine = own(extent(s.dense, 0));
  norm_.backward_weight(handle, part(s.normed, mine),
                        {part(s.norm.mean, mine), part(s.norm.inverse, mine)},
                        part(s.activated, mine));
  norm_.backward_input(handle, s.normed, s.normed, s.norm, s.activated, false);
  kernels::gelu_backward<T>(handle, s.normed, s.normed, s.dense, gelu_);
  backward_weight(handle, dense_, s.normed, y);
  dense_.backward_input(handle, y, s.normed);
}

/// scores = tanh(first tokens W1ᵀ + b1) W2ᵀ + b2 and their cross entropy. Stores the statistics for
/// the gradient in `merged`.
template <class P>
void MaskedHead<P>::score(const Handle& handle, const Tensors& s, View1<double> loss,
                          View1<const std::int32_t> pairs, std::int64_t samples) const {
  kernels::linear_forward<T>(handle, s.pooled, first_tokens(s), pairs_->dense.w, pairs_->dense.b);
  kernels::tanh_forward<T>(handle, s.pooled, s.pooled);
  kernels::linear_forward_wide<T>(handle, s.scores, s.pooled, pairs_->output.w, pairs_->output.b);
  kernels::cross_entropy_statistics<Accumulate<T>>(handle, s.statistics, s.scores, pairs, 0);
  const View3<const double> one_part(s.statistics.data(), 1, s.statistics.extent(0), 3);
  kernels::cross_entropy_merge(handle, s.losses, s.merged, one_part);
  kernels::sum_ordered(handle, loss, part(s.losses, {0, samples}));
}

/// dscores = w (softmax(scores) − one-hot(pair)).
template <class P>
void MaskedHead<P>::score_gradient(const Handle& handle, const Tensors& s,
                                   View1<const std::int32_t> pairs, const MicroContext& c) const {
  kernels::cross_entropy_gradient<T>(handle, s.dscores, s.scores, s.merged, pairs, 0,
                                     c.token_weight * static_cast<double>(masked_), c.loss_scale);
}

/// Computes the gradient of the first tokens from dscores; the gradient of tanh is 1 − tanh².
template <class P>
void MaskedHead<P>::score_backward(const Handle& handle, const Tensors& s) const {
  backward_weight(handle, pairs_->output, s.dscores, s.pooled);
  pairs_->output.backward_input(handle, s.dpooled, s.dscores);
  kernels::tanh_backward<T>(handle, s.dpooled, s.dpooled, s.pooled);
  backward_weight(handle, pairs_->dense, s.dpooled, first_tokens(s));
  pairs_->dense.backward_input(handle, first_tokens(s), s.dpooled);
}

template <class P>
void MaskedHead<P>::backward_to_rows(const Handle& handle, const Tensors& s) const {
  axis_.sum(handle, s.normed, "logits, backward");
  transform_backward(handle, s);
  if (fields_.pairs && s.pooled.extent(0) > 0) score_backward(handle, s);
}

template <class P>
void MaskedHead<P>::place(const Handle& handle, View2<T> dy, const Tensors& s,
                          View1<const std::int32_t> rows) const {
  share_gradients(handle, s);
  kernels::fill(handle, flat(dy), 0.0);
  kernels::place_rows<T>(handle, dy, s.picked, rows, axis_.rows().offset);
}

template <class P>
void MaskedHead<P>::forward(const Handle& handle, View1<double> losses, View2<T> dy, View2<T>,
                            const Tensors& s, BatchFields fields, const MicroContext& c) const {
  const View1<const std::int32_t> rows = fields[fields_.rows];
  pick(handle, s, dy, rows);
  transform(handle, s);
  logits_.forward(handle, part(losses, {0, 1}), s.normed, s.logits, fields[fields_.targets], c);
  if (fields_.pairs && s.pooled.extent(0) > 0) {
    const View1<const std::int32_t> pairs = fields[*fields_.pairs];
    score(handle, s, part(losses, {1, 1}), pairs, extent(s.pooled, 0));
    score_gradient(handle, s, pairs, c);
  }
  if (gradient_ != architecture::HeadGradient::with_losses) return;
  backward_to_rows(handle, s);
  place(handle, dy, s, rows);
}

template <class P>
void MaskedHead<P>::backward(const Handle& handle, View2<T> dy, View2<T>, const Tensors& s,
                             BatchFields fields, const MicroContext& c) const {
  logits_.backward(handle, s.normed, s.logits, fields[fields_.targets], c);
  backward_to_rows(handle, s);
  place(handle, dy, s, fields[fields_.rows]);
}

template <class P>
void MaskedHead<P>::evaluate(const Handle& handle, View1<double> losses, View2<T> y, View2<T>,
                             const Tensors& s, BatchFields fields, std::int64_t samples,
                             View2<double>) const {
  pick(handle, s, y, fields[fields_.rows]);
  transform(handle, s);
  const auto among = [](const layout::Slice& mine, std::int64_t end) {
    return layout::Slice{0, std::clamp<std::int64_t>(end - mine.offset, 0, mine.extent)};
  };
  const layout::Slice counted = among(predicted(s), samples * masked_);
  const View1<const std::int32_t> targets = fields[fields_.targets];
  logits_.evaluate(handle, part(losses, {0, 1}), part(s.normed, counted), s.logits,
                   part(targets, counted), {});
  if (!fields_.pairs || s.pooled.extent(0) == 0) return;
  const std::int64_t tokens = extent(s.picked, 0) / (masked_ + 1) * masked_;
  score(handle, s, part(losses, {1, 1}), fields[*fields_.pairs],
        among(first_rows(s), tokens + samples).extent);
}

template <class P>
void MaskedHead<P>::logits(const Handle&, View2<Accumulate<T>>, View2<const T>) const {
  check(false, "a model of masked tokens does not predict the next one");
}

template class MaskedHead<Fp32>;
template class MaskedHead<Fp64>;
template class MaskedHead<MixedBf16>;
template class MaskedHead<MixedFp16>;

}  // namespace trireme::model
