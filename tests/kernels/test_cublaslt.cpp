#include <trireme/base/check.hpp>
#include <trireme/kernels/cublaslt.hpp>
#include <trireme/kernels/elementwise.hpp>
#include <trireme/kernels/matmul.hpp>
#include <trireme/tensor/fence.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <tuple>

#include "kernels/cases.hpp"
#include "reference/elementwise.hpp"
#include "reference/matmul.hpp"
#include "support/device_array.hpp"

/// Products by cuBLASLt, in all four types: on a device, and on hosts with a stand-in for the
/// library (tests/kernels/cublaslt_stand_in). Elsewhere skipped.
namespace trireme::kernels {
namespace {

using testing::DeviceArray;
using testing::uniform;

/// Largest relative error of a number rounded to T, and of one operation in the type of sums.
template <class T>
constexpr double rounding = std::numeric_limits<T>::epsilon() / 2.0;
template <>
constexpr double rounding<Bf16> = 1.0 / 256;
template <>
constexpr double rounding<Fp16> = 1.0 / 2048;
template <class T>
constexpr double sum_rounding = rounding<Accumulate<T>>;

/// As in test_matmul.cpp: sum of k products of numbers within [-1, 1], in any order.
template <class T>
double sum_error(std::int64_t depth, double alpha = 1, double beta = 0) {
  const auto k = static_cast<double>(depth);
  return (k + 3) * sum_rounding<T> * (std::abs(alpha) * k + std::abs(beta)) * 1.01;
}

/// Error of such a sum stored as C; fp16 also loses digits near 0.
template <class T, class C>
double stored_error(double value, std::int64_t depth, double alpha = 1, double beta = 0) {
  const double sum = sum_error<T>(depth, alpha, beta);
  if constexpr (is_narrow<C>) return sum + rounding<C> * (std::abs(value) + sum) + 3e-8;
  return sum;
}

template <class T>
class Cublaslt : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!matmul_backend_available(dtype_of<T>, MatmulBackend::cublaslt))
      GTEST_SKIP() << "this build has no cuBLASLt";
    handle_.emplace(KernelChoice().set_products(dtype_of<T>, MatmulBackend::cublaslt));
  }
  std::optional<Handle> handle_;
};
TYPED_TEST_SUITE(Cublaslt, AllTypes);

template <class C, class Bound>
void expect_within_bounds(const std::vector<C>& found, const std::vector<double>& expected,
                          const Bound& bound, const std::string& what) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    ASSERT_NEAR(static_cast<double>(found[i]), expected[i], bound(i)) << what << ", element " << i;
}

template <class T>
std::vector<T> zeros(std::int64_t n) {
  return std::vector<T>(static_cast<std::size_t>(n), T(0));
}

TYPED_TEST(Cublaslt, ProductsMatchTheDefinition) {
  using T = TypeParam;
  using Shape = std::tuple<std::int64_t, std::int64_t, std::int64_t>;
  for (const auto& [m, n, k] : {Shape{1, 1, 1},
                                {1, 13, 64},
                                {13, 1, 7},
                                {64, 40, 1},
                                {29, 31, 37},
                                {64, 64, 64},
                                {8, 16, 300},
                                {65, 3, 129}})
    for (const bool ta : {false, true})
      for (const bool tb : {false, true})
        for (const auto& [alpha, beta] : {std::pair{1.0, 0.0}, {1.0, 1.0}, {-0.5, 0.25}}) {
          const auto a = uniform<T>(m * k, 1), b = uniform<T>(k * n, 2);
          const auto c = beta == 0 ? std::vector<T>(static_cast<std::size_t>(m * n),
                                                    T(std::numeric_limits<float>::quiet_NaN()))
                                   : uniform<T>(m * n, 3);
          const DeviceArray<T> da(a), db(b), dc(c);
          matmul<T>(*this->handle_, dc.matrix(m, n), ta ? da.matrix(k, m) : da.matrix(m, k),
                    tb ? db.matrix(n, k) : db.matrix(k, n), ta ? Transpose::yes : Transpose::no,
                    tb ? Transpose::yes : Transpose::no, alpha, beta);
          const auto expected = reference::matmul(c, a, b, m, n, k, ta, tb, alpha, beta);
          expect_within_bounds(
              dc.values(), expected,
              [&, k = k, alpha = alpha, beta = beta](std::size_t i) {
                return stored_error<T, T>(expected[i], k, alpha, beta);
              },
              text(m, " × ", n, " × ", k, ta ? ", ta" : "", tb ? ", tb" : "", ", beta ", beta));
        }
}

/// The three passes of a layer with a bias, and logits with unrounded sums.
TYPED_TEST(Cublaslt, LinearLayersMatchTheDefinition) {
  using T = TypeParam;
  using Sum = Accumulate<T>;
  using Shape = std::tuple<std::int64_t, std::int64_t, std::int64_t>;
  for (const auto& [t, m, n] : {Shape{16, 32, 24}, {33, 17, 5}, {300, 8, 72}, {5, 264, 8}}) {
    const auto x = uniform<T>(t * m, 1), w = uniform<T>(n * m, 2), bias = uniform<T>(n, 3),
               dy = uniform<T>(t * n, 4);
    const auto dw = uniform<Sum>(n * m, 5);
    const DeviceArray<T> ax(x), aw(w), abias(bias), ady(dy), ay(t * n), adx(t * m);
    const DeviceArray<Sum> wide(t * n), adw(dw), adbias(zeros<Sum>(n));
    linear_forward<T>(*this->handle_, ay.matrix(t, n), ax.matrix(t, m), aw.matrix(n, m),
                      abias.flat());
    linear_forward_wide<T>(*this->handle_, wide.matrix(t, n), ax.matrix(t, m), aw.matrix(n, m),
                           abias.flat());
    linear_backward_input<T>(*this->handle_, adx.matrix(t, m), ady.matrix(t, n), aw.matrix(n, m));
    linear_backward_weight<T>(*this->handle_, adw.matrix(n, m), adbias.flat(), ady.matrix(t, n),
                              ax.matrix(t, m));
    auto y = reference::matmul(zeros<T>(t * n), x, w, t, n, m, false, true, 1.0, 0.0);
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += static_cast<double>(bias[i % bias.size()]);
    const auto dx = reference::matmul(zeros<T>(t * m), dy, w, t, m, n, false, false, 1.0, 0.0);
    auto weight = reference::matmul(zeros<T>(n * m), dy, x, n, m, t, true, false, 1.0, 0.0);
    for (std::size_t i = 0; i < weight.size(); ++i) weight[i] += static_cast<double>(dw[i]);
    const std::string what = text(t, " × ", m, " × ", n, ", ");
    expect_within_bounds(
        ay.values(), y, [&, m = m](std::size_t i) { return stored_error<T, T>(y[i], m, 1, 1); },
        what + "y");
    expect_within_bounds(
        wide.values(), y, [m = m](std::size_t) { return sum_error<T>(m, 1, 1); }, what + "logits");
    expect_within_bounds(
        adx.values(), dx, [&, n = n](std::size_t i) { return stored_error<T, T>(dx[i], n); },
        what + "dx");
    expect_within_bounds(
        adw.values(), weight, [t = t](std::size_t) { return sum_error<T>(t, 1, 1); }, what + "dw");
  }
}

/// The tiled kernel, through fp32 for two-byte numbers, is independent of cuBLASLt's kernels: each
/// may be off by the bound.
TYPED_TEST(Cublaslt, LargeProductsMatchTheTiledKernel) {
  using T = TypeParam;
  using Sum = Accumulate<T>;
  const std::int64_t t = 384, m = 520, n = 264;
  const DeviceArray<T> x(uniform<T>(t * m, 1)), w(uniform<T>(n * m, 2)), dy(uniform<T>(t * n, 3));
  const auto products = [&](const Handle& handle) {
    const DeviceArray<T> y(t * n), dx(t * m);
    const DeviceArray<Sum> dw(n * m, Sum(0.25));
    linear_forward<T>(handle, y.matrix(t, n), x.matrix(t, m), w.matrix(n, m), View1<const T>());
    linear_backward_input<T>(handle, dx.matrix(t, m), dy.matrix(t, n), w.matrix(n, m));
    linear_backward_weight<T>(handle, dw.matrix(n, m), View1<Sum>(), dy.matrix(t, n),
                              x.matrix(t, m));
    const auto wide = [](const auto& values) {
      return std::vector<double>(values.begin(), values.end());
    };
    return std::tuple{wide(y.values()), wide(dx.values()), wide(dw.values())};
  };
  const auto [y, dx, dw] = products(*this->handle_);
  KernelChoice tiled;
  tiled.set_products(is_narrow<T> ? DType::fp32 : dtype_of<T>, MatmulBackend::tiled);
  if (is_narrow<T>) tiled.set_products(dtype_of<T>, MatmulBackend::widened);
  const auto [tiled_y, tiled_dx, tiled_dw] = products(Handle(tiled));
  const auto twice = [](const std::vector<double>& values, std::int64_t depth) {
    return [&values, depth](std::size_t i) { return 2 * stored_error<T, T>(values[i], depth); };
  };
  expect_within_bounds(y, tiled_y, twice(tiled_y, m), "y");
  expect_within_bounds(dx, tiled_dx, twice(tiled_dx, n), "dx");
  expect_within_bounds(
      dw, tiled_dw, [&](std::size_t) { return 2 * sum_error<T>(t, 1, 1); }, "dw");
}

/// A device's own tanh has a relative error of up to 2^-11 (CUDA's tanh.approx). It changes gelu by
/// |h| / 2 of that, and for |h| < 2 its slope by less than 3 of it. fp32 and fp64 are not fused,
/// and are well within the bound.
TYPED_TEST(Cublaslt, LinearLayersWithGeluMatchTheDefinition) {
  using T = TypeParam;
  constexpr double device_tanh = 1.0 / 2048;
  using Shape = std::tuple<std::int64_t, std::int64_t, std::int64_t>;
  for (const auto& [t, m, n] : {Shape{16, 32, 24}, {33, 17, 8}, {33, 17, 5}, {300, 8, 72}})
    for (const bool has_bias : {true, false}) {
      const auto x = uniform<T>(t * m, 1), w = uniform<T>(n * m, 2), dy = uniform<T>(t * m, 4);
      const auto bias = has_bias ? uniform<T>(n, 3) : zeros<T>(n);
      const auto before = uniform<T>(t * n, 5);  // within [-1, 1]
      const DeviceArray<T> ax(x), aw(w), ady(dy), ah(t * n), ag(t * n), adh(t * n), abefore(before);
      const DeviceArray<T> abias(bias), across(uniform<T>(m * n, 6));
      const auto given = has_bias ? View1<const T>(abias.flat()) : View1<const T>();
      linear_gelu_forward<T>(*this->handle_, ag.matrix(t, n), ah.matrix(t, n), ax.matrix(t, m),
                             aw.matrix(n, m), given, Gelu::tanh);
      linear_gelu_backward_input<T>(*this->handle_, adh.matrix(t, n), ady.matrix(t, m),
                                    across.matrix(m, n), abefore.matrix(t, n), Gelu::tanh);
      auto h = reference::matmul(zeros<T>(t * n), x, w, t, n, m, false, true, 1.0, 0.0);
      std::vector<double> g;
      for (std::size_t i = 0; i < h.size(); ++i) {
        h[i] += static_cast<double>(bias[i % bias.size()]);
        g.push_back(reference::gelu(h[i]));
      }
      auto dh =
          reference::matmul(zeros<T>(t * n), dy, across.values(), t, n, m, false, false, 1.0, 0.0);
      const auto product = dh;
      for (std::size_t i = 0; i < dh.size(); ++i)
        dh[i] *= reference::gelu_slope(static_cast<double>(before[i]));
      const std::string what = text(t, " × ", m, " × ", n, has_bias ? ", " : " without bias, ");
      expect_within_bounds(
          ah.values(), h, [&, m = m](std::size_t i) { return stored_error<T, T>(h[i], m, 1, 1); },
          what + "h");
      // |gelu'| <= 1.13; h may have been rounded first, and dy w.
      expect_within_bounds(
          ag.values(), g,
          [&, m = m](std::size_t i) {
            return 1.13 * stored_error<T, T>(h[i], m, 1, 1) + device_tanh * std::abs(h[i]) +
                   rounding<T> * std::abs(g[i]);
          },
          what + "g");
      expect_within_bounds(
          adh.values(), dh,
          [&, m = m](std::size_t i) {
            return 1.13 * stored_error<T, T>(product[i], m) +
                   3 * device_tanh * std::abs(product[i]) + rounding<T> * std::abs(dh[i]);
          },
          what + "dh");
    }
}

/// The stored choice for a kind of product does not include its arrays.
TYPED_TEST(Cublaslt, CachedChoicesDoNotShareArrays) {
  using T = TypeParam;
  const std::int64_t t = 24, m = 40, n = 56;
  const DeviceArray<T> x(uniform<T>(t * m, 1)), w(uniform<T>(n * m, 2)), dy(uniform<T>(t * m, 3));
  struct Layer {
    DeviceArray<T> bias, h, g, dh;
  };
  const auto layer = [&](unsigned seed) {
    return Layer{DeviceArray<T>(uniform<T>(n, seed)), DeviceArray<T>(t * n), DeviceArray<T>(t * n),
                 DeviceArray<T>(t * n)};
  };
  const auto pass = [&](const Layer& l) {
    linear_gelu_forward<T>(*this->handle_, l.g.matrix(t, n), l.h.matrix(t, n), x.matrix(t, m),
                           w.matrix(n, m), l.bias.flat(), Gelu::tanh);
    linear_gelu_backward_input<T>(*this->handle_, l.dh.matrix(t, n), dy.matrix(t, m),
                                  w.matrix(m, n), l.h.matrix(t, n), Gelu::tanh);
    std::vector<double> all;
    for (const auto* array : {&l.h, &l.g, &l.dh})
      for (const T value : array->values()) all.push_back(static_cast<double>(value));
    return all;
  };
  const Layer first = layer(4), second = layer(5), third = layer(4);
  const auto of_first = pass(first);
  EXPECT_NE(pass(second), of_first);
  EXPECT_EQ(pass(third), of_first);
  const auto again = first.h.values();
  for (std::size_t i = 0; i < again.size(); ++i)
    ASSERT_EQ(static_cast<double>(again[i]), of_first[i]) << "another call wrote here";
}

TYPED_TEST(Cublaslt, ResultsDoNotDependOnRunOrAddress) {
  using T = TypeParam;
  const std::int64_t m = 48, n = 40, k = 520;
  const std::int64_t line = 64 / static_cast<std::int64_t>(sizeof(T));  // arenas' alignment
  const auto a = uniform<T>(m * k, 1), b = uniform<T>(n * k, 2);
  std::vector<T> first;
  for (const std::int64_t shift : {std::int64_t{0}, std::int64_t{0}, line, 3 * line}) {
    auto moved = std::vector<T>(static_cast<std::size_t>(shift), T(7));
    moved.insert(moved.end(), a.begin(), a.end());
    const DeviceArray<T> da(moved), db(b), dc(m * n);
    matmul<T>(
        *this->handle_, dc.matrix(m, n),
        View2<const T>(da.data() + shift, static_cast<std::size_t>(m), static_cast<std::size_t>(k)),
        db.matrix(n, k), Transpose::no, Transpose::yes);
    if (first.empty()) first = dc.values();
    const auto found = dc.values();
    for (std::size_t i = 0; i < first.size(); ++i)
      ASSERT_EQ(static_cast<double>(found[i]), static_cast<double>(first[i]));
  }
}

/// Only 11 bits of each operand are used; nothing else changes.
TEST(CublasltTf32, RoundsTheOperandsOfFp32) {
  if (!has_cublaslt()) GTEST_SKIP() << "this build has no cuBLASLt";
  KernelChoice choice;
  choice.set_products(DType::fp32, MatmulBackend::cublaslt);
  const std::int64_t n = 64;
  const auto a = uniform<float>(n * n, 1), b = uniform<float>(n * n, 2);
  const DeviceArray<float> da(a), db(b), exact(n * n), rounded(n * n);
  const auto multiply = [&](const DeviceArray<float>& c) {
    matmul<float>(Handle(choice), c.matrix(n, n), da.matrix(n, n), db.matrix(n, n), Transpose::no,
                  Transpose::no);
  };
  multiply(exact);
  choice.tf32 = true;
  EXPECT_NE(choice.products_description(DType::fp32).find("tf32"), std::string::npos);
  multiply(rounded);
  const auto found = rounded.values();
  const auto expected = reference::matmul(a, a, b, n, n, n, false, false, 1.0, 0.0);
  // Each factor is off by 2^-10 at most, if hardware truncates instead of rounding.
  const double bound = 2.01 / 1024 * static_cast<double>(n) + sum_error<float>(n);
  for (std::size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i], bound);
  EXPECT_NE(found, exact.values());
}

}  // namespace
}  // namespace trireme::kernels
