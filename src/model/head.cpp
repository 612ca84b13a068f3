#include <trireme/kernels/cross_entropy.hpp>
#include <trireme/kernels/matmul.hpp>
#include <trireme/model/head.hpp>

#include <algorithm>

namespace trireme::model {
namespace {

template <class T>
View1<T> rows(View1<T> x, std::int64_t first, std::int64_t count) {
  return View1<T>(x.data() + first, static_cast<std::size_t>(count));
}

template <class P>
std::variant<LayerNorm<P>, RmsNorm<P>> final_norm(const Parameters<P>& parameters,
                                                  const deck::ModelConfig& m) {
  switch (m.family) {
    case Family::gpt:
      break;
    case Family::llama:
      return RmsNorm<P>(parameters, "final_norm", m);
  }
  return LayerNorm<P>(parameters, "final_norm", m);
}

}  // namespace

template <class P>
Head<P>::Head(const Parameters<P>& parameters, const deck::ModelConfig& m, const TensorAxis& axis)
    : axis_(axis),
      first_id_(parameters.shard().part(m.vocabulary).offset),
      norm_(final_norm(parameters, m)) {
  const std::int64_t ids = parameters.shard().part(m.vocabulary).extent;
  const std::string table = m.tied_embeddings ? "embedding.token" : "output.weight";
  table_ = parameters.weight(table, ids, m.hidden);
  dtable_ = parameters.tied_gradient();  // where the look-up's gradient is here too
  if (dtable_.data() == nullptr) dtable_ = parameters.gradient(table, ids, m.hidden);
}

template <class P>
auto Head<P>::cut_saved(Arena& arena, const architecture::LocalSizes& n) -> Saved {
  Saved s;
  s.x = arena.take<T>(n.rows, n.hidden);
  s.dy = arena.take<T>(n.rows, n.hidden);
  s.norm = NormSaved<P>::cut(arena, n);
  return s;
}

template <class P>
auto Head<P>::cut_scratch(Arena& arena, const architecture::LocalSizes& n, int tensor_size)
    -> Scratch {
  Scratch s;
  s.logits = arena.take<Accumulate<T>>(n.logit_block, n.vocabulary);
  if constexpr (is_narrow<T>)
    s.dlogits = arena.take<T>(n.logit_block, n.vocabulary);
  else
    s.dlogits = s.logits;
  s.losses = arena.take<double>(n.logit_block);
  s.statistics = arena.take<double>(tensor_size * n.logit_block * 3);
  s.merged = arena.take<double>(n.logit_block * 3);
  return s;
}

template <class P>
void Head<P>::normalise(const Exec& exec, View2<T> y, const NormSaved<P>& saved,
                        View2<const T> x) const {
  std::visit([&](const auto& norm) { norm.forward(exec, y, saved, x); }, norm_);
}

template <class P>
View2<const double> Head<P>::block_losses(const Exec& exec, View1<double> losses,
                                          View2<Accumulate<T>> logits,
                                          View1<const std::int32_t> targets,
                                          const Scratch& scratch) const {
  const auto n = logits.extent(0);
  const auto parts = static_cast<std::size_t>(axis_.size());
  const View2<double> all(scratch.statistics.data(), parts, 3 * n);
  const View2<double> mine(all.data() + static_cast<std::size_t>(axis_.rank()) * 3 * n, n, 3);
  const View2<double> merged(scratch.merged.data(), n, 3);
  kernels::cross_entropy_statistics<Accumulate<T>>(exec, mine, logits, targets, first_id_);
  axis_.all_gather(exec, all, "cross entropy");
  kernels::cross_entropy_merge(exec, losses, merged, View3<const double>(all.data(), parts, n, 3));
  return merged;
}

template <class P>
void Head<P>::forward(const Exec& exec, View1<double> loss, const Saved& s, View2<T> all,
                      const Scratch& scratch, View1<const std::int32_t> targets,
                      const MicroContext& c) const {
  const std::int64_t tokens = axis_.tokens();
  const std::int64_t block = extent(scratch.logits, 0);
  normalise(exec, s.dy, s.norm, s.x);
  const View2<T> y_all = axis_.gather(exec, all, s.dy, "logits, forward");
  for (std::int64_t first = 0; first < tokens; first += block) {
    const std::int64_t n = std::min(block, tokens - first);
    const View2<T> y = rows_of(y_all, first, n);
    const View2<Accumulate<T>> logits = rows_of(scratch.logits, 0, n);
    const View2<T> dlogits = rows_of(scratch.dlogits, 0, n);
    const View1<double> losses = rows(scratch.losses, 0, n);
    const View1<const std::int32_t> wanted = rows(targets, first, n);
    kernels::linear_forward_wide<T>(exec, logits, y, table_);
    const View2<const double> merged = block_losses(exec, losses, logits, wanted, scratch);
    kernels::sum_ordered(exec, loss, losses);
    kernels::cross_entropy_gradient<T>(exec, dlogits, logits, merged, wanted, first_id_,
                                       c.token_weight, c.loss_scale);
    kernels::linear_backward_weight<T>(exec, dtable_, View1<G>(), dlogits, y);
    kernels::linear_backward_input<T>(exec, y, dlogits, table_);  // dy takes y's place
  }
  axis_.reduce(exec, s.dy, all, "logits, backward");
}

template <class P>
void Head<P>::evaluate(const Exec& exec, View1<double> loss, const Saved& s, View2<T> all,
                       const Scratch& scratch, View1<const std::int32_t> targets,
                       std::int64_t tokens) const {
  const std::int64_t block = extent(scratch.logits, 0);
  normalise(exec, s.dy, s.norm, s.x);
  const View2<T> y_all = axis_.gather(exec, all, s.dy, "logits, forward");
  for (std::int64_t first = 0; first < tokens; first += block) {
    const std::int64_t n = std::min(block, tokens - first);
    const View2<Accumulate<T>> logits = rows_of(scratch.logits, 0, n);
    const View1<double> losses = rows(scratch.losses, 0, n);
    kernels::linear_forward_wide<T>(exec, logits, rows_of(y_all, first, n), table_);
    block_losses(exec, losses, logits, rows(targets, first, n), scratch);
    kernels::sum_ordered(exec, loss, losses);
  }
}

template <class P>
void Head<P>::backward_input(const Exec& exec, View2<T> dx, const Saved& s) const {
  std::visit([&](const auto& norm) { norm.backward_input(exec, dx, s.dy, s.norm, s.x, false); },
             norm_);
}

template <class P>
void Head<P>::backward_weight(const Exec& exec, const Saved& s) const {
  std::visit([&](const auto& norm) { norm.backward_weight(exec, s.dy, s.norm, s.x); }, norm_);
}

template <class P>
void Head<P>::logits(const Exec& exec, View2<Accumulate<T>> logits, View2<const T> x,
                     const Saved& s) const {
  normalise(exec, s.dy, s.norm, x);
  kernels::linear_forward_wide<T>(exec, logits, s.dy, table_);
}

template class Head<Fp32>;
template class Head<Fp64>;
template class Head<MixedBf16>;
template class Head<MixedFp16>;

}  // namespace trireme::model
