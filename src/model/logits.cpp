// Logits and cross entropy for a block of rows at a time, so that the whole logits are never
// stored. With tensor parallelism each rank has a part of the vocabulary, and only statistics are
// exchanged.
#include <trireme/kernels/cross_entropy.hpp>
#include <trireme/kernels/matmul.hpp>
#include <trireme/model/logits.hpp>

#include <algorithm>

namespace trireme::model {
namespace {

template <class T>
View1<T> rows(View1<T> x, std::int64_t first, std::int64_t count) {
  return View1<T>(x.data() + first, static_cast<std::size_t>(count));
}

}  // namespace

template <class P>
Logits<P>::Logits(const Parameters<P>& parameters, const deck::ModelConfig& m,
                  const TensorAxis& axis)
    : axis_(axis), first_id_(parameters.shard().part(m.vocabulary).offset) {
  const std::int64_t ids = parameters.shard().part(m.vocabulary).extent;
  const std::string table = m.tied_embeddings ? "embedding.token" : "output.weight";
  table_ = parameters.weight(table, ids, m.hidden);
  dtable_ = parameters.tied_gradient();  // where the look-up's gradient is here too
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
View2<const double> Logits<P>::block_losses(const Handle& handle, View1<double> losses,
                                            View2<Accumulate<T>> logits,
                                            View1<const std::int32_t> targets,
                                            const Scratch& scratch) const {
  const auto n = logits.extent(0);
  const auto parts = static_cast<std::size_t>(axis_.size());
  const View2<double> all(scratch.statistics.data(), parts, 3 * n);
  const View2<double> mine(all.data() + static_cast<std::size_t>(axis_.rank()) * 3 * n, n, 3);
  const View2<double> merged(scratch.merged.data(), n, 3);
  kernels::cross_entropy_statistics<Accumulate<T>>(handle, mine, logits, targets, first_id_);
  axis_.all_gather(handle, all, "cross entropy");
  kernels::cross_entropy_merge(handle, losses, merged,
                               View3<const double>(all.data(), parts, n, 3));
  return merged;
}

template <class P>
void Logits<P>::train(const Handle& handle, View1<double> loss, View2<T> y_all,
                      const Scratch& scratch, View1<const std::int32_t> targets,
                      const MicroContext& c) const {
  const std::int64_t count = extent(y_all, 0);
  const std::int64_t block = extent(scratch.logits, 0);
  for (std::int64_t first = 0; first < count; first += block) {
    const std::int64_t n = std::min(block, count - first);
    const View2<T> y = rows_of(y_all, first, n);
    const View2<Accumulate<T>> logits = rows_of(scratch.logits, 0, n);
    const View2<T> dlogits = rows_of(scratch.dlogits, 0, n);
    const View1<double> losses = rows(scratch.losses, 0, n);
    const View1<const std::int32_t> wanted = rows(targets, first, n);
    // logits = y tableᵀ + bias; loss += Σ_n (log Σ_v exp(logits[n,v]) − logits[n,target[n]])
    kernels::linear_forward_wide<T>(handle, logits, y, table_, bias_);
    const View2<const double> merged = block_losses(handle, losses, logits, wanted, scratch);
    kernels::sum_ordered(handle, loss, losses);
    // dlogits = w (softmax(logits) − one-hot(target)); dtable += dlogitsᵀ y; dy = dlogits table
    kernels::cross_entropy_gradient<T>(handle, dlogits, logits, merged, wanted, first_id_,
                                       c.token_weight, c.loss_scale);
    kernels::linear_backward_weight<T>(handle, dtable_, dbias_, dlogits, y);
    kernels::linear_backward_input<T>(handle, y, dlogits, table_);  // dy takes y's place
  }
}

template <class P>
void Logits<P>::evaluate(const Handle& handle, View1<double> loss, View2<const T> y_all,
                         const Scratch& scratch, View1<const std::int32_t> targets) const {
  const std::int64_t count = extent(y_all, 0);
  const std::int64_t block = extent(scratch.logits, 0);
  for (std::int64_t first = 0; first < count; first += block) {
    const std::int64_t n = std::min(block, count - first);
    const View2<Accumulate<T>> logits = rows_of(scratch.logits, 0, n);
    const View1<double> losses = rows(scratch.losses, 0, n);
    kernels::linear_forward_wide<T>(handle, logits, rows_of(y_all, first, n), table_, bias_);
    block_losses(handle, losses, logits, rows(targets, first, n), scratch);
    kernels::sum_ordered(handle, loss, losses);
  }
}

template <class P>
void Logits<P>::compute(const Handle& handle, View2<Accumulate<T>> logits, View2<const T> y) const {
  kernels::linear_forward_wide<T>(handle, logits, y, table_, bias_);
}

template class Logits<Fp32>;
template class Logits<Fp64>;
template class Logits<MixedBf16>;
template class Logits<MixedFp16>;

}  // namespace trireme::model
