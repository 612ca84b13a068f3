// Logits and cross entropy of one block of rows at a time, so that the whole logits are never
// stored. With tensor parallelism each rank has a part of the vocabulary, and ranks exchange only
// statistics.
#include <trireme/model/logits.hpp>

#include <trireme/kernels/cross_entropy.hpp>
#include <trireme/kernels/matmul.hpp>

#include <algorithm>

namespace trireme::model {

using architecture::HeadGradient;

namespace {

template <class T>
View1<T> rows(View1<T> x, std::int64_t first, std::int64_t count) {
  return View1<T>(x.data() + first, static_cast<std::size_t>(count));
}

}  // namespace

template <class P>
Logits<P>::Logits(const Parameters<P>& parameters, const deck::ModelConfig& m,
                  const TensorAxis& axis, HeadGradient gradient)
    : axis_(axis),
      gradient_(gradient),
      cap_(m.logit_softcap),
      first_id_(parameters.shard().part(m.vocabulary).offset) {
  const std::int64_t ids = parameters.shard().part(m.vocabulary).extent;
  const std::string table = m.tied_embeddings ? "embedding.token" : "output.weight";
  table_ = parameters.weight(table, ids, m.hidden);
  dtable_ = parameters.tied_gradient();  // if the look-up's gradient is here too
  if (dtable_.data() == nullptr) dtable_ = parameters.gradient(table, ids, m.hidden);
  if (!parameters.holds("output.bias")) return;
  bias_ = parameters.weight("output.bias", ids);
  dbias_ = parameters.gradient("output.bias", ids);
}

template <class P>
auto Logits<P>::scratch_in(const TensorMemory<P>& m) -> Scratch {
  return {m.template matrix<Accumulate<T>>("logits"), m.matrix("dlogits"),
          m.template list<double>("losses"), m.template list<double>("statistics"),
          m.template list<double>("merged")};
}

template <class P>
template <class Use>
void Logits<P>::visit_blocks(std::int64_t count, const Scratch& s,
                             View1<const std::int32_t> targets, const Use& use) const {
  const std::int64_t block = extent(s.logits, 0);
  // Some tensors have rows for all blocks and keep them.
  const bool all_gradients = extent(s.dlogits, 0) > block;
  const bool all_merged = static_cast<std::int64_t>(s.merged.size()) > 3 * block;
  for (std::int64_t first = 0; first < count; first += block) {
    const std::int64_t n = std::min(block, count - first);
    use(Block{first, rows_of(s.logits, 0, n), rows_of(s.dlogits, all_gradients ? first : 0, n),
              View2<double>(s.merged.data() + (all_merged ? 3 * first : 0),
                            static_cast<std::size_t>(n), 3),
              rows(targets, first, n)});
  }
}

/// logits = cap(y tableᵀ + bias)
template <class P>
void Logits<P>::block_logits(const Handle& handle, const Block& b, View2<const T> y) const {
  compute(handle, b.logits, b.rows(y));
}

/// loss += Σ_n (log Σ_v exp(logits[n,v]) − logits[n,target[n]])
template <class P>
void Logits<P>::block_loss(const Handle& handle, View1<double> loss, const Block& b,
                           const Scratch& s) const {
  const auto n = b.logits.extent(0);
  const auto parts = static_cast<std::size_t>(axis_.size());
  const View2<double> all(s.statistics.data(), parts, 3 * n);
  const View2<double> mine(all.data() + static_cast<std::size_t>(axis_.rank()) * 3 * n, n, 3);
  const View1<double> losses = rows(s.losses, 0, extent(b.logits, 0));
  kernels::cross_entropy_statistics<Accumulate<T>>(handle, mine, b.logits, b.targets, first_id_);
  axis_.all_gather(handle, all, "cross entropy");
  kernels::cross_entropy_merge(handle, losses, b.merged,
                               View3<const double>(all.data(), parts, n, 3));
  kernels::sum_ordered(handle, loss, losses);
}

/// dlogits = w (softmax(logits) − one-hot(target)), times the slope of the cap
template <class P>
void Logits<P>::block_gradient(const Handle& handle, const Block& b, const MicroContext& c) const {
  kernels::cross_entropy_gradient<T>(handle, b.dlogits, b.logits, b.merged, b.targets, first_id_,
                                     c.token_weight, c.loss_scale, cap_);
}

/// dtable += dlogitsᵀ y; dy = dlogits table, stored in place of y
template <class P>
void Logits<P>::block_backward(const Handle& handle, const Block& b, View2<T> y_all) const {
  const View2<T> y = rows_of(y_all, b.first, extent(b.logits, 0));
  kernels::linear_backward_weight<T>(handle, dtable_, dbias_, b.dlogits, y);
  kernels::linear_backward_input<T>(handle, y, b.dlogits, table_);
}

template <class P>
void Logits<P>::forward(const Handle& handle, View1<double> loss, View2<T> y, const Scratch& s,
                        View1<const std::int32_t> targets, const MicroContext& c) const {
  visit_blocks(extent(y, 0), s, targets, [&](const Block& block) {
    block_logits(handle, block, y);
    block_loss(handle, loss, block, s);
    if (gradient_ == HeadGradient::again) return;
    block_gradient(handle, block, c);
    if (gradient_ == HeadGradient::with_losses) block_backward(handle, block, y);
  });
}

template <class P>
void Logits<P>::backward(const Handle& handle, View2<T> y, const Scratch& s,
                         View1<const std::int32_t> targets, const MicroContext& c) const {
  visit_blocks(extent(y, 0), s, targets, [&](const Block& block) {
    if (gradient_ == HeadGradient::again) {
      block_logits(handle, block, y);
      block_gradient(handle, block, c);
    }
    block_backward(handle, block, y);
  });
}

template <class P>
void Logits<P>::evaluate(const Handle& handle, View1<double> loss, View2<const T> y,
                         const Scratch& s, View1<const std::int32_t> targets,
                         View2<double> scores) const {
  visit_blocks(extent(y, 0), s, targets, [&](const Block& block) {
    block_logits(handle, block, y);
    block_loss(handle, loss, block, s);
    const std::int64_t n = extent(block.logits, 0);
    if (scores.size() > 0)
      kernels::row_scores(handle, rows_of(scores, block.first, n), rows(s.losses, 0, n),
                          block.merged);
  });
}

template <class P>
void Logits<P>::compute(const Handle& handle, View2<Accumulate<T>> logits, View2<const T> y) const {
  kernels::linear_forward_wide<T>(handle, logits, y, table_, bias_);
  if (cap_ > 0) kernels::soft_cap<Accumulate<T>>(handle, logits, cap_);
}

template class Logits<Fp32>;
template class Logits<Fp64>;
template class Logits<MixedBf16>;
template class Logits<MixedFp16>;

}  // namespace trireme::model
