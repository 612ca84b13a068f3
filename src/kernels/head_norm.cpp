// Root mean square norms of the heads of queries and keys, and the gradients of their gains.
#include <trireme/kernels/head_norm.hpp>

#include <trireme/base/check.hpp>
#include <trireme/kernels/column_slices.hpp>
#include <trireme/kernels/packs.hpp>
#include <trireme/kernels/vector_lanes.hpp>
#include <trireme/tensor/expect.hpp>

#include <algorithm>

namespace trireme::kernels {
namespace {

/// Arrays and sizes of both passes. `keeps`: whether the forward pass stores raw and inverse_rms.
template <class T, class Raw, class Inverse>
struct HeadNormRows {
  using Acc = Accumulate<T>;

  View2<T> rows;  // [T, N]
  View2<Raw> raw;
  View2<Inverse> inverse_rms;
  View1<const T> gain_query, gain_key;
  std::int64_t heads, size;
  Acc epsilon, offset;
  bool keeps;

  HeadNormRows(View2<T> x_, View2<Raw> raw_, View2<Inverse> inverse_, View1<const T> query,
               View1<const T> key, const HeadNorm& norm, bool keeps_)
      : rows(x_),
        raw(raw_),
        inverse_rms(inverse_),
        gain_query(query),
        gain_key(key),
        heads(norm.heads),
        size(norm.head_size),
        epsilon(static_cast<Acc>(norm.epsilon)),
        offset(static_cast<Acc>(norm.gain_offset)),
        keeps(keeps_) {}

  KOKKOS_FORCEINLINE_FUNCTION const T* gain(std::int64_t h) const {
    return h < heads ? gain_query.data() : gain_key.data();
  }
};

template <class T>
struct HeadNormForward : HeadNormRows<T, T, Accumulate<T>> {
  using HeadNormRows<T, T, Accumulate<T>>::HeadNormRows;
  using Acc = Accumulate<T>;

  template <class Lanes>
  KOKKOS_FUNCTION void operator()(const Lanes& lanes, std::int64_t t, std::int64_t h) const {
    const std::int64_t n = this->size;
    T* x = row_of(this->rows, t) + h * n;
    const T* gain = this->gain(h);
    const Acc square = sum_of<Acc>(
                           lanes, n, [](std::int64_t, Acc v) { return v * v; }, x) *
                       (Acc(1) / static_cast<Acc>(n));
    const Acc inverse = Acc(1) / math::sqrt(square + this->epsilon);
    if (this->keeps) {
      copy_lanes<Lanes, T>(lanes, n, row_of(this->raw, t) + h * n, x);
      once(lanes, [&]() { this->inverse_rms(t, h) = inverse; });
    }
    const Acc shift = this->offset;
    map_lanes(
        lanes, n, x, [&](std::int64_t, Acc v, Acc scale) { return v * inverse * (shift + scale); },
        x, gain);
  }
};

template <class T>
struct HeadNormBackward : HeadNormRows<T, const T, const Accumulate<T>> {
  using HeadNormRows<T, const T, const Accumulate<T>>::HeadNormRows;
  using Acc = Accumulate<T>;

  template <class Lanes>
  KOKKOS_FUNCTION void operator()(const Lanes& lanes, std::int64_t t, std::int64_t h) const {
    const std::int64_t n = this->size;
    T* dx = row_of(this->rows, t) + h * n;
    const T* x = row_of(this->raw, t) + h * n;
    const T* gain = this->gain(h);
    const Acc inverse = this->inverse_rms(t, h);
    const Acc shift = this->offset;
    const Acc mean_gx =
        sum_of<Acc>(
            lanes, n,
            [&](std::int64_t, Acc w, Acc d, Acc v) { return (shift + w) * d * (v * inverse); },
            gain, dx, x) *
        (Acc(1) / static_cast<Acc>(n));
    map_lanes(
        lanes, n, dx,
        [&](std::int64_t, Acc w, Acc d, Acc v) {
          const Acc normalised = v * inverse;
          return inverse * ((shift + w) * d - normalised * mean_gx);
        },
        gain, dx, x);
  }
};

/// Terms of the gradient of a gain: `count` heads of each token, beginning with head `first`.
template <class T>
struct HeadSums {
  using Acc = Accumulate<T>;

  View2<const T> dy, raw;
  View2<const Acc> inverse_rms;
  std::int64_t first, count, size;

  KOKKOS_FORCEINLINE_FUNCTION Acc inverse(std::int64_t t, std::int64_t h) const {
    return inverse_rms(t, first + h);
  }

  /// Devices: v[0] = term of row r and column d; row r is head first + (r mod count) of token ⌊r /
  /// count⌋.
  KOKKOS_FUNCTION void operator()(std::int64_t r, std::int64_t d, Acc* v) const {
    const std::int64_t t = r / count, h = r % count, column = (first + h) * size + d;
    v[0] = static_cast<Acc>(row_of(dy, t)[column]) *
           (static_cast<Acc>(row_of(raw, t)[column]) * inverse(t, h));
  }
};

/// Host: each thread has a block of columns. Groups of tokens are summed before they are added to
/// the total, so that rounding errors grow more slowly.
template <class T>
void add_by_blocks(const Exec& exec, View1<Accumulate<T>> dgain, const HeadSums<T>& sums) {
  using Acc = Accumulate<T>;
  constexpr std::int64_t widest = 256, line = 32;
  const std::int64_t tokens = extent(sums.dy, 0);
  const std::int64_t each = std::max<std::int64_t>(1, 64 / sums.count);
  const std::int64_t share = (sums.size + exec.concurrency() - 1) / exec.concurrency();
  const std::int64_t width = std::min((share + line - 1) / line * line, widest);
  for_rows(
      "kernels/head_norm_backward_weight", exec, (sums.size + width - 1) / width,
      KOKKOS_LAMBDA(const Team& team, std::int64_t block) {
        Acc part[widest];
        const std::int64_t first = block * width;
        const std::int64_t n = sums.size - first < width ? sums.size - first : width;
        Acc* total = dgain.data() + first;
        for (std::int64_t begin = 0; begin < tokens; begin += each) {
          const std::int64_t end = begin + each < tokens ? begin + each : tokens;
          for_lanes(team, n, [&](std::int64_t d) { part[d] = 0; });
          for (std::int64_t t = begin; t < end; ++t)
            for (std::int64_t h = 0; h < sums.count; ++h) {
              const std::int64_t column = (sums.first + h) * sums.size + first;
              const T* dy = row_of(sums.dy, t) + column;
              const T* raw = row_of(sums.raw, t) + column;
              const Acc inverse = sums.inverse(t, h);
              for_lanes(team, n, [&](std::int64_t d) {
                part[d] += static_cast<Acc>(dy[d]) * (static_cast<Acc>(raw[d]) * inverse);
              });
            }
          for_lanes(team, n, [&](std::int64_t d) { total[d] += part[d]; });
        }
      });
}

template <class T>
void add_head_sums(const Handle& handle, View1<Accumulate<T>> dgain, const HeadSums<T>& sums) {
  const std::int64_t rows = extent(sums.dy, 0) * sums.count;
  if (rows == 0) return;
  if constexpr (exec_on_host)
    add_by_blocks<T>(handle, dgain, sums);
  else
    sum_by_slices<Accumulate<T>, 1>(
        "kernels/head_norm_backward_weight", "kernels/head_norm_backward_weight_slices", handle,
        {{dgain.data()}}, rows, sums.size, sums, handle.partial_sums<Accumulate<T>>());
}

template <class X, class Raw, class Inverse>
void expect_rows(const View2<X>& x, const View2<Raw>& raw, const View2<Inverse>& inverse_rms,
                 const HeadNorm& norm, bool keeps) {
  check(norm.heads >= 0 && norm.key_value_heads >= 0 && norm.head_size >= 1, "norms of ",
        norm.heads, " heads of queries and ", norm.key_value_heads, " of keys of size ",
        norm.head_size, ", expected 0 or more heads of size 1 or more");
  check(extent(x, 1) >= norm.columns(), "rows of ", extent(x, 1), " columns, expected at least ",
        norm.normed(), " heads of ", norm.head_size);
  if (!keeps) return;
  expect_shape(raw, "raw", {extent(x, 0), norm.columns()});
  expect_shape(inverse_rms, "inverse_rms", {extent(x, 0), norm.normed()});
}

}  // namespace

template <class T>
void head_norm_forward(const Exec& exec, View2<T> qkv, View2<T> raw,
                       View2<Accumulate<T>> inverse_rms, View1<const T> gain_query,
                       View1<const T> gain_key, const HeadNorm& norm) {
  const bool keeps = raw.size() + inverse_rms.size() > 0;
  expect_rows(qkv, raw, inverse_rms, norm, keeps);
  expect_shape(gain_query, "gain_query", {norm.head_size});
  expect_shape(gain_key, "gain_key", {norm.head_size});
  for_parts("kernels/head_norm_forward", exec, extent(qkv, 0), norm.normed(),
            HeadNormForward<T>(qkv, raw, inverse_rms, gain_query, gain_key, norm, keeps));
}

template <class T>
void head_norm_backward_input(const Exec& exec, View2<T> dqkv, View2<const T> raw,
                              View2<const Accumulate<T>> inverse_rms, View1<const T> gain_query,
                              View1<const T> gain_key, const HeadNorm& norm) {
  expect_rows(dqkv, raw, inverse_rms, norm, true);
  expect_shape(gain_query, "gain_query", {norm.head_size});
  expect_shape(gain_key, "gain_key", {norm.head_size});
  for_parts("kernels/head_norm_backward_input", exec, extent(dqkv, 0), norm.normed(),
            HeadNormBackward<T>(dqkv, raw, inverse_rms, gain_query, gain_key, norm, true));
}

template <class T>
void head_norm_backward_weight(const Handle& handle, View1<Accumulate<T>> dgain_query,
                               View1<Accumulate<T>> dgain_key, View2<const T> dqkv,
                               View2<const T> raw, View2<const Accumulate<T>> inverse_rms,
                               const HeadNorm& norm) {
  expect_rows(dqkv, raw, inverse_rms, norm, true);
  expect_shape(dgain_query, "dgain_query", {norm.head_size});
  expect_shape(dgain_key, "dgain_key", {norm.head_size});
  const auto sums = [&](std::int64_t first, std::int64_t count) {
    return HeadSums<T>{dqkv, raw, inverse_rms, first, count, norm.head_size};
  };
  add_head_sums<T>(handle, dgain_query, sums(0, norm.heads));
  add_head_sums<T>(handle, dgain_key, sums(norm.heads, norm.key_value_heads));
}

#define TRIREME_INSTANTIATE(T)                                                                     \
  template void head_norm_forward<T>(const Exec&, View2<T>, View2<T>, View2<Accumulate<T>>,        \
                                     View1<const T>, View1<const T>, const HeadNorm&);             \
  template void head_norm_backward_input<T>(const Exec&, View2<T>, View2<const T>,                 \
                                            View2<const Accumulate<T>>, View1<const T>,            \
                                            View1<const T>, const HeadNorm&);                      \
  template void head_norm_backward_weight<T>(const Handle&, View1<Accumulate<T>>,                  \
                                             View1<Accumulate<T>>, View2<const T>, View2<const T>, \
                                             View2<const Accumulate<T>>, const HeadNorm&);
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(Bf16)
TRIREME_INSTANTIATE(Fp16)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
