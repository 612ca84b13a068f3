// Root mean square norms of all queries, and of all keys, of a token.
#include <trireme/kernels/width_norm.hpp>

#include <trireme/base/check.hpp>
#include <trireme/kernels/norm.hpp>
#include <trireme/kernels/packs.hpp>
#include <trireme/kernels/vector_lanes.hpp>
#include <trireme/tensor/expect.hpp>

#include <utility>

namespace trireme::kernels {
namespace {

/// The columns of queries (part 0) and of keys (part 1) on this rank.
template <class T>
struct WidthParts {
  using Acc = Accumulate<T>;

  const T* gains[2];
  std::int64_t first[2];    // column of a row
  std::int64_t columns[2];  // on this rank
  std::int64_t skipped[2];  // columns at the beginning that another rank counts
  Acc share[2];             // 1 / columns on all ranks
  Acc epsilon, offset;

  WidthParts(View1<const T> query, View1<const T> key, const WidthNorm& n)
      : gains{query.data(), key.data()},
        first{0, n.queries},
        columns{n.queries, n.keys},
        skipped{0, n.counted_elsewhere},
        share{Acc(1) / static_cast<Acc>(n.all_queries), Acc(1) / static_cast<Acc>(n.all_keys)},
        epsilon(static_cast<Acc>(n.epsilon)),
        offset(static_cast<Acc>(n.gain_offset)) {}
};

template <class T>
struct WidthSquares : WidthParts<T> {
  using Acc = Accumulate<T>;
  View2<Acc> squares;
  View2<T> raw;
  View2<const T> x;

  template <class Lanes>
  KOKKOS_FUNCTION void operator()(const Lanes& lanes, std::int64_t t, std::int64_t p) const {
    const std::int64_t n = this->columns[p], skip = this->skipped[p];
    const T* from = row_of(x, t) + this->first[p];
    const Acc sum = sum_of<Acc>(
        lanes, n - skip, [](std::int64_t, Acc v) { return v * v; }, from + skip);
    once(lanes, [&]() { squares(p, t) = sum; });
    copy_lanes<Lanes, T>(lanes, n, row_of(raw, t) + this->first[p], from);
  }
};

template <class T>
struct WidthForward : WidthParts<T> {
  using Acc = Accumulate<T>;
  View2<T> x;
  View2<const Acc> inverse_rms;

  template <class Lanes>
  KOKKOS_FUNCTION void operator()(const Lanes& lanes, std::int64_t t, std::int64_t p) const {
    T* row = row_of(x, t) + this->first[p];
    const Acc inverse = inverse_rms(p, t), shift = this->offset;
    map_lanes(
        lanes, this->columns[p], row,
        [&](std::int64_t, Acc v, Acc scale) { return v * inverse * (shift + scale); }, row,
        this->gains[p]);
  }
};

template <class T>
struct WidthFactors : WidthParts<T> {
  using Acc = Accumulate<T>;
  View2<Acc> sums;

  template <class Lanes>
  KOKKOS_FUNCTION void operator()(const Lanes& lanes, std::int64_t p, std::int64_t) const {
    Acc* sum = row_of(sums, p);
    const Acc part = this->share[p], added = this->epsilon;
    map_lanes(
        lanes, extent(sums, 1), sum,
        [&](std::int64_t, Acc square) { return Acc(1) / math::sqrt(square * part + added); }, sum);
  }
};

template <class T>
struct WidthProducts : WidthParts<T> {
  using Acc = Accumulate<T>;
  View2<Acc> products;
  View2<const T> dy, raw;
  View2<const Acc> inverse_rms;

  template <class Lanes>
  KOKKOS_FUNCTION void operator()(const Lanes& lanes, std::int64_t t, std::int64_t p) const {
    const Acc inverse = inverse_rms(p, t), shift = this->offset;
    const Acc sum = sum_of<Acc>(
        lanes, this->columns[p],
        [&](std::int64_t, Acc w, Acc d, Acc v) { return (shift + w) * d * (v * inverse); },
        this->gains[p], row_of(dy, t) + this->first[p], row_of(raw, t) + this->first[p]);
    once(lanes, [&]() { products(p, t) = sum; });
  }
};

template <class T>
struct WidthBackward : WidthParts<T> {
  using Acc = Accumulate<T>;
  View2<T> dx;
  View2<const T> raw;
  View2<const Acc> inverse_rms, products;

  template <class Lanes>
  KOKKOS_FUNCTION void operator()(const Lanes& lanes, std::int64_t t, std::int64_t p) const {
    T* row = row_of(dx, t) + this->first[p];
    const std::int64_t skip = this->skipped[p];
    const Acc inverse = inverse_rms(p, t), shift = this->offset;
    const Acc mean_gx = products(p, t) * this->share[p];
    map_lanes(
        lanes, this->columns[p], row,
        [&](std::int64_t c, Acc w, Acc d, Acc v) {
          const Acc along = c < skip ? Acc(0) : (v * inverse) * mean_gx;
          return inverse * ((shift + w) * d - along);
        },
        this->gains[p], row, row_of(raw, t) + this->first[p]);
  }
};

template <class X, class Raw, class Sums>
void expect_rows(const View2<X>& x, const View2<Raw>& raw, const View2<Sums>& sums,
                 const WidthNorm& n) {
  check(n.queries >= 0 && n.keys >= n.counted_elsewhere && n.counted_elsewhere >= 0 &&
            n.all_queries >= 1 && n.all_keys >= 1,
        "norm of ", n.queries, " of ", n.all_queries, " columns of queries and of ", n.keys, " of ",
        n.all_keys, " columns of keys, of which another rank counts ", n.counted_elsewhere);
  check(extent(x, 1) >= n.columns(), "rows of ", extent(x, 1), " columns, expected at least ",
        n.columns());
  expect_shape(raw, "raw", {extent(x, 0), n.columns()});
  expect_shape(sums, "sums", {2, extent(x, 0)});
}

template <class T>
void expect_gains(View1<T> query, View1<T> key, const WidthNorm& n) {
  expect_shape(query, "gain_query", {n.queries});
  expect_shape(key, "gain_key", {n.keys});
}

template <class T>
View2<T> columns_of(View2<T> x, std::int64_t first, std::int64_t n) {
  return Kokkos::subview(
      x, Kokkos::ALL,
      std::make_pair(static_cast<std::size_t>(first), static_cast<std::size_t>(first + n)));
}

}  // namespace

template <class T>
void width_norm_squares(const Exec& exec, View2<Accumulate<T>> squares, View2<T> raw,
                        View2<const T> x, const WidthNorm& norm) {
  expect_rows(x, raw, squares, norm);
  for_parts("kernels/width_norm_squares", exec, extent(x, 0), 2,
            WidthSquares<T>{{{}, {}, norm}, squares, raw, x});
}

template <class T>
void width_norm_factors(const Exec& exec, View2<Accumulate<T>> inverse_rms, const WidthNorm& norm) {
  expect_shape(inverse_rms, "inverse_rms", {2, extent(inverse_rms, 1)});
  for_parts("kernels/width_norm_factors", exec, extent(inverse_rms, 1) > 0 ? 2 : 0, 1,
            WidthFactors<T>{{{}, {}, norm}, inverse_rms});
}

template <class T>
void width_norm_forward(const Exec& exec, View2<T> x, View2<const Accumulate<T>> inverse_rms,
                        View1<const T> gain_query, View1<const T> gain_key, const WidthNorm& norm) {
  expect_gains(gain_query, gain_key, norm);
  expect_shape(inverse_rms, "inverse_rms", {2, extent(x, 0)});
  for_parts("kernels/width_norm_forward", exec, extent(x, 0), 2,
            WidthForward<T>{{gain_query, gain_key, norm}, x, inverse_rms});
}

template <class T>
void width_norm_products(const Exec& exec, View2<Accumulate<T>> products, View2<const T> dy,
                         View2<const T> raw, View2<const Accumulate<T>> inverse_rms,
                         View1<const T> gain_query, View1<const T> gain_key,
                         const WidthNorm& norm) {
  expect_rows(dy, raw, products, norm);
  expect_gains(gain_query, gain_key, norm);
  expect_shape(inverse_rms, "inverse_rms", {2, extent(dy, 0)});
  for_parts("kernels/width_norm_products", exec, extent(dy, 0), 2,
            WidthProducts<T>{{gain_query, gain_key, norm}, products, dy, raw, inverse_rms});
}

template <class T>
void width_norm_backward_input(const Exec& exec, View2<T> dx, View2<const T> raw,
                               View2<const Accumulate<T>> inverse_rms,
                               View2<const Accumulate<T>> products, View1<const T> gain_query,
                               View1<const T> gain_key, const WidthNorm& norm) {
  expect_rows(dx, raw, products, norm);
  expect_gains(gain_query, gain_key, norm);
  expect_shape(inverse_rms, "inverse_rms", {2, extent(dx, 0)});
  for_parts("kernels/width_norm_backward_input", exec, extent(dx, 0), 2,
            WidthBackward<T>{{gain_query, gain_key, norm}, dx, raw, inverse_rms, products});
}

template <class T>
void width_norm_backward_weight(const Handle& handle, View1<Accumulate<T>> dgain_query,
                                View1<Accumulate<T>> dgain_key, View2<const T> dy,
                                View2<const T> raw, View2<const Accumulate<T>> inverse_rms,
                                const WidthNorm& norm) {
  expect_rows(dy, raw, inverse_rms, norm);
  const auto add = [&](View1<Accumulate<T>> dgain, std::int64_t first, std::int64_t columns,
                       std::int64_t p) {
    const View1<const Accumulate<T>> inverse(row_of(inverse_rms, p), inverse_rms.extent(1));
    rms_norm_backward_weight<T>(handle, dgain, columns_of(dy, first, columns),
                                columns_of(raw, first, columns), inverse);
  };
  add(dgain_query, 0, norm.queries, 0);
  add(dgain_key, norm.queries, norm.keys, 1);
}

#define TRIREME_INSTANTIATE(T)                                                                     \
  template void width_norm_squares<T>(const Exec&, View2<Accumulate<T>>, View2<T>, View2<const T>, \
                                      const WidthNorm&);                                           \
  template void width_norm_factors<T>(const Exec&, View2<Accumulate<T>>, const WidthNorm&);        \
  template void width_norm_forward<T>(const Exec&, View2<T>, View2<const Accumulate<T>>,           \
                                      View1<const T>, View1<const T>, const WidthNorm&);           \
  template void width_norm_products<T>(const Exec&, View2<Accumulate<T>>, View2<const T>,          \
                                       View2<const T>, View2<const Accumulate<T>>, View1<const T>, \
                                       View1<const T>, const WidthNorm&);                          \
  template void width_norm_backward_input<T>(                                                      \
      const Exec&, View2<T>, View2<const T>, View2<const Accumulate<T>>,                           \
      View2<const Accumulate<T>>, View1<const T>, View1<const T>, const WidthNorm&);               \
  template void width_norm_backward_weight<T>(                                                     \
      const Handle&, View1<Accumulate<T>>, View1<Accumulate<T>>, View2<const T>, View2<const T>,   \
      View2<const Accumulate<T>>, const WidthNorm&);
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(Bf16)
TRIREME_INSTANTIATE(Fp16)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
