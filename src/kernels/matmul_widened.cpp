// Products of two-byte and fp8 values: blocks are widened to fp32 for the fp32 back end.
#include <trireme/kernels/matmul_product.hpp>

#include <trireme/kernels/lanes.hpp>

#include <algorithm>

namespace trireme::kernels {
namespace {

View2<float> cut(View1<float> from, std::int64_t rows, std::int64_t columns) {
  return View2<float>(from.data(), static_cast<std::size_t>(rows),
                      static_cast<std::size_t>(columns));
}

/// Copies the block [rows, columns] at (row, column) of `from` to `to` as fp32; returns the copy.
template <class T>
View2<const float> widen(const Exec& exec, View1<float> to, View2<const T> from, std::int64_t row,
                         std::int64_t column, std::int64_t rows, std::int64_t columns) {
  const View2<float> wide = cut(to, rows, columns);
  const auto stride = static_cast<std::int64_t>(from.stride(0));
  const T* first = from.data() + row * stride + column;
  for_rows(
      "kernels/widen", exec, rows, KOKKOS_LAMBDA(const Team& team, std::int64_t r) {
        const T* in = first + r * stride;
        float* out = row_of(wide, r);
        for_lanes(team, columns, [&](std::int64_t i) { out[i] = static_cast<float>(in[i]); });
      });
  return wide;
}

/// Factor of a product: alpha, times the inverse scales of both operands if they are fp8.
struct Factor {
  float alpha = 1;
  const float* of_a = nullptr;  ///< in device memory; null for two-byte operands
  const float* of_b = nullptr;

  KOKKOS_FUNCTION float value() const { return of_a == nullptr ? alpha : alpha * *of_a * *of_b; }
};

/// c = factor sum + beta c for the block of c at (row, column), rounded to the type of c.
template <class C>
void finish(const Exec& exec, View2<C> c, std::int64_t row, std::int64_t column,
            View2<const float> sum, Factor factor, float beta) {
  const std::int64_t columns = extent(sum, 1);
  const auto stride = static_cast<std::int64_t>(c.stride(0));
  C* first = c.data() + row * stride + column;
  for_rows(
      "kernels/narrow", exec, extent(sum, 0), KOKKOS_LAMBDA(const Team& team, std::int64_t r) {
        const float alpha = factor.value();
        const float* in = row_of(sum, r);
        C* out = first + r * stride;
        if (beta == 0) {
          for_lanes(team, columns, [&](std::int64_t i) { out[i] = static_cast<C>(alpha * in[i]); });
        } else {
          for_lanes(team, columns, [&](std::int64_t i) {
            out[i] = static_cast<C>(alpha * in[i] + beta * static_cast<float>(out[i]));
          });
        }
      });
}

/// The block [rows, columns] of op(x) at (row, column) as fp32, stored like x: transposed if `t` is
/// yes.
template <class T>
View2<const float> widen_operand(const Exec& exec, View1<float> to, View2<const T> x, Transpose t,
                                 std::int64_t row, std::int64_t column, std::int64_t rows,
                                 std::int64_t columns) {
  if (t == Transpose::yes) return widen<T>(exec, to, x, column, row, columns, rows);
  return widen<T>(exec, to, x, row, column, rows, columns);
}

template <class A, class B, class C>
void multiply(const Handle& handle, View2<C> c, View2<const A> a, View2<const B> b, Transpose ta,
              Transpose tb, const Factor& factor, float beta) {
  const WidenedOperands& work = handle.widened_operands();
  const std::int64_t rows = extent(c, 0);
  const std::int64_t columns = extent(c, 1);
  const std::int64_t depth = extent(a, ta == Transpose::yes ? 0 : 1);
  for (std::int64_t j = 0; j < columns; j += widened_block) {
    const std::int64_t n = std::min(widened_block, columns - j);
    for (std::int64_t i = 0; i < rows; i += widened_block) {
      const std::int64_t m = std::min(widened_block, rows - i);
      const View2<float> sum = cut(work.sum, m, n);
      for (std::int64_t k = 0; k == 0 || k < depth; k += widened_block) {
        const std::int64_t d = std::min(widened_block, depth - k);
        matmul<float>(handle, sum, widen_operand<A>(handle, work.a, a, ta, i, k, m, d),
                      widen_operand<B>(handle, work.b, b, tb, k, j, d, n), ta, tb, 1.0,
                      k == 0 ? 0.0 : 1.0);
      }
      finish<C>(handle, c, i, j, sum, factor, beta);
    }
  }
}

}  // namespace

template <class T, class C>
void matmul_widened(const Handle& handle, View2<C> c, View2<const T> a, View2<const T> b,
                    Transpose ta, Transpose tb, double alpha, double beta) {
  multiply<T, T, C>(handle, c, a, b, ta, tb, {static_cast<float>(alpha)}, static_cast<float>(beta));
}

template <class A, class B, class C>
void widened_fp8_product(const Handle& handle, View2<C> c, View2<const A> a, View2<const B> b,
                         const float* of_a, const float* of_b, double beta) {
  multiply<A, B, C>(handle, c, a, b, Transpose::no, Transpose::yes, {1, of_a, of_b},
                    static_cast<float>(beta));
}

#define TRIREME_INSTANTIATE(A, B, C)                                                  \
  template void widened_fp8_product<A, B, C>(const Handle&, View2<C>, View2<const A>, \
                                             View2<const B>, const float*, const float*, double)
TRIREME_INSTANTIATE(E4M3, E4M3, Bf16);
TRIREME_INSTANTIATE(E5M2, E4M3, Bf16);
TRIREME_INSTANTIATE(E5M2, E4M3, float);
#undef TRIREME_INSTANTIATE

#define TRIREME_INSTANTIATE(T, C)                                                             \
  template void matmul_widened<T, C>(const Handle&, View2<C>, View2<const T>, View2<const T>, \
                                     Transpose, Transpose, double, double)
TRIREME_INSTANTIATE(Bf16, Bf16);
TRIREME_INSTANTIATE(Bf16, float);
TRIREME_INSTANTIATE(Fp16, Fp16);
TRIREME_INSTANTIATE(Fp16, float);
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
