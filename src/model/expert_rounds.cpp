// Experts in rounds of a bounded number of rows, and the rows that travel to them and back.
#include <trireme/model/expert_rounds.hpp>

#include <trireme/kernels/elementwise.hpp>
#include <trireme/kernels/matmul.hpp>

#include <algorithm>

namespace trireme::model {
namespace {

/// Indices in Operation::inputs and Operation::scratch of `dispatch` and `combine`.
namespace copied {
constexpr std::size_t sent = 1, bounds = 2;
constexpr std::size_t sent_rows = 0, sums = 1;
}  // namespace copied

template <class P>
View1<const std::int32_t> list(const PassArguments<P>& c, int tensor) {
  return flat(c.values.template numbers<std::int32_t>(tensor));
}

template <class P>
void read_copies(const PassArguments<P>& c, int bounds, ExpertCopies& copies) {
  copies.read(c.handle, flat(c.values.template numbers<std::int32_t>(bounds)));
}

/// to [T', D] = the rows of this rank's experts, from rows [R, D] of all replicas.
template <class P>
void send_out(const PassArguments<P>& c, const TensorAxis& axis, const architecture::Operation& op,
              ExpertCopies& copies, View2<typename P::Compute> to, View2<typename P::Compute> rows,
              const char* what) {
  using T = typename P::Compute;
  const View2<T> all = axis.gather(c.handle, c.scratch.all(axis, rows), rows, what);
  if (!axis.experts().divides()) return kernels::copy<T>(c.handle, flat(to), flat<const T>(all));
  read_copies(c, op.inputs[copied::bounds], copies);
  copies.send<T>(c.handle, to, c.values.matrix(op.scratch[copied::sent_rows]), all,
                 list(c, op.inputs[copied::sent]), what);
}

/// to [R, D] = this rank's rows of the sum of `rows` [T', D] over the replicas and tensor ranks.
template <class P>
void bring_together(const PassArguments<P>& c, const TensorAxis& axis,
                    const architecture::Operation& op, ExpertCopies& copies,
                    View2<typename P::Compute> to, View2<typename P::Compute> rows,
                    const char* what) {
  using T = typename P::Compute;
  const View2<T> partial = axis.partial(c.scratch.all(axis, to), to);
  if (axis.experts().divides()) {
    const View2<Accumulate<T>> sums = c.values.sums(op.scratch[copied::sums]);
    kernels::fill(c.handle, flat(sums), 0.0);
    read_copies(c, op.inputs[copied::bounds], copies);
    copies.bring_back<T>(c.handle, sums, c.values.matrix(op.scratch[copied::sent_rows]),
                         rows_of(rows, 0, copies.received()), list(c, op.inputs[copied::sent]),
                         what);
    kernels::round_sums<T>(c.handle, partial, sums);
  } else {
    kernels::copy<T>(c.handle, flat(partial), flat<const T>(rows));
  }
  axis.reduce(c.handle, to, c.scratch.all(axis, to), what);
}

}  // namespace

template <class P>
void DispatchOperation<P>::forward(const PassArguments<P>& c, const BlockOperation<P>*) const {
  send_out(c, axis_, this->op_, copies_, c.values.matrix(this->op_.output),
           c.values.matrix(this->op_.input()), "experts, input, forward");
}

template <class P>
void DispatchOperation<P>::backward_input(const PassArguments<P>& c, const BlockOperation<P>*,
                                          bool) const {
  bring_together(c, axis_, this->op_, copies_, c.values.gradient(this->op_.input()),
                 c.values.gradient(this->op_.output), "experts, input, backward");
}

template <class P>
void CombineOperation<P>::forward(const PassArguments<P>& c, const BlockOperation<P>*) const {
  bring_together(c, axis_, this->op_, copies_, c.values.matrix(this->op_.output),
                 c.values.matrix(this->op_.input()), "experts, output, forward");
}

template <class P>
void CombineOperation<P>::backward_input(const PassArguments<P>& c, const BlockOperation<P>*,
                                         bool) const {
  send_out(c, axis_, this->op_, copies_, c.values.gradient(this->op_.input()),
           axis_.own_part(c.values.gradient(this->op_.output)), "experts, output, backward");
}

// ---- rounds

namespace {

/// Indices in Operation::inputs and Operation::scratch of `expert_rounds`.
struct Input {
  static constexpr std::size_t routes = 1, order = 2, bounds = 3, copy_bounds = 4;
};
struct Work {
  static constexpr std::size_t rows = 0, h = 1, g = 2, dh = 3, dg = 4, sums = 5;
};

/// The product of all experts of a rank with the operation's matrix number `number`. `output`,
/// `input`: tensors with its columns.
template <class P>
Linear<P> product_of(const architecture::Operation& op, const OperationPlace<P>& place,
                     std::size_t number, int output, int input) {
  const std::size_t each = op.arrays.size() / 2;  // a matrix, and perhaps a bias
  const std::int64_t outputs = columns_of(output, place);
  const std::int64_t inputs = columns_of(input, place);
  return {place.parameters, place.array(op.arrays[number * each].name),
          each > 1 ? place.array(op.arrays[number * each + 1].name) : "",
          matrices_of(place.plan.description, op, place.plan.sizes) * outputs, inputs};
}

/// The product of expert `expert` of `experts` experts.
template <class P>
Linear<P> of_expert(const Linear<P>& all, std::int64_t expert, std::int64_t experts) {
  const auto own = [&](const auto& view) {
    const std::int64_t outputs = extent(view, 0) / experts;
    return view.data() == nullptr ? view : part(view, {expert * outputs, outputs});
  };
  Linear<P> one = all;
  one.w = own(all.w);
  one.b = own(all.b);
  one.dw = own(all.dw);
  one.db = own(all.db);
  return one;
}

}  // namespace

template <class P>
ExpertRoundsOperation<P>::ExpertRoundsOperation(const architecture::Operation& op,
                                                const OperationPlace<P>& place)
    : BlockOperation<P>(op),
      axis_(place.axis),
      up_(product_of(op, place, 0, op.scratch[Work::h], op.input())),
      down_(product_of(op, place, 1, op.output, op.scratch[Work::g])),
      adds_bias_(adds_bias(place)),
      function_(place.model()),
      active_(place.model().experts.active),
      routed_(matrices_of(place.plan.description, op, place.plan.sizes),
              rows_of(architecture::rows_of_experts(architecture::Rows::routed, place.model()),
                      place.plan.sizes)),
      copies_(place.axis.experts()) {}

template <class P>
template <class Use>
void ExpertRoundsOperation<P>::visit_rounds(const PassArguments<P>& c, Use&& use) const {
  const auto& v = c.values;
  const std::int64_t all = routed_.read(
      c.handle, flat(v.template numbers<std::int32_t>(this->op_.inputs[Input::bounds])));
  const std::int64_t most = extent(v.matrix(this->op_.scratch[Work::rows]), 0);
  for (std::int64_t first = 0; first < all; first += most) {
    const layout::Slice rows{first, std::min(most, all - first)};
    const auto inner = [&](std::size_t work) {
      return rows_of(v.matrix(this->op_.scratch[work]), 0, rows.extent);
    };
    use(Round{rows, part(list(c, this->op_.inputs[Input::order]), rows), inner(Work::h),
              inner(Work::g), inner(Work::dh), inner(Work::dg)});
  }
}

template <class P>
template <class Use>
void ExpertRoundsOperation<P>::visit(const PassArguments<P>& c, const Round& round,
                                     Use&& use) const {
  const View2<T> work = c.values.matrix(this->op_.scratch[Work::rows]);
  for (std::int64_t e = 0; e < routed_.experts(); ++e) {
    const layout::Slice of = routed_.rows(e);
    const std::int64_t first = std::max(of.offset, round.rows.offset);
    const std::int64_t end = std::min(of.end(), round.rows.end());
    if (end <= first) continue;
    const layout::Slice rows{first - round.rows.offset, end - first};
    use(Expert{e, rows, part(round.order, rows), rows_of(work, 0, rows.extent)});
  }
}

template <class P>
template <class View>
View ExpertRoundsOperation<P>::of_tokens(const PassArguments<P>& c, View all) const {
  if (!axis_.experts().divides()) return all;
  read_copies(c, this->op_.inputs[Input::copy_bounds], copies_);
  return rows_of(all, 0, copies_.received());
}

template <class P>
void ExpertRoundsOperation<P>::compute_inner(const PassArguments<P>& c, const Round& round,
                                             View2<const T> x) const {
  visit(c, round, [&](const Expert& e) {
    kernels::pick_routed<T>(c.handle, e.work, x, e.order, active_);
    of_expert(up_, e.number, routed_.experts()).forward(c.handle, part(round.h, e.rows), e.work);
  });
  function_.forward(c.handle, round.g, round.h);
  kernels::weigh_routed<T>(c.handle, round.g, c.values.sums(this->op_.inputs[Input::routes]),
                           round.order);
}

template <class P>
void ExpertRoundsOperation<P>::forward(const PassArguments<P>& c, const BlockOperation<P>*) const {
  const auto& v = c.values;
  const View2<T> x = v.matrix(this->op_.input());
  const View2<T> z = of_tokens(c, v.matrix(this->op_.output));
  const View2<Accumulate<T>> sums = rows_of(v.sums(this->op_.scratch[Work::sums]), 0, extent(z, 0));
  kernels::fill(c.handle, flat(sums), 0.0);
  visit_rounds(c, [&](const Round& round) {
    compute_inner(c, round, x);
    visit(c, round, [&](const Expert& e) {
      const Linear<P> down = of_expert(down_, e.number, routed_.experts());
      down.forward(c.handle, e.work, part(round.g, e.rows), {}, false);
      if (weighs_bias() && adds_bias_)
        kernels::add_weighed_bias<T>(c.handle, e.work, down.b,
                                     v.sums(this->op_.inputs[Input::routes]), e.order);
      kernels::add_routed<T>(c.handle, sums, e.work, e.order, active_);
    });
  });
  kernels::round_sums<T>(c.handle, z, sums);
}

template <class P>
void ExpertRoundsOperation<P>::go_back_through_down(const PassArguments<P>& c, const Round& round,
                                                    View2<const T> dz,
                                                    View2<Accumulate<T>> of_weights) const {
  visit(c, round, [&](const Expert& e) {
    const Linear<P> down = of_expert(down_, e.number, routed_.experts());
    kernels::pick_routed<T>(c.handle, e.work, dz, e.order, active_);
    down.backward_input(c.handle, part(round.dg, e.rows), e.work);
    if (down.dw.data() != nullptr)
      down.backward_weight_alone(c.handle, e.work, part(round.g, e.rows));
    if (!weighs_bias() || !adds_bias_) return;
    kernels::dot_bias<T>(c.handle, of_weights, e.work, down.b, e.order);
    kernels::weigh_routed<T>(c.handle, e.work, c.values.sums(this->op_.inputs[Input::routes]),
                             e.order);
    down.backward_bias(c.handle, e.work);
  });
}

/// As ExpertActivationOperation, the gradient of a weight is ⟨dg, activation(h)⟩.
template <class P>
void ExpertRoundsOperation<P>::backward_input(const PassArguments<P>& c, const BlockOperation<P>*,
                                              bool) const {
  const auto& v = c.values;
  const View2<T> x = v.matrix(this->op_.input());
  const View2<T> dz = v.gradient(this->op_.output);
  const View2<T> dx = of_tokens(c, v.gradient(this->op_.input()));
  const View2<Accumulate<T>> routes = v.sums(this->op_.inputs[Input::routes]);
  const View2<Accumulate<T>> of_weights = v.gradient_sums(this->op_.inputs[Input::routes]);
  const View2<Accumulate<T>> sums =
      rows_of(v.sums(this->op_.scratch[Work::sums]), 0, extent(dx, 0));
  kernels::fill(c.handle, flat(of_weights), 0.0);
  kernels::fill(c.handle, flat(sums), 0.0);
  visit_rounds(c, [&](const Round& round) {
    compute_inner(c, round, x);
    go_back_through_down(c, round, dz, of_weights);
    const View2<T> activated(round.dh.data(), round.dg.extent(0), round.dg.extent(1));
    function_.forward(c.handle, activated, round.h);
    kernels::dot_routed<T>(c.handle, of_weights, round.dg, activated, round.order);
    function_.backward(c.handle, round.dh, round.dg, round.h);
    kernels::weigh_routed<T>(c.handle, round.dh, routes, round.order);
    visit(c, round, [&](const Expert& e) {
      const Linear<P> up = of_expert(up_, e.number, routed_.experts());
      const View2<T> dh = part(round.dh, e.rows);
      kernels::pick_routed<T>(c.handle, e.work, x, e.order, active_);
      if (up.dw.data() != nullptr) up.backward_weight_alone(c.handle, dh, e.work);
      up.backward_bias(c.handle, dh);
      up.backward_input(c.handle, e.work, dh);
      kernels::add_routed<T>(c.handle, sums, e.work, e.order, active_);
    });
  });
  kernels::round_sums<T>(c.handle, dx, sums);
}

#define TRIREME_INSTANTIATE(P)         \
  template class DispatchOperation<P>; \
  template class CombineOperation<P>;  \
  template class ExpertRoundsOperation<P>;
TRIREME_INSTANTIATE(Fp32)
TRIREME_INSTANTIATE(Fp64)
TRIREME_INSTANTIATE(MixedBf16)
TRIREME_INSTANTIATE(MixedFp16)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::model
