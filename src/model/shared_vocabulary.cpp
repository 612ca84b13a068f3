// Look-up and logits of a part of the vocabulary. Logits are computed one block of rows at a time,
// together with the gradient of the last stage's output for the softmax of this part alone. The
// gradient is rescaled when the statistics of all parts are known.
#include <trireme/model/shared_vocabulary.hpp>

#include <trireme/kernels/cross_entropy.hpp>
#include <trireme/kernels/elementwise.hpp>
#include <trireme/kernels/embedding.hpp>
#include <trireme/kernels/matmul.hpp>
#include <trireme/kernels/shared_logits.hpp>

#include <algorithm>

namespace trireme::model {

using architecture::Home;

template <class P>
SharedVocabulary<P>::SharedVocabulary(const Parameters<P>& parameters, const deck::ModelConfig& m,
                                      const TensorAxis& axis, architecture::HeadGradient gradient)
    : axis_(axis),
      again_(architecture::computes_again(gradient)),
      vocabulary_(m.vocabulary),
      scale_(m.embedding_scale()),
      cap_(m.logit_softcap),
      description_(architecture::describe_shared_logits(m, gradient)) {
  const layout::Slice ids = parameters.shard().vocabulary_part(m.vocabulary);
  first_id_ = ids.offset;
  token_ = parameters.weight("embedding.token", ids.extent, m.hidden);
  dtoken_ = parameters.gradient("embedding.token", ids.extent, m.hidden);
  const std::string table = m.tied_embeddings ? "embedding.token" : "output.weight";
  output_ = parameters.weight(table, ids.extent, m.hidden);
  doutput_ = m.tied_embeddings ? parameters.tied_gradient()
                               : parameters.gradient(table, ids.extent, m.hidden);
}

template <class P>
void SharedVocabulary<P>::take_scratch(Arena& arena, const architecture::RankSizes& sizes) {
  const TensorMemory<P> memory(arena, description_, Home::scratch, sizes);
  scratch_ = memory.data();
  tokens_ = memory.template list<std::int32_t>("tokens");
  logits_ = memory.template matrix<Accumulate<T>>("logits");
  losses_ = memory.template list<double>("losses");
  statistics_ = memory.template list<double>("statistics");
  dy_ = memory.matrix("dy");
  rows_ = memory.matrix("rows");
}

template <class P>
auto SharedVocabulary<P>::take_slot(Arena& arena, const architecture::RankSizes& sizes) const
    -> Slot {
  Slot slot;
  slot.targets = arena.take<std::int32_t>(sizes.targets);
  const TensorMemory<P> memory(arena, description_, Home::slot, sizes, scratch_);
  slot.y = memory.matrix("y");
  slot.softmax = memory.matrix("softmax");
  slot.own = memory.template matrix<double>("own");
  slot.merged = memory.template matrix<double>("merged");
  return slot;
}

template <class P>
void SharedVocabulary<P>::look_up(const Exec& exec, View2<T> slice) const {
  const View2<T> rows = axis_.size() == 1 ? slice : rows_;
  kernels::embedding_lookup<T>(exec, rows, tokens_, token_, first_id_);
  if (scale_ != 1) kernels::scale<T>(exec, flat(rows), scale_);
  axis_.reduce_to_slice(exec, slice, rows, "look-up");
}

template <class P>
void SharedVocabulary<P>::look_up_gradient(const Exec& exec, View2<T> slice) const {
  const View2<T> rows = axis_.size() == 1 ? slice : rows_;
  axis_.gather_all(exec, rows, slice, "look-up, backward");
  if (scale_ != 1) kernels::scale<T>(exec, flat(rows), scale_);
  kernels::embedding_lookup_backward<T>(exec, dtoken_, rows, tokens_, first_id_);
}

template <class P>
template <class Use>
void SharedVocabulary<P>::visit_blocks(const Slot& s, const Use& use) const {
  const std::int64_t rows = extent(s.y, 0);
  const std::int64_t block = extent(logits_, 0);
  for (std::int64_t first = 0; first < rows; first += block) {
    const std::int64_t n = std::min(block, rows - first);
    const View1<const std::int32_t> targets(s.targets.data() + first, static_cast<std::size_t>(n));
    use(Block{first, rows_of(logits_, 0, n), rows_of(s.softmax, again_ ? 0 : first, n), targets,
              rows_of(s.own, first, n), rows_of(s.merged, first, n), rows_of(s.y, first, n)});
  }
}

template <class P>
void SharedVocabulary<P>::block_logits(const Handle& handle, const Block& b) const {
  kernels::linear_forward_wide<T>(handle, b.logits, b.y, output_, {});
  if (cap_ > 0) kernels::soft_cap<Accumulate<T>>(handle, b.logits, cap_);
}

template <class P>
void SharedVocabulary<P>::logits(const Handle& handle, const Slot& s, View2<T> slice,
                                 View2<double> statistics, bool gradient,
                                 const Between& between) const {
  axis_.gather_all(handle, s.y, slice, "logits, forward");
  visit_blocks(s, [&](const Block& b) {
    // logits = cap(y tableᵀ)
    block_logits(handle, b);
    between();
    kernels::cross_entropy_statistics<Accumulate<T>>(handle, b.own, b.logits, b.targets, first_id_);
    if (!gradient) return;
    // With the first id `vocabulary_`, no target matches: the result is the softmax of this part.
    // dy = softmax table
    kernels::cross_entropy_gradient<T>(handle, b.softmax, b.logits, b.own, b.targets, vocabulary_,
                                       1.0, {}, cap_);
    between();
    kernels::linear_backward_input<T>(handle, rows_of(dy_, b.first, extent(b.y, 0)), b.softmax,
                                      output_);
    between();
  });
  const auto parts = static_cast<std::size_t>(axis_.size());
  const auto rows = s.own.extent(0);
  const View2<double> all(statistics_.data(), parts, 3 * rows);
  kernels::copy<double>(handle, flat(rows_of(all, axis_.rank(), 1)), flat<const double>(s.own));
  axis_.all_gather(handle, all, "cross entropy");
  kernels::cross_entropy_merge(handle, losses_, statistics,
                               View3<const double>(all.data(), parts, rows, 3));
}

template <class P>
void SharedVocabulary<P>::combine(const Handle& handle, const Slot& s,
                                  View3<const double> statistics, View1<double> loss,
                                  std::int64_t rows, View2<double> scores) const {
  kernels::cross_entropy_merge(handle, losses_, s.merged, statistics);
  if (loss.extent(0) == 0) return;
  // loss += Σ_n (log Σ_v exp(logits[n,v]) − logits[n,target[n]])
  kernels::sum_ordered(handle, loss,
                       View1<const double>(losses_.data(), static_cast<std::size_t>(rows)));
  if (scores.size() > 0)
    kernels::row_scores(handle, rows_of(scores, 0, extent(s.merged, 0)), losses_, s.merged);
}

template <class P>
void SharedVocabulary<P>::output_gradient(const Handle& handle, const Slot& s, View2<T> slice,
                                          const MicroContext& c) const {
  kernels::rescale_output_gradient<T>(
      handle, dy_, output_,
      {s.own, s.merged, s.targets, first_id_, c.token_weight, c.loss_scale, cap_});
  axis_.reduce_to_slice(handle, slice, dy_, "logits, backward");
}

template <class P>
void SharedVocabulary<P>::logits_gradient(const Handle& handle, const Slot& s,
                                          const MicroContext& c, const Between& between) const {
  visit_blocks(s, [&](const Block& b) {
    if (again_) {
      block_logits(handle, b);
      kernels::cross_entropy_gradient<T>(handle, b.softmax, b.logits, b.merged, b.targets,
                                         first_id_, c.token_weight, c.loss_scale, cap_);
    } else {
      kernels::rescale_softmax<T>(
          handle, b.softmax,
          {b.own, b.merged, b.targets, first_id_, c.token_weight, c.loss_scale, cap_});
    }
    between();
    // dtable += dlogitsᵀ y
    kernels::linear_backward_weight<T>(handle, doutput_, {}, b.softmax, b.y);
    between();
  });
}

template class SharedVocabulary<Fp32>;
template class SharedVocabulary<Fp64>;
template class SharedVocabulary<MixedBf16>;
template class SharedVocabulary<MixedFp16>;

}  // namespace trireme::model
