// Operations of heads: picked rows, matrix products, tanh, and the loss of sentence pairs.
#include <trireme/model/head_operations.hpp>

#include <trireme/architecture/objective.hpp>
#include <trireme/kernels/cross_entropy.hpp>
#include <trireme/kernels/elementwise.hpp>
#include <trireme/kernels/embedding.hpp>

#include <algorithm>

namespace trireme::model {

using architecture::Rows;

namespace {

template <class P>
const architecture::Tensor& tensor_of(const OperationPlace<P>& place, int tensor) {
  return place.plan.description.tensors[static_cast<std::size_t>(tensor)];
}

template <class P>
std::size_t field_of(const OperationPlace<P>& place, int tensor) {
  return architecture::objective_of(place.model()).field(tensor_of(place, tensor).name);
}

/// Number of the rows `mine` that are before row `end`.
std::int64_t among(const layout::Slice& mine, std::int64_t end) {
  return std::clamp<std::int64_t>(end - mine.offset, 0, mine.extent);
}

}  // namespace

template <class P>
std::int64_t HeadRows::counted_targets(const PassArguments<P>& c) const {
  const architecture::RankSizes& n = c.values.sizes();
  if (!c.context.evaluates()) return n.targets;
  const std::int64_t samples = c.context.samples;
  return masked_ == 0 ? samples * n.sequence : among(masked(n), samples * masked_);
}

template <class P>
std::int64_t HeadRows::counted_pairs(const PassArguments<P>& c) const {
  const architecture::RankSizes& n = c.values.sizes();
  if (!c.context.evaluates()) return n.pairs;
  return among(pairs(n), n.micro * masked_ + c.context.samples);
}

// ---- picked rows

template <class P>
PickOperation<P>::PickOperation(const architecture::Operation& op, const OperationPlace<P>& place)
    : BlockOperation<P>(op),
      axis_(place.axis),
      rows_(place.model(), place.axis),
      field_(field_of(place, op.inputs[1])),
      has_pairs_(place.model().has_sentence_head()) {}

template <class P>
void PickOperation<P>::forward(const PassArguments<P>& c, const BlockOperation<P>*) const {
  const View2<T> y = c.values.matrix(this->op_.output);
  kernels::pick_rows<T>(c.handle, y, c.values.matrix(this->op_.input()), c.context.fields[field_],
                        axis_.rows().offset);
  if (axis_.cuts_tokens()) axis_.sum(c.handle, y, "the head's rows, forward");
  axis_.context().sum(c.handle, y, "the head's rows, forward");
}

template <class P>
void PickOperation<P>::share_gradients(const PassArguments<P>& c, View2<T> dy) const {
  if (axis_.context().size() == 1) return;
  std::int64_t begin = 0;
  const auto clear_before = [&](const layout::Slice& mine) {
    kernels::fill(c.handle, flat(part(dy, {begin, mine.offset - begin})), 0.0);
    begin = mine.end();
  };
  clear_before(rows_.masked(c.values.sizes()));
  if (has_pairs_) clear_before(rows_.pairs(c.values.sizes()));
  clear_before({extent(dy, 0), 0});
  axis_.context().sum(c.handle, dy, "the head's rows, backward");
}

template <class P>
void PickOperation<P>::backward_input(const PassArguments<P>& c, const BlockOperation<P>*,
                                      bool) const {
  const View2<T> dy = c.values.gradient(this->op_.output);
  const View2<T> dx = c.values.gradient(this->op_.input());
  share_gradients(c, dy);
  kernels::fill(c.handle, flat(dx), 0.0);
  kernels::place_rows<T>(c.handle, dx, dy, c.context.fields[field_], axis_.rows().offset);
}

// ---- products

template <class P>
HeadLinearOperation<P>::HeadLinearOperation(const architecture::Operation& op,
                                            const OperationPlace<P>& place)
    : BlockOperation<P>(op),
      axis_(place.axis),
      rows_(place.model(), place.axis),
      linear_(place.parameters, place.array(op.arrays.front().name),
              op.bias().empty() ? "" : place.array(op.bias()), op.arrays.front().shape[0],
              op.arrays.front().shape[1]),
      reads_picked_(tensor_of(place, op.input()).rows == Rows::head_rows),
      of_pairs_(tensor_of(place, op.output).rows == Rows::pairs),
      is_wide_(tensor_of(place, op.output).numbers == architecture::Numbers::accumulate) {}

template <class P>
auto HeadLinearOperation<P>::own_rows(const PassArguments<P>& c, View2<T> x) const -> View2<T> {
  if (!reads_picked_) return x;
  const architecture::RankSizes& n = c.values.sizes();
  return part(x, of_pairs_ ? rows_.pairs(n) : rows_.masked(n));
}

template <class P>
void HeadLinearOperation<P>::forward(const PassArguments<P>& c,
                                     const BlockOperation<P>* fused) const {
  const View2<T> x = own_rows(c, c.values.matrix(this->op_.input()));
  if (x.extent(0) == 0) return;
  if (is_wide_)
    return kernels::linear_forward_wide<T>(c.handle, c.values.sums(this->op_.output), x, linear_.w,
                                           linear_.b);
  const View2<T> y = c.values.matrix(this->op_.output);
  if (fused == nullptr) return linear_.forward(c.handle, y, x);
  const auto& gelu = static_cast<const ActivationOperation<P>&>(*fused);
  kernels::linear_gelu_forward<T>(c.handle, gelu.output(c), y, x, linear_.w, linear_.b,
                                  gelu.form());
}

template <class P>
void HeadLinearOperation<P>::backward_input(const PassArguments<P>& c, const BlockOperation<P>*,
                                            bool) const {
  const View2<T> dx = own_rows(c, c.values.gradient(this->op_.input()));
  if (dx.extent(0) == 0) return;
  linear_.backward_input(c.handle, dx, c.values.gradient(this->op_.output));
}

template <class P>
void HeadLinearOperation<P>::backward_weight(const PassArguments<P>& c) const {
  const View2<T> x = own_rows(c, c.values.matrix(this->op_.input()));
  const View2<T> dy = c.values.gradient(this->op_.output);
  if (x.extent(0) == 0) return;
  const layout::Slice mine = axis_.own_of_shared(extent(dy, 0));
  linear_.backward_weight(c.handle, part(dy, mine), part(x, mine));
}

template <class P>
void TanhOperation<P>::forward(const PassArguments<P>& c, const BlockOperation<P>*) const {
  const View2<T> y = c.values.matrix(this->op_.output);
  if (y.extent(0) > 0) kernels::tanh_forward<T>(c.handle, y, y);
}

template <class P>
void TanhOperation<P>::backward_input(const PassArguments<P>& c, const BlockOperation<P>*,
                                      bool) const {
  const View2<T> dy = c.values.gradient(this->op_.output);
  if (dy.extent(0) > 0)
    kernels::tanh_backward<T>(c.handle, dy, dy, c.values.matrix(this->op_.output));
}

// ---- losses

template <class P>
CrossEntropyOperation<P>::CrossEntropyOperation(const architecture::Operation& op,
                                                const OperationPlace<P>& place)
    : BlockOperation<P>(op),
      rows_(place.model(), place.axis),
      field_(field_of(place, op.inputs[1])),
      weight_(op.cut == architecture::Cut::none ? static_cast<double>(place.model().targets())
              : op.term > 0                     ? place.model().module_weight()
                                                : 1) {}

/// Adds the losses; in training, also dlogits = w (softmax(logits) − one-hot(target)).
template <class P>
void CrossEntropyOperation<P>::forward(const PassArguments<P>& c, const BlockOperation<P>*) const {
  const View2<Accumulate<T>> logits = c.values.sums(this->op_.input());
  if (logits.extent(0) == 0) return;
  kernels::cross_entropy_statistics<Accumulate<T>>(c.handle, statistics(c), logits, targets(c), 0);
  const View3<const double> one_part(statistics(c).data(), 1, logits.extent(0), 3);
  kernels::cross_entropy_merge(c.handle, losses(c), merged(c), one_part);
  kernels::sum_ordered(c.handle, sum(c), part(losses(c), 0, rows_.counted_pairs(c)));
  if (!c.context.evaluates())
    kernels::cross_entropy_gradient<T>(c.handle, c.values.gradient(this->op_.input()), logits,
                                       merged(c), targets(c), 0, c.context.token_weight * weight_,
                                       c.context.loss_scale);
}

#define TRIREME_INSTANTIATE(P)                                                       \
  template std::int64_t HeadRows::counted_targets<P>(const PassArguments<P>&) const; \
  template std::int64_t HeadRows::counted_pairs<P>(const PassArguments<P>&) const;   \
  template class PickOperation<P>;                                                   \
  template class HeadLinearOperation<P>;                                             \
  template class TanhOperation<P>;                                                   \
  template class CrossEntropyOperation<P>;
TRIREME_INSTANTIATE(Fp32)
TRIREME_INSTANTIATE(Fp64)
TRIREME_INSTANTIATE(MixedBf16)
TRIREME_INSTANTIATE(MixedFp16)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::model
