#include <trireme/model/embedding.hpp>

#include <trireme/architecture/objective.hpp>
#include <trireme/kernels/embedding.hpp>

namespace trireme::model {

template <class P>
Embedding<P>::Embedding(const Parameters<P>& parameters, const deck::ModelConfig& m,
                        const TensorAxis& axis)
    : axis_(axis),
      looks_up_(!parameters.shard().shares_vocabulary()),
      sequence_(axis.context().held(m.sequence)),
      tokens_(architecture::objective_of(m).field("tokens")),
      segments_(architecture::objective_of(m).find("segments").value_or(0)),
      drops_(m.norm_placement != NormPlacement::post),
      scale_(m.embedding_scale()) {
  const layout::Slice ids = parameters.shard().vocabulary_part(m.vocabulary);
  first_id_ = ids.offset;
  token_ = parameters.weight("embedding.token", ids.extent, m.hidden);
  dtoken_ = parameters.gradient("embedding.token", ids.extent, m.hidden);
  if (parameters.holds("embedding.position")) {
    position_ = parameters.weight("embedding.position", m.sequence, m.hidden);
    dposition_ = parameters.gradient("embedding.position", m.sequence, m.hidden);
  }
  if (parameters.holds("embedding.segment")) {
    segment_ = parameters.weight("embedding.segment", 2, m.hidden);
    dsegment_ = parameters.gradient("embedding.segment", 2, m.hidden);
  }
}

template <class P>
void Embedding<P>::scale(const Exec& exec, View2<T> x) const {
  if (scale_ != 1) kernels::scale<T>(exec, flat(x), scale_);
}

template <class P>
View1<const std::int32_t> Embedding<P>::own_positions(const MicroContext& c) const {
  return View1<const std::int32_t>(c.positions.data() + axis_.rows().offset,
                                   static_cast<std::size_t>(axis_.rows().extent));
}

template <class P>
void Embedding<P>::forward(const Exec& exec, View2<T> x, View2<T> all, BatchFields fields,
                           const MicroContext& c) const {
  const std::int64_t first_row = axis_.rows().offset;
  const layout::TokenPlaces& places = axis_.context().places();
  // x[t] = scale token[tokens[t]] + position[index of t] + segment[segments[t]]
  if (looks_up_) {
    kernels::embedding_lookup<T>(exec, axis_.partial(all, x), fields[tokens_], token_, first_id_);
    axis_.reduce(exec, x, all, "embedding, forward");
    scale(exec, x);
  }
  if (has_positions() && c.positions.data() != nullptr)
    kernels::add_positions<T>(exec, x, position_, own_positions(c));
  else if (has_positions())
    kernels::add_positions<T>(exec, x, position_, sequence_, first_row, places);
  if (has_segments()) kernels::add_segments<T>(exec, x, segment_, fields[segments_], first_row);
  if (drops_ && c.dropout > 0)
    kernels::dropout_forward<T>(exec, x, x, c.dropout_site(0, axis_.places()));
}

template <class P>
void Embedding<P>::backward_weight(const Exec& exec, View2<T> dx, View2<T> all, BatchFields fields,
                                   const MicroContext& c) const {
  const std::int64_t first_row = axis_.rows().offset;
  if (drops_ && c.dropout > 0)
    kernels::dropout_backward<T>(exec, dx, dx, c.dropout_site(0, axis_.places()));
  if (dposition_.data() != nullptr && c.positions.data() != nullptr)
    kernels::embedding_lookup_backward<T>(exec, dposition_, dx, own_positions(c), 0);
  else if (dposition_.data() != nullptr)
    kernels::positions_backward<T>(exec, dposition_, dx, sequence_, first_row,
                                   axis_.context().places());
  if (dsegment_.data() != nullptr)
    kernels::segments_backward<T>(exec, dsegment_, dx, fields[segments_], first_row);
  if (!looks_up_ || dtoken_.data() == nullptr) return;
  scale(exec, dx);
  kernels::embedding_lookup_backward<T>(exec, dtoken_,
                                        axis_.gather(exec, all, dx, "embedding, backward"),
                                        fields[tokens_], first_id_);
}

template <class P>
void Embedding<P>::decode(const Exec& exec, View2<T> x, View1<const std::int32_t> tokens,
                          View1<const std::int32_t> positions) const {
  kernels::embedding_lookup<T>(exec, x, tokens, token_, first_id_);
  axis_.reduce(exec, x, x, "embedding, generation");
  scale(exec, x);
  if (has_positions()) kernels::add_positions<T>(exec, x, position_, positions);
}

template class Embedding<Fp32>;
template class Embedding<Fp64>;
template class Embedding<MixedBf16>;
template class Embedding<MixedFp16>;

}  // namespace trireme::model
