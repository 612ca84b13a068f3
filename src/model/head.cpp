#include <trireme/architecture/placement.hpp>
#include <trireme/kernels/matmul.hpp>
#include <trireme/kernels/vocabulary.hpp>
#include <trireme/model/head.hpp>

#include <algorithm>

namespace trireme::model {
namespace {

template <class T>
View2<T> rows(View2<T> x, std::int64_t first, std::int64_t count) {
  return View2<T>(x.data() + first * extent(x, 1), static_cast<std::size_t>(count), x.extent(1));
}
template <class T>
View1<T> rows(View1<T> x, std::int64_t first, std::int64_t count) {
  return View1<T>(x.data() + first, static_cast<std::size_t>(count));
}

}  // namespace

template <class P>
Head<P>::Head(const Parameters<P>& parameters, const deck::ModelConfig& m)
    : norm_(parameters, "final_norm", m.hidden),
      table_(parameters.weight(m.tied_embeddings ? "embedding.token" : "output.weight",
                               m.vocabulary, m.hidden)),
      dtable_(m.tied_embeddings ? parameters.tied_gradient()
                                : parameters.gradient("output.weight", m.vocabulary, m.hidden)) {}

template <class P>
auto Head<P>::cut_saved(Arena& arena, const deck::ModelConfig& m, std::int64_t micro) -> Saved {
  Saved s;
  s.x = arena.take<T>(micro * m.sequence, m.hidden);
  s.dy = arena.take<T>(micro * m.sequence, m.hidden);
  s.norm = Norm<P>::Saved::cut(arena, micro * m.sequence);
  return s;
}

template <class P>
auto Head<P>::cut_scratch(Arena& arena, const deck::ModelConfig& m, std::int64_t micro) -> Scratch {
  const std::int64_t block = architecture::logit_block_rows(micro * m.sequence, m.vocabulary);
  auto logits = arena.take<T>(block, m.vocabulary);
  return {logits, arena.take<double>(block)};
}

template <class P>
void Head<P>::forward(const Exec& exec, View1<double> loss, const Saved& s, const Scratch& scratch,
                      View1<const std::int32_t> targets, const MicroContext& c) const {
  const std::int64_t tokens = extent(s.x, 0);
  const std::int64_t block = extent(scratch.logits, 0);
  norm_.forward(exec, s.dy, s.norm, s.x);
  for (std::int64_t first = 0; first < tokens; first += block) {
    const std::int64_t n = std::min(block, tokens - first);
    const View2<T> y = rows(s.dy, first, n);
    const View2<T> logits = rows(scratch.logits, 0, n);
    const View1<double> losses = rows(scratch.losses, 0, n);
    kernels::linear_forward<T>(exec, logits, y, table_, View1<const T>());
    kernels::cross_entropy_forward_backward<T>(exec, losses, logits, rows(targets, first, n),
                                               c.loss_scale);
    kernels::sum_ordered(exec, loss, losses);
    kernels::linear_backward_weight<T>(exec, dtable_, View1<G>(), logits, y);
    kernels::linear_backward_input<T>(exec, y, logits, table_);  // dy takes y's place
  }
}

template <class P>
void Head<P>::evaluate(const Exec& exec, View1<double> loss, const Saved& s, const Scratch& scratch,
                       View1<const std::int32_t> targets, std::int64_t tokens) const {
  const std::int64_t block = extent(scratch.logits, 0);
  norm_.forward(exec, s.dy, s.norm, s.x);
  for (std::int64_t first = 0; first < tokens; first += block) {
    const std::int64_t n = std::min(block, tokens - first);
    const View2<T> logits = rows(scratch.logits, 0, n);
    const View1<double> losses = rows(scratch.losses, 0, n);
    kernels::linear_forward<T>(exec, logits, rows(s.dy, first, n), table_, View1<const T>());
    kernels::cross_entropy_forward<T>(exec, losses, logits, rows(targets, first, n));
    kernels::sum_ordered(exec, loss, losses);
  }
}

template <class P>
void Head<P>::backward_input(const Exec& exec, View2<T> dx, const Saved& s) const {
  norm_.backward_input(exec, dx, s.dy, s.norm, s.x, false);
}

template <class P>
void Head<P>::backward_weight(const Exec& exec, const Saved& s) const {
  norm_.backward_weight(exec, s.dy, s.norm, s.x);
}

template <class P>
void Head<P>::logits(const Exec& exec, View2<T> logits, View2<const T> x, const Saved& s) const {
  norm_.forward(exec, s.dy, s.norm, x);
  kernels::linear_forward<T>(exec, logits, s.dy, table_, View1<const T>());
}

template class Head<Fp32>;
template class Head<Fp64>;

}  // namespace trireme::model
