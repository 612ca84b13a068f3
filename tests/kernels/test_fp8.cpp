#include <trireme/kernels/fp8.hpp>

#include "reference/matmul.hpp"
#include "support/device_array.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <tuple>

/// Products of tensors that are rounded to fp8 with a scale each. On hosts they are computed in
/// fp32, on devices and with the stand-in by cuBLASLt.
namespace trireme::kernels {
namespace {

using testing::DeviceArray;
using testing::uniform;

constexpr double fp32_rounding = std::numeric_limits<float>::epsilon() / 2;
constexpr double bf16_rounding = 1.0 / 256;

/// A scale 2^exponent with its reciprocal, at a multiple of 16 bytes, and a maximum, as the model
/// holds them.
class Scale {
 public:
  explicit Scale(int exponent, float maximum = 0)
      : numbers_(std::vector<float>{power_of_two(-exponent), power_of_two(exponent), maximum}) {}
  Fp8Scale get(bool notes = true) const {
    return {numbers_.data() + 1, numbers_.data(), notes ? numbers_.data() + 2 : nullptr};
  }
  float maximum() const { return numbers_.values()[2]; }

 private:
  DeviceArray<float> numbers_;
};

template <class F>
std::vector<std::uint8_t> bits_of(const DeviceArray<F>& codes) {
  std::vector<std::uint8_t> bits;
  for (const F code : codes.values()) bits.push_back(code.bits);
  return bits;
}

/// What quantization means: the values that the codes stand for, divided by the scale.
template <class F>
std::vector<double> rounded(const std::vector<Bf16>& x, int exponent) {
  std::vector<double> values;
  for (const Bf16 value : x)
    values.push_back(std::ldexp(static_cast<double>(static_cast<float>(
                                    F(static_cast<float>(value) * power_of_two(exponent)))),
                                -exponent));
  return values;
}

template <class F>
class Fp8Quantization : public ::testing::Test {};
using Fp8Types = ::testing::Types<E4M3, E5M2>;
TYPED_TEST_SUITE(Fp8Quantization, Fp8Types);

/// Every bf16 number, among them NaNs and infinities: a kernel has the bits of the host's
/// conversion, whatever instruction the device has for it.
TYPED_TEST(Fp8Quantization, MatchesTheHostConversionBitForBit) {
  using F = TypeParam;
  std::vector<Bf16> all(1 << 16);
  for (std::size_t i = 0; i < all.size(); ++i) all[i].bits = static_cast<std::uint16_t>(i);
  const Exec exec;
  for (const int exponent : {0, 5, -7}) {
    std::vector<std::uint8_t> expected;
    for (const Bf16 x : all)
      expected.push_back(F(static_cast<float>(x) * power_of_two(exponent)).bits);
    const DeviceArray<Bf16> x(all);
    const DeviceArray<F> codes(std::vector<F>(all.size(), F(0)));
    const Scale scale(exponent);
    fp8_quantize<F>(exec, codes.matrix(256, 256), x.matrix(256, 256), scale.get());
    EXPECT_EQ(bits_of(codes), expected);
    EXPECT_EQ(scale.maximum(), std::numeric_limits<float>::infinity());
  }
}

TYPED_TEST(Fp8Quantization, TransposesAndRecordsTheMaximum) {
  using F = TypeParam;
  using Shape = std::pair<std::int64_t, std::int64_t>;
  const Exec exec;
  for (const auto& [rows, columns] : {Shape{16, 16}, {64, 64}, {48, 208}, {208, 16}, {144, 80}}) {
    auto values = uniform<Bf16>(rows * columns, 3);
    values[static_cast<std::size_t>(rows * columns / 3)] = Bf16(-5.0F);
    const DeviceArray<Bf16> x(values);
    const auto make = [&, n = rows * columns] {
      return DeviceArray<F>(std::vector<F>(static_cast<std::size_t>(n), F(1)));
    };
    const DeviceArray<F> codes = make(), transposed = make();
    const Scale found(6), kept(6, 7.0F), none(6, 0.5F);
    fp8_quantize<F>(exec, codes.matrix(rows, columns), x.matrix(rows, columns), found.get());
    EXPECT_EQ(found.maximum(), 5);
    fp8_quantize<F>(exec, codes.matrix(rows, columns), x.matrix(rows, columns), kept.get());
    EXPECT_EQ(kept.maximum(), 7) << "a maximum is only raised";
    fp8_quantize<F>(exec, codes.matrix(rows, columns), x.matrix(rows, columns), none.get(false));
    fp8_quantize_transposed<F>(exec, transposed.matrix(columns, rows), x.matrix(rows, columns),
                               none.get());
    EXPECT_EQ(none.maximum(), 0.5F);
    const auto a = bits_of(codes), b = bits_of(transposed);
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < columns; ++c)
        ASSERT_EQ(a[static_cast<std::size_t>(r * columns + c)],
                  b[static_cast<std::size_t>(c * rows + r)])
            << r << ", " << c;
  }
}

/// NaNs do not hide a maximum: fp32's comparison ignores them.
TYPED_TEST(Fp8Quantization, IgnoresNansInTheMaximum) {
  std::vector<Bf16> values(256, Bf16(0.25F));
  values[3] = values[255] = Bf16(std::numeric_limits<float>::quiet_NaN());
  values[17] = Bf16(3.0F);
  const DeviceArray<Bf16> x(values);
  const DeviceArray<TypeParam> codes(std::vector<TypeParam>(256, TypeParam(0)));
  const Scale scale(0);
  fp8_quantize<TypeParam>(Exec{}, codes.matrix(16, 16), x.matrix(16, 16), scale.get());
  EXPECT_EQ(scale.maximum(), 3);
}

TEST(Fp8Linear, RejectsSizesThatAreNotMultiplesOf16) {
  const DeviceArray<Bf16> x(16 * 24);
  const DeviceArray<E4M3> codes(std::vector<E4M3>(16 * 24, E4M3(0)));
  const Scale scale(0);
  EXPECT_THROW(fp8_quantize<E4M3>(Exec{}, codes.matrix(16, 24), x.matrix(16, 24), scale.get()),
               Error);
}

/// Inputs near 1, weights near 1/64 and gradients near 2^-20, each with a scale that fits: the
/// three passes are the products of the rounded numbers, summed in fp32.
class Fp8LinearPasses : public ::testing::Test {
 protected:
  static constexpr int x_scale = 8, w_scale = 14, dy_scale = 35;

  static KernelChoice products() {
    KernelChoice choice;
    if (matmul_backend_available(DType::bf16, MatmulBackend::cublaslt))
      choice.set_products(DType::bf16, MatmulBackend::cublaslt);
    return choice;
  }
  template <class T>
  static std::vector<T> scaled(std::vector<T> values, int exponent) {
    for (T& value : values) value = T(std::ldexp(static_cast<float>(value), exponent));
    return values;
  }
  /// |sum of k products|, in any order, is off by this share of Σ |a b|.
  static double sum_error(std::int64_t depth) {
    return (static_cast<double>(depth) + 3) * fp32_rounding * 1.01;
  }
  static std::vector<double> magnitudes(std::vector<double> values) {
    for (double& value : values) value = std::abs(value);
    return values;
  }
  static std::vector<double> product(const std::vector<double>& a, const std::vector<double>& b,
                                     std::int64_t m, std::int64_t n, std::int64_t k, bool ta,
                                     bool tb) {
    return reference::matmul(std::vector<double>(static_cast<std::size_t>(m * n)), a, b, m, n, k,
                             ta, tb, 1.0, 0.0);
  }
  template <class C>
  static void expect_product(const std::vector<C>& found, const std::vector<double>& added,
                             const std::vector<double>& a, const std::vector<double>& b,
                             std::int64_t m, std::int64_t n, std::int64_t k, bool ta, bool tb,
                             const char* what) {
    const auto expected = product(a, b, m, n, k, ta, tb);
    const auto sizes = product(magnitudes(a), magnitudes(b), m, n, k, ta, tb);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const double old = added.empty() ? 0 : added[i % added.size()];
      const double sum = sum_error(k) * (sizes[i] + std::abs(old));
      const double stored = is_narrow<C> ? bf16_rounding : 0;
      ASSERT_NEAR(static_cast<double>(found[i]), expected[i] + old,
                  sum + stored * (std::abs(expected[i] + old) + sum))
          << what << ' ' << i;
    }
  }
};

TEST_F(Fp8LinearPasses, MultiplyRoundedOperands) {
  const Handle handle(products());
  using Shape = std::tuple<std::int64_t, std::int64_t, std::int64_t>;
  for (const auto& [t, m, n] : {Shape{16, 16, 16}, {32, 48, 80}, {64, 272, 32}, {1040, 16, 48}}) {
    const auto x = uniform<Bf16>(t * m, 1);
    const auto w = scaled(uniform<Bf16>(n * m, 2), -6);
    const auto dy = scaled(uniform<Bf16>(t * n, 3), -20);
    const auto bias = uniform<Bf16>(n, 4);
    const auto before = scaled(uniform<float>(n * m, 5), -18);
    const DeviceArray<Bf16> ax(x), aw(w), ady(dy), abias(bias), y(t * n), dx(t * m);
    const DeviceArray<float> dw(before), dbias(n);
    const DeviceArray<std::byte> codes(std::vector<std::byte>(
        static_cast<std::size_t>(std::max({fp8_operand_bytes(t * m) + fp8_operand_bytes(n * m),
                                           fp8_operand_bytes(t * n) + fp8_operand_bytes(n * m),
                                           fp8_operand_bytes(t * n) + fp8_operand_bytes(t * m)}))));
    const Scale sx(x_scale), sw(w_scale), sdy(dy_scale);
    const Fp8Linear fp8{sx.get(), sw.get(), sdy.get(), codes.data()};
    fp8_linear_forward(handle, y.matrix(t, n), ax.matrix(t, m), aw.matrix(n, m), abias.flat(), fp8);
    fp8_linear_backward_input(handle, dx.matrix(t, m), ady.matrix(t, n), aw.matrix(n, m), fp8);
    fp8_linear_backward_weight(handle, dw.matrix(n, m), dbias.flat(), ady.matrix(t, n),
                               ax.matrix(t, m), fp8);
    const auto rx = rounded<E4M3>(x, x_scale);
    const auto rw = rounded<E4M3>(w, w_scale);
    const auto rdy = rounded<E5M2>(dy, dy_scale);
    const std::vector<double> wide_bias(bias.begin(), bias.end());
    const std::vector<double> wide_before(before.begin(), before.end());
    expect_product(y.values(), wide_bias, rx, rw, t, n, m, false, true, "y");
    expect_product(dx.values(), {}, rdy, rw, t, m, n, false, false, "dx");
    expect_product(dw.values(), wide_before, rdy, rx, n, m, t, true, false, "dw");
    double largest = 0;
    for (const Bf16 value : dy) largest = std::max(largest, std::abs(static_cast<double>(value)));
    EXPECT_EQ(sdy.maximum(), largest);
    EXPECT_NE(y.values().front(), Bf16(0.0F));
  }
}

/// With scales of powers of two that leave nothing out, only the exponents move.
TEST_F(Fp8LinearPasses, DoNotDependOnScalesForNormalValues) {
  const Handle handle(products());
  const std::int64_t t = 64, m = 64, n = 48;
  auto x = uniform<Bf16>(t * m, 1);
  for (Bf16& value : x) value = Bf16(static_cast<float>(E4M3(value < 0 ? value - 1 : value + 1)));
  const DeviceArray<Bf16> ax(x), aw(std::vector<Bf16>(x.begin(), x.begin() + n * m)), y(t * n);
  const DeviceArray<std::byte> codes(std::vector<std::byte>(
      static_cast<std::size_t>(fp8_operand_bytes(t * m) + fp8_operand_bytes(n * m))));
  const auto pass = [&](int of_x, int of_w) {
    const Scale sx(of_x), sw(of_w);
    fp8_linear_forward(handle, y.matrix(t, n), ax.matrix(t, m), aw.matrix(n, m),
                       View1<const Bf16>(), {sx.get(), sw.get(), {}, codes.data()});
    std::vector<float> values;
    for (const Bf16 value : y.values()) values.push_back(value);
    return values;
  };
  EXPECT_EQ(pass(0, 0), pass(7, -3));
}

TEST(Fp8Scales, FollowFromTheHistory) {
  const Exec exec;
  constexpr std::int64_t tensors = 6;
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const DeviceArray<float> history(3 * tensors, 0.0F), scales(tensors), inverses(4 * tensors);
  DeviceArray<float> maxima(tensors);
  const auto scales_after = [&](std::int64_t row, std::vector<float> found,
                                Fp8Algorithm algorithm) {
    maxima.assign(found);
    record_fp8_maxima(exec, history.matrix(3, tensors), row, maxima.flat());
    find_fp8_scales(exec, scales.flat(), inverses.matrix(tensors, 4), history.matrix(3, tensors),
                    {algorithm, row, 20});
    const auto values = scales.values(), reciprocals = inverses.values();
    for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i] * reciprocals[4 * i], 1);
    EXPECT_EQ(maxima.values(), std::vector<float>(tensors, 0.0F));
    return values;
  };
  using enum Fp8Algorithm;
  // Nothing is known of tensors 3 to 5; what is not finite is not recorded.
  EXPECT_EQ(scales_after(0, {448, 14, 57344, 0, infinity, std::nanf("")}, max),
            (std::vector<float>{1, 32, 1, 1, 1, 0x1p20F}));
  EXPECT_EQ(scales_after(1, {1, 28, 28, 0, 449, 7}, max),
            (std::vector<float>{1, 16, 1, 1, 0.5F, 0x1p13F}));
  EXPECT_EQ(scales_after(2, {2, 7, infinity, 0, 0, 14}, most_recent),
            (std::vector<float>{128, 64, 0x1p11F, 1, 0.5F, 0x1p12F}));
  EXPECT_EQ(scales_after(0, {3, 0, 0, 0, 0, 0}, max),
            (std::vector<float>{128, 16, 0x1p11F, 1, 0.5F, 0x1p12F}))
      << "row 0 is forgotten";
}

}  // namespace
}  // namespace trireme::kernels
