// Low-rank updates as products with A and B. The backward pass recomputes x Aᵀ, so that layers need
// not keep it.
#include <trireme/model/product_adapter.hpp>

#include <trireme/kernels/elementwise.hpp>
#include <trireme/kernels/matmul.hpp>
#include <trireme/kernels/weight_norm.hpp>
#include <trireme/model/operations.hpp>

#include <algorithm>

namespace trireme::model {

using architecture::AdapterPart;
using kernels::Transpose;

namespace {

/// Columns [first, first + count) of x, with unchanged row stride.
template <class T>
View2<T> columns_from(View2<T> x, std::int64_t first, std::int64_t count) {
  return Kokkos::subview(
      x, Kokkos::ALL,
      std::make_pair(static_cast<std::size_t>(first), static_cast<std::size_t>(first + count)));
}

template <class T>
View2<T> rows_from(View2<T> x, std::int64_t first, std::int64_t count) {
  return x.data() == nullptr ? x : rows_of(x, first, count);
}

}  // namespace

template <class P>
ProductAdapter<P>::ProductAdapter(const architecture::Operation& op, const OperationPlace<P>& place)
    : parameters_(place.parameters),
      axis_(place.axis_of(op.input())),
      source_rows_(place.is_of_source(op.input()) ? place.architecture.model.source_rows() : 0),
      rank_(place.model().adapter.rank),
      rows_(architecture::adapter_rows(op, rank_)),
      factor_(place.model().adapter.factor()),
      split_inputs_(op.cut == architecture::Cut::inputs),
      norms_label_(op.name + ", norms of rows") {
  const Parameters<P>& parameters = place.parameters;
  const BlockPlan& plan = place.plan;
  const std::string prefix = place.array("");
  const auto& layer_tensors = plan.description.tensors;
  const architecture::Columns& columns_in =
      layer_tensors[static_cast<std::size_t>(op.input())].columns;
  const std::int64_t inputs = columns_of(columns_in, plan.sizes);
  all_inputs_ = all_columns_of(columns_in);
  inputs_ = {columns_in.parts[0].unit * first_of(columns_in.parts[0].size, plan.sizes), inputs};
  // site_ is a unique number for each operation of all layers: a layer has `most` numbers, and its
  // last operation has the highest number.
  std::int64_t most = 0;
  for (const architecture::BlockDescription& kind : place.architecture.layer_kinds())
    most = std::max(most, static_cast<std::int64_t>(std::ssize(kind.operations)));
  const auto& operations = plan.description.operations;
  const auto from_end =
      operations.end() - std::ranges::find(operations, op.name, &architecture::Operation::name);
  site_ = static_cast<std::uint32_t>(place.block * most - from_end);
  for (const AdapterPart& part : op.adapter) {
    const std::int64_t first = architecture::first_adapter_row(op, part.a, rank_);
    const std::string a = prefix + op.arrays[part.a].name;
    const bool known =
        std::ranges::any_of(downs_, [&](const Down& down) { return down.first == first; });
    if (!known) {
      const std::int64_t rows = architecture::first_adapter_row(op, part.a + 1, rank_) - first;
      downs_.push_back(
          {parameters.weight(a, rows, inputs), parameters.gradient(a, rows, inputs), first});
    }
    const std::string b = prefix + op.arrays[part.b].name;
    const layout::Slice columns =
        architecture::adapter_columns(plan.description, op, part, plan.sizes);
    const std::int64_t rows = (part.b_block + 1) * columns.extent;
    const auto block = [&](const auto& all) {
      return rows_from(all, part.b_block * columns.extent, columns.extent);
    };
    ups_.push_back({block(parameters.weight(b, rows, rank_)),
                    block(parameters.gradient(b, rows, rank_)), first + part.a_block * rank_,
                    columns});
    if (part.m == 0) continue;
    const std::string m_name = prefix + op.arrays[part.m].name;
    const auto own = [&](const auto& all) {
      return all.data() == nullptr
                 ? all
                 : Kokkos::subview(all, std::make_pair(part.b_block * columns.extent, rows));
    };
    ms_.push_back({own(parameters.weight(m_name, rows)), own(parameters.gradient(m_name, rows)),
                   ups_.size() - 1});
  }
  if (ms_.empty()) return;
  outputs_ = architecture::columns_of(layer_tensors[static_cast<std::size_t>(op.output)].columns,
                                      plan.sizes);
  w_ = parameters.weight(prefix + op.arrays.front().name, outputs_, inputs);
}

template <class P>
void ProductAdapter<P>::take_memory(Arena& arena) {
  if (ms_.empty()) return;
  scales_ = arena.take<G>(outputs_);
  inverses_ = arena.take<G>(outputs_);
}

template <class P>
kernels::Dropout ProductAdapter<P>::mask(const MicroContext& c) const {
  MicroContext of_rows = c;
  if (source_rows_ > 0) of_rows.sequence = source_rows_;
  return of_rows.adapter_site(site_, axis_.context().places(), inputs_, all_inputs_);
}

template <class P>
auto ProductAdapter<P>::dropped(const PassArguments<P>& c, View2<const T> x) const
    -> View2<const T> {
  if (c.context.adapter_dropout == 0) return x;
  const View2<T> kept = matrix(c.scratch.adapter_input, extent(x, 0), extent(x, 1));
  kernels::dropout_forward<T>(c.handle, kept, x, mask(c.context));
  return kept;
}

template <class P>
auto ProductAdapter<P>::down(const PassArguments<P>& c, View2<const T> x) const -> View2<T> {
  const View2<T> u = matrix(c.scratch.adapter_rows, extent(x, 0), rows_);
  for (const Down& d : downs_)
    kernels::matmul<T>(c.handle, columns_from(u, d.first, extent(d.a, 0)), x, d.a, Transpose::no,
                       Transpose::yes, factor_);
  return u;
}

/// du[:, rows of A] = factor · dy[:, part] B. The first part that uses rows of A overwrites their
/// columns of du; later parts add to them.
template <class P>
auto ProductAdapter<P>::up_gradient(const PassArguments<P>& c, View2<const T> dy) const
    -> View2<T> {
  const View2<T> du = matrix(c.scratch.adapter_gradients, extent(dy, 0), rows_);
  for (std::size_t i = 0; i < ups_.size(); ++i) {
    const Up& up = ups_[i];
    const bool adds = std::any_of(ups_.begin(), ups_.begin() + static_cast<std::ptrdiff_t>(i),
                                  [&](const Up& before) { return before.first == up.first; });
    kernels::matmul<T>(c.handle, columns_from(du, up.first, rank_),
                       columns_from(dy, up.columns.offset, up.columns.extent), up.b, Transpose::no,
                       Transpose::no, factor_, adds ? 1 : 0);
  }
  return du;
}

/// y[:, part] += (factor · dropout(x) Aᵀ) Bᵀ
template <class P>
void ProductAdapter<P>::forward(const PassArguments<P>& c, View2<T> y, View2<const T> x) const {
  const View2<T> u = down(c, dropped(c, x));
  for (const Up& up : ups_)
    kernels::matmul<T>(c.handle, columns_from(y, up.columns.offset, up.columns.extent),
                       columns_from(u, up.first, rank_), up.b, Transpose::no, Transpose::yes, 1.0,
                       1.0);
}

/// dx += dropout((factor · dy B) A)
template <class P>
void ProductAdapter<P>::backward_input(const PassArguments<P>& c, View2<T> dx,
                                       View2<const T> dy) const {
  const View2<T> du = up_gradient(c, dy);
  const bool drops = c.context.adapter_dropout > 0;
  const View2<T> to = drops ? matrix(c.scratch.adapter_input, extent(dx, 0), extent(dx, 1)) : dx;
  bool first = drops;
  for (const Down& d : downs_) {
    kernels::matmul<T>(c.handle, to, columns_from(du, d.first, extent(d.a, 0)), d.a, Transpose::no,
                       Transpose::no, 1.0, first ? 0.0 : 1.0);
    first = false;
  }
  if (!drops) return;
  kernels::dropout_backward<T>(c.handle, to, to, mask(c.context));
  kernels::accumulate<T>(c.handle, flat(dx), flat<const T>(to));
}

/// dB += dyᵀ (factor · dropout(x) Aᵀ), dA += (factor · dy B)ᵀ dropout(x)
template <class P>
void ProductAdapter<P>::backward_weight(const PassArguments<P>& c, View2<const T> dy,
                                        View2<const T> x) const {
  const View2<const T> kept = dropped(c, x);
  const View2<T> u = down(c, kept);
  const View2<T> du = up_gradient(c, dy);
  for (const Up& up : ups_)
    kernels::linear_backward_weight<T>(c.handle, up.db, View1<G>(),
                                       columns_from(dy, up.columns.offset, up.columns.extent),
                                       columns_from(u, up.first, rank_));
  for (const Down& d : downs_)
    kernels::linear_backward_weight<T>(c.handle, d.da, View1<G>(),
                                       columns_from(du, d.first, extent(d.a, 0)), kept);
}

/// Sets scales_ and inverses_ from squares[n] = Σ_k (W + factor · B A)[n, k]², computed by blocks
/// of rows that fit into scratch, and summed over the tensor ranks if each rank has a part of k.
template <class P>
void ProductAdapter<P>::find_scales(const PassArguments<P>& c) const {
  if (version_ == parameters_.version()) return;
  version_ = parameters_.version();
  kernels::fill<G>(c.handle, scales_, 1);
  const std::int64_t inputs = extent(w_, 1);
  const std::int64_t most = extent(c.scratch.adapter_product, 0) / inputs;
  for (const Magnitudes& each : ms_) {
    const Up& up = ups_[each.up];
    const auto down = std::ranges::find_if(downs_, [&](const Down& d) {
      return d.first <= up.first && up.first < d.first + extent(d.a, 0);
    });
    const View2<T> a = rows_of(down->a, up.first - down->first, rank_);
    for (std::int64_t done = 0; done < up.columns.extent; done += most) {
      const std::int64_t rows = std::min(most, up.columns.extent - done);
      const std::int64_t first = up.columns.offset + done;
      const View2<T> v = matrix(c.scratch.adapter_product, rows, inputs);
      kernels::copy<T>(c.handle, flat(v), flat<const T>(rows_of(w_, first, rows)));
      kernels::matmul<T>(c.handle, v, rows_of(up.b, done, rows), a, Transpose::no, Transpose::no,
                         factor_, 1.0);
      kernels::row_squares<T>(c.handle, part(inverses_, {first, rows}), v);
    }
  }
  if (split_inputs_)
    axis_.sum(c.handle, matrix(inverses_, 1, extent(inverses_, 0)), norms_label_.c_str());
  for (const Magnitudes& each : ms_) {
    const layout::Slice& columns = ups_[each.up].columns;
    const View1<G> inverses = part(inverses_, columns);
    kernels::row_scales<T>(c.handle, part(scales_, columns), inverses, inverses, each.m);
  }
}

template <class P>
auto ProductAdapter<P>::product_scratch(const PassArguments<P>& c, View2<const T> y) const
    -> View2<T> {
  return matrix(c.scratch.adapter_product, extent(y, 0), extent(y, 1));
}

template <class P>
void ProductAdapter<P>::scale(const PassArguments<P>& c, View2<T> y, View1<const T> bias) const {
  find_scales(c);
  kernels::scale_columns<T>(c.handle, y, y, scales_, bias);
}

template <class P>
auto ProductAdapter<P>::unscaled_gradient(const PassArguments<P>& c, View2<const T> dy) const
    -> View2<T> {
  const View2<T> dz = product_scratch(c, dy);
  kernels::scale_columns<T>(c.handle, dz, dy, scales_);
  return dz;
}

/// dm += Σ_t dy[t] z[t] / ‖W + factor · B A‖ with z = x Wᵀ + factor · dropout(x) Aᵀ Bᵀ. With split
/// inputs, z and dm are partial sums on each rank.
template <class P>
void ProductAdapter<P>::magnitude_gradient(const PassArguments<P>& c, View2<const T> dy,
                                           View2<const T> x,
                                           const std::function<void(View2<T>)>& product) const {
  const View2<T> z = product_scratch(c, dy);
  product(z);
  forward(c, z, x);
  kernels::magnitude_terms<T>(c.handle, z, dy, inverses_);
  for (const Magnitudes& each : ms_) {
    if (each.dm.data() == nullptr) continue;
    const layout::Slice& columns = ups_[each.up].columns;
    kernels::linear_backward_bias<T>(c.handle, each.dm,
                                     columns_from(z, columns.offset, columns.extent));
  }
}

template class ProductAdapter<Fp32>;
template class ProductAdapter<Fp64>;
template class ProductAdapter<MixedBf16>;
template class ProductAdapter<MixedFp16>;

}  // namespace trireme::model
