// Logits and cross entropy of one block of rows at a time. Tensor ranks exchange statistics instead
// of logits.
#include <trireme/model/logits.hpp>

#include <trireme/kernels/cross_entropy.hpp>
#include <trireme/kernels/matmul.hpp>

#include <algorithm>

namespace trireme::model {

using architecture::HeadGradient;

template <class P>
LogitsOperation<P>::LogitsOperation(const architecture::Operation& op,
                                    const OperationPlace<P>& place)
    : BlockOperation<P>(op),
      axis_(place.axis),
      gradient_(place.plan.head),
      rows_(place.model(), place.axis),
      gathers_(!is_shared(place.plan.description, op.input())),
      cap_(place.model().logit_softcap),
      scale_(place.model().logit_scale()),
      first_id_(place.parameters.shard().part(place.model().vocabulary).offset) {
  const Parameters<P>& parameters = place.parameters;
  const deck::ModelConfig& m = place.model();
  const std::int64_t ids = parameters.shard().part(m.vocabulary).extent;
  const std::string table = m.tied_embeddings ? "embedding.token" : "output.weight";
  table_ = parameters.weight(table, ids, m.hidden);
  dtable_ = parameters.tied_gradient();  // empty without tied embeddings or look-up
  if (dtable_.data() == nullptr) dtable_ = parameters.gradient(table, ids, m.hidden);
  if (!parameters.holds("output.bias")) return;
  bias_ = parameters.weight("output.bias", ids);
  dbias_ = parameters.gradient("output.bias", ids);
}

template <class P>
template <class Use>
void LogitsOperation<P>::visit_blocks(const PassArguments<P>& c, View2<T> y, std::int64_t count,
                                      const CrossEntropyOperation<P>& loss, const Use& use) const {
  const View2<Accumulate<T>> logits = c.values.sums(this->op_.output);
  const View2<T> dlogits = c.values.gradient(this->op_.output);
  const View2<double> merged = loss.merged(c);
  const View1<const std::int32_t> targets = loss.targets(c);
  const std::int64_t block = extent(logits, 0);
  // dlogits and merged have rows for all blocks if the backward pass reads these tensors.
  const bool all_gradients = extent(dlogits, 0) > block;
  const bool all_merged = extent(merged, 0) > block;
  for (std::int64_t first = 0; first < count; first += block) {
    const std::int64_t n = std::min(block, count - first);
    use(Block{first, rows_of(y, first, n), rows_of(logits, 0, n),
              rows_of(dlogits, all_gradients ? first : 0, n),
              rows_of(merged, all_merged ? first : 0, n), part(targets, {first, n})});
  }
}

template <class P>
void LogitsOperation<P>::compute(const Handle& handle, View2<Accumulate<T>> logits,
                                 View2<const T> y) const {
  kernels::linear_forward_wide<T>(handle, logits, y, table_, bias_);
  if (scale_ != 1) kernels::scale_logits<Accumulate<T>>(handle, logits, scale_);
  if (cap_ > 0) kernels::soft_cap<Accumulate<T>>(handle, logits, cap_);
}

/// loss += Σ_n (log Σ_v exp(logits[n,v]) − logits[n,target[n]])
template <class P>
View1<double> LogitsOperation<P>::add_losses(const PassArguments<P>& c, const Block& b,
                                             const CrossEntropyOperation<P>& loss) const {
  const auto n = b.logits.extent(0);
  const auto parts = static_cast<std::size_t>(axis_.size());
  const View2<double> all(loss.statistics(c).data(), parts, 3 * n);
  const View2<double> mine(all.data() + static_cast<std::size_t>(axis_.rank()) * 3 * n, n, 3);
  const View1<double> losses = part(loss.losses(c), {0, extent(b.logits, 0)});
  kernels::cross_entropy_statistics<Accumulate<T>>(c.handle, mine, b.logits, b.targets, first_id_);
  axis_.all_gather(c.handle, all, "cross entropy");
  kernels::cross_entropy_merge(c.handle, losses, b.merged,
                               View3<const double>(all.data(), parts, n, 3));
  kernels::sum_ordered(c.handle, loss.sum(c), losses);
  return losses;
}

/// dlogits = w (softmax(logits) − one-hot(target)), times the slope of the cap and the scale
template <class P>
void LogitsOperation<P>::block_gradient(const PassArguments<P>& c, const Block& b,
                                        double weight) const {
  kernels::cross_entropy_gradient<T>(c.handle, b.dlogits, b.logits, b.merged, b.targets, first_id_,
                                     scale_ * weight * c.context.token_weight, c.context.loss_scale,
                                     cap_);
}

/// dtable += dlogitsᵀ y; dbias += Σ_n dlogits[n]; dy = dlogits table, stored in place of y
template <class P>
void LogitsOperation<P>::block_backward(const PassArguments<P>& c, const Block& b) const {
  kernels::linear_backward_weight<T>(c.handle, dtable_, dbias_, b.dlogits, b.y);
  kernels::linear_backward_input<T>(c.handle, b.y, b.dlogits, table_);
}

template <class P>
void LogitsOperation<P>::forward(const PassArguments<P>& c, const BlockOperation<P>* fused) const {
  View2<T> y = c.values.matrix(this->op_.input());
  if (c.decoding != nullptr) return compute(c.handle, c.decoding->logits, y);
  const auto& loss = static_cast<const CrossEntropyOperation<P>&>(*fused);
  if (gathers_) y = axis_.gather(c.handle, c.scratch.all(axis_, y), y, "logits, forward");
  const bool trains = !c.context.evaluates();
  visit_blocks(c, y, rows_.counted_targets(c), loss, [&](const Block& b) {
    compute(c.handle, b.logits, b.y);
    const View1<double> losses = add_losses(c, b, loss);
    if (gathers_ && loss.term() == 0 && c.context.scores.size() > 0)
      kernels::row_scores(c.handle, rows_of(c.context.scores, b.first, extent(b.logits, 0)), losses,
                          b.merged);
    if (!trains || gradient_ == HeadGradient::again) return;
    block_gradient(c, b, loss.weight());
    if (gradient_ == HeadGradient::with_losses) block_backward(c, b);
  });
  // The gathered rows, in which the gradient is, are in memory that the next logits use.
  if (trains && gradient_ == HeadGradient::with_losses) sum_gradient(c);
}

template <class P>
void LogitsOperation<P>::sum_gradient(const PassArguments<P>& c) const {
  const View2<T> dy = c.values.matrix(this->op_.input());
  if (gathers_)
    axis_.reduce(c.handle, dy, c.scratch.all(axis_, dy), "logits, backward");
  else
    axis_.sum(c.handle, dy, "logits, backward");
}

template <class P>
void LogitsOperation<P>::backward_input(const PassArguments<P>& c, const BlockOperation<P>* fused,
                                        bool) const {
  if (gradient_ == HeadGradient::with_losses) return;
  const auto& loss = static_cast<const CrossEntropyOperation<P>&>(*fused);
  const View2<T> dy = c.values.matrix(this->op_.input());
  const View2<T> y =
      gathers_ ? axis_.gather(c.handle, c.scratch.all(axis_, dy), dy, "logits, backward") : dy;
  visit_blocks(c, y, extent(y, 0), loss, [&](const Block& b) {
    if (gradient_ == HeadGradient::again) {
      compute(c.handle, b.logits, b.y);
      block_gradient(c, b, loss.weight());
    }
    block_backward(c, b);
  });
  sum_gradient(c);
}

template class LogitsOperation<Fp32>;
template class LogitsOperation<Fp64>;
template class LogitsOperation<MixedBf16>;
template class LogitsOperation<MixedFp16>;

}  // namespace trireme::model
