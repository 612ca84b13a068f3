#include <trireme/plan/kernel_time.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "plan/speeds.hpp"

namespace trireme::plan {
namespace {

deck::PrecisionConfig precision(DType type, bool tf32 = false) {
  deck::PrecisionConfig p;
  p.compute = type;
  p.tf32 = tf32;
  return p;
}

/// Seconds of a multiprocessor of testing::cluster() for a tile of that many multiplications and
/// additions: 1 TFLOP/s in bf16, of which long products reach half.
constexpr double rate = 1e12 * 0.5;
constexpr double launch = 1e-6;

Seconds product(const ProductSizes& sizes, double bytes = 0) {
  const Machine m = testing::cluster();
  return KernelTime(m, precision(DType::bf16)).product(sizes, bytes);
}

TEST(KernelTime, FullWaveTakesTheTimeOfOneTile) {
  const double tile = 2.0 * 256 * 128 * (1024 + 64) / rate;
  EXPECT_DOUBLE_EQ(product({512, 256, 1024}), tile + launch);
  EXPECT_DOUBLE_EQ(product({256, 512, 1024}), tile + launch) << "of 128 x 256";
  EXPECT_DOUBLE_EQ(product({256, 128, 1024, 4}), tile + launch) << "of four products";
  EXPECT_DOUBLE_EQ(product({1024, 512, 1024}), 4 * tile + launch);
  EXPECT_DOUBLE_EQ(product({511, 255, 1024}), tile + launch) << "a tile is computed as a whole";
}

/// 5 tiles of 256 x 128 take two waves of 4; 20 of 128 x 64, a quarter of that each, take five at
/// 80 % of the rate.
TEST(KernelTime, SmallerTilesFillTheLastWave) {
  EXPECT_DOUBLE_EQ(product({256, 128, 1024, 5}),
                   5 * 2.0 * 128 * 64 * (1024 + 64) / 0.8 / rate + launch);
}

/// Four tiles of the shape, for which none is larger: of the others half, or twice as many.
TEST(KernelTime, SmallTilesAreLessEfficient) {
  const auto tile = [](double elements, double share) {
    return 2 * elements * (1024 + 64) / share / rate + launch;
  };
  EXPECT_DOUBLE_EQ(product({128, 128, 1024, 4}), tile(128 * 128, 0.95));
  EXPECT_DOUBLE_EQ(product({128, 64, 1024, 4}), tile(128 * 64, 0.8));
  EXPECT_DOUBLE_EQ(product({64, 128, 1024, 4}), tile(64 * 128, 0.8));
  EXPECT_DOUBLE_EQ(product({64, 64, 1024, 4}), tile(64 * 64, 0.65));
}

TEST(KernelTime, FewTilesSplitTheSum) {
  const double quarter = 2.0 * 256 * 128 * (4096 / 4 + 64) / rate;
  EXPECT_DOUBLE_EQ(product({256, 128, 4096}), quarter + launch) << "on 4 multiprocessors";
  const double half = 2.0 * 256 * 128 * (4096 / 2 + 64) / rate;
  EXPECT_DOUBLE_EQ(product({512, 128, 4096}), half + launch) << "two tiles";
}

TEST(KernelTime, SmallProductsAreBandwidthBound) {
  EXPECT_DOUBLE_EQ(product({64, 64, 64}, 1e9), 1e9 / (1e12 * 0.5) + launch);
}

TEST(KernelTime, HostsHaveNoTiles) {
  Machine m = testing::cluster();
  m.set_kind(DeviceKind::host);
  const KernelTime time(m, precision(DType::fp32));
  const ProductSizes sizes{7, 5, 64, 3};
  EXPECT_DOUBLE_EQ(sizes.flops(), 2.0 * 7 * 5 * 64 * 3);
  EXPECT_DOUBLE_EQ(time.product(sizes, 0), sizes.flops() / (1e12 * 0.5) * (1 + 64.0 / 64) + launch);
}

TEST(KernelTime, AttentionHasItsOwnEfficiency) {
  const Machine m = testing::cluster();
  const KernelTime time(m, precision(DType::bf16));
  EXPECT_DOUBLE_EQ(time.attention(1e9, 0), 1e9 / (4e12 * 0.25) + launch);
  EXPECT_DOUBLE_EQ(time.attention(1, 1e9), 1e9 / (1e12 * 0.5) + launch);
  EXPECT_DOUBLE_EQ(time.attention_product({512, 256, 1024}, 0),
                   2.0 * 256 * 128 * (1024 + 64) / (1e12 * 0.25) + launch);
  EXPECT_DOUBLE_EQ(time.attention_product({64, 64, 64}, 1e9), 1e9 / (1e12 * 0.5) + launch);
  EXPECT_DOUBLE_EQ(time.memory(5e8), 1e-3 + launch);
  EXPECT_DOUBLE_EQ(time.memory(5e8, 1e9), 0.5 + launch) << "by a measured rate";
  EXPECT_EQ(time.random(1e9), 0);
}

TEST(KernelTime, PeaksDependOnTheType) {
  Machine m = testing::cluster();
  m.device.peak_fp64 = 1e12;
  m.device.peak_fp32 = 2e12;
  m.device.peak_tf32 = 3e12;
  m.device.peak_bf16 = 4e12;
  m.device.peak_fp16 = 5e12;
  const auto peak = [&](const deck::PrecisionConfig& p) {
    return 1 / (0.25 * (KernelTime(m, p).attention(1e9, 0) - launch) / 1e9);
  };
  EXPECT_NEAR(peak(precision(DType::fp64)), 1e12, 1);
  EXPECT_NEAR(peak(precision(DType::fp32)), 2e12, 1);
  EXPECT_NEAR(peak(precision(DType::fp32, true)), 3e12, 1);
  EXPECT_NEAR(peak(precision(DType::bf16)), 4e12, 1);
  EXPECT_NEAR(peak(precision(DType::fp16)), 5e12, 1);
}

/// The product at the peak of fp8, which is that of bf16 where it is not known, and two kernels
/// that read two bytes of each operand's numbers and write one.
TEST(KernelTime, Fp8HasItsOwnPeakAndRoundsItsOperands) {
  Machine m = testing::cluster();
  deck::PrecisionConfig p = precision(DType::bf16);
  EXPECT_FALSE(KernelTime(m, p).fp8());
  p.products = Products::fp8;
  const ProductSizes s{2048, 1024, 512};
  const double a = 2048 * 512, b = 1024 * 512;
  const auto rounding = [&](const KernelTime& time) {
    return time.memory(3 * a) + time.memory(3 * b);
  };
  const KernelTime unknown(m, p);
  EXPECT_TRUE(unknown.fp8());
  EXPECT_DOUBLE_EQ(unknown.fp8_product(s, 0), unknown.product(s, 0) + rounding(unknown));
  m.device.peak_fp8 = 2 * m.device.peak_bf16;
  const KernelTime known(m, p);
  EXPECT_DOUBLE_EQ(known.fp8_product(s, 0) - launch - rounding(known),
                   (known.product(s, 0) - launch) / 2);
  EXPECT_DOUBLE_EQ(known.attention(1e9, 0), unknown.attention(1e9, 0));
  const double bandwidth = m.device.bandwidth * m.device.memory_efficiency;
  EXPECT_DOUBLE_EQ(known.fp8_product({16, 16, 16}, 1e9),
                   2 * known.memory(3 * 256) + (2 * 256 + 1e9) / bandwidth + launch);
}

/// Neither faster than the peak, nor longer on a machine with more of anything but multiprocessors,
/// of which each then has a smaller part of the peak.
TEST(KernelTime, RandomProductsStayWithinTheBounds) {
  std::mt19937 random(5);
  std::uniform_int_distribution<std::int64_t> size(1, 3000), number(1, 40);
  const Machine m = testing::cluster();
  for (int n = 0; n < 2000; ++n) {
    const ProductSizes s{size(random), size(random), size(random), number(random)};
    const double bytes = static_cast<double>(size(random)) * 1e6;
    const Seconds t = product(s, bytes);
    EXPECT_GE(t, s.flops() / 2e12 + launch);
    EXPECT_GE(t, bytes / 5e11 + launch);
    for (double Machine::Device::*speed :
         {&Machine::Device::peak_bf16, &Machine::Device::bandwidth,
          &Machine::Device::product_efficiency, &Machine::Device::memory_efficiency}) {
      Machine faster = m;
      faster.device.*speed *= 1.5;
      EXPECT_LE(KernelTime(faster, precision(DType::bf16)).product(s, bytes), t);
    }
    Machine prompt = m;
    prompt.device.tile_overhead = 0;
    prompt.device.launch = 0;
    EXPECT_LE(KernelTime(prompt, precision(DType::bf16)).product(s, bytes), t - launch);
    EXPECT_LE(product({s.rows, s.columns, s.sum, 1}, 0), product(s, 0));
  }
}

}  // namespace
}  // namespace trireme::plan
