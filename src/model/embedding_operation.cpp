// Look-ups of tokens, segments and positions, and tables that the embedding hands to the layers.
// Each tensor rank looks up the ids in its part of a vocabulary.
#include <trireme/model/embedding_operation.hpp>

#include <trireme/architecture/objective.hpp>
#include <trireme/kernels/elementwise.hpp>
#include <trireme/kernels/embedding.hpp>

namespace trireme::model {

template <class P>
EmbeddingOperation<P>::EmbeddingOperation(const architecture::Operation& op,
                                          const OperationPlace<P>& place)
    : BlockOperation<P>(op),
      axis_(place.axis_of(op.output)),
      of_source_(place.is_of_source(op.output)),
      sequence_(axis_.context().held(of_source_ ? place.model().source_sequence()
                                                : place.model().sequence)),
      scale_(is_split() ? place.model().embedding_scale() : 1),
      first_id_(0) {
  const architecture::ArraySpec& table = op.arrays.front();
  const architecture::Tensor& input =
      place.plan.description.tensors[static_cast<std::size_t>(op.input())];
  if (!op.in_place()) field_ = architecture::objective_of(place.model()).field(input.name);
  layout::Slice indices{0, table.shape[0]};
  if (is_split()) indices = place.parameters.shard().vocabulary_part(indices.extent);
  first_id_ = indices.offset;
  const std::string name = place.array(table.name);
  table_ = place.parameters.weight(name, indices.extent, table.shape[1]);
  dtable_ = place.parameters.gradient(name, indices.extent, table.shape[1]);
}

template <class P>
View1<const std::int32_t> EmbeddingOperation<P>::own_positions(const PassArguments<P>& c) const {
  if (c.context.positions.data() == nullptr || of_source_) return {};
  return View1<const std::int32_t>(c.context.positions.data() + axis_.rows().offset,
                                   static_cast<std::size_t>(axis_.rows().extent));
}

template <class P>
void EmbeddingOperation<P>::scale(const PassArguments<P>& c, View2<T> x) const {
  if (scale_ != 1) kernels::scale<T>(c.handle, flat(x), scale_);
}

template <class P>
void EmbeddingOperation<P>::forward(const PassArguments<P>& c, const BlockOperation<P>*) const {
  const View2<T> x = c.values.matrix(this->op_.output);
  const std::int64_t first_row = axis_.rows().offset;
  if (is_split()) {
    kernels::embedding_lookup<T>(c.handle, axis_.partial(c.scratch.all(axis_, x), x), ids(c),
                                 table_, first_id_);
    axis_.reduce(c.handle, x, c.scratch.all(axis_, x), "embedding, forward");
    scale(c, x);
  } else if (field_) {
    kernels::add_segments<T>(c.handle, x, table_, ids(c), first_row);
  } else if (const auto positions = own_positions(c); positions.data() != nullptr) {
    kernels::add_positions<T>(c.handle, x, table_, positions);
  } else {
    kernels::add_positions<T>(c.handle, x, table_, sequence_, first_row, axis_.context().places());
  }
}

template <class P>
void EmbeddingOperation<P>::backward_weight(const PassArguments<P>& c) const {
  const View2<T> dx = c.values.gradient(this->op_.output);
  const std::int64_t first_row = axis_.rows().offset;
  if (is_split()) {
    scale(c, dx);
    kernels::embedding_lookup_backward<T>(
        c.handle, dtable_,
        axis_.gather(c.handle, c.scratch.all(axis_, dx), dx, "embedding, backward"), ids(c),
        first_id_);
  } else if (field_) {
    kernels::segments_backward<T>(c.handle, dtable_, dx, ids(c), first_row);
  } else if (const auto positions = own_positions(c); positions.data() != nullptr) {
    kernels::embedding_lookup_backward<T>(c.handle, dtable_, dx, positions, 0);
  } else {
    kernels::positions_backward<T>(c.handle, dtable_, dx, sequence_, first_row,
                                   axis_.context().places());
  }
}

template <class P>
TableOperation<P>::TableOperation(const architecture::Operation& op, const OperationPlace<P>& place)
    : BlockOperation<P>(op) {
  const std::int64_t elements = op.arrays.front().shape[0] * columns_of(op.output, place);
  const std::string name = place.array(op.arrays.front().name);
  table_ = place.parameters.weight(name, elements);
  dtable_ = place.parameters.gradient(name, elements);
}

template <class P>
void TableOperation<P>::forward(const PassArguments<P>& c, const BlockOperation<P>*) const {
  kernels::copy<T>(c.handle, flat(c.values.matrix(this->op_.output)), table_);
}

template <class P>
void TableOperation<P>::backward_weight(const PassArguments<P>& c) const {
  kernels::accumulate<Accumulate<T>>(c.handle, dtable_, c.values.gradient_list(this->op_.output));
}

#define TRIREME_INSTANTIATE(P)          \
  template class EmbeddingOperation<P>; \
  template class TableOperation<P>;
TRIREME_INSTANTIATE(Fp32)
TRIREME_INSTANTIATE(Fp64)
TRIREME_INSTANTIATE(MixedBf16)
TRIREME_INSTANTIATE(MixedFp16)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::model
