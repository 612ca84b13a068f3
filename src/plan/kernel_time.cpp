#include <trireme/plan/kernel_time.hpp>

#include <trireme/base/alignment.hpp>

#include <algorithm>
#include <array>
#include <limits>

namespace trireme::plan {
namespace {

/// A tile of a product's result, and its share of the peak relative to the largest tile. Shapes and
/// their order as in CUTLASS (Thakkar et al. 2023, "Efficient GEMM in CUTLASS"); the shares are
/// estimates.
struct Tile {
  std::int64_t rows;
  std::int64_t columns;
  double efficiency;
};
constexpr std::array<Tile, 6> tiles{{{256, 128, 1},
                                     {128, 256, 1},
                                     {128, 128, 0.95},
                                     {128, 64, 0.8},
                                     {64, 128, 0.8},
                                     {64, 64, 0.65}}};

}  // namespace

KernelTime::KernelTime(const Machine& machine, const deck::PrecisionConfig& precision)
    : device_(machine.device),
      random_(machine.kernels.random),
      peak_(machine.peak(precision.compute, precision.tf32)),
      fp8_peak_(precision.products != Products::fp8 ? 0
                : device_.peak_fp8 > 0              ? device_.peak_fp8
                                                    : peak_),
      bandwidth_(device_.bandwidth * device_.memory_efficiency),
      tiles_(machine.on_device()) {}

Seconds KernelTime::tiled(const ProductSizes& s, double rate) const {
  if (!tiles_) return s.flops() / rate * (1 + device_.tile_overhead / static_cast<double>(s.sum));
  const std::int64_t processors = device_.multiprocessors;
  double best = std::numeric_limits<double>::infinity();
  for (const Tile& tile : tiles) {
    const std::int64_t all =
        s.count * divided_up(s.rows, tile.rows) * divided_up(s.columns, tile.columns);
    for (const std::int64_t splits : {1, 2, 4}) {
      if (splits > 1 && all >= processors) break;
      const auto waves = static_cast<double>(divided_up(all * splits, processors));
      const double length =
          static_cast<double>(s.sum) / static_cast<double>(splits) + device_.tile_overhead;
      best = std::min(best, waves * 2 * static_cast<double>(tile.rows * tile.columns) * length /
                                tile.efficiency);
    }
  }
  return best * static_cast<double>(processors) / rate;
}

Seconds KernelTime::product(const ProductSizes& sizes, double bytes) const {
  return std::max(tiled(sizes, peak_ * device_.product_efficiency), bytes / bandwidth_) +
         device_.launch;
}

Seconds KernelTime::fp8_product(const ProductSizes& s, double written) const {
  constexpr double rounds = 2 + 1;  // bytes read and written to round a value
  const auto a = static_cast<double>(s.rows * s.sum);
  const auto b = static_cast<double>(s.sum * s.columns);
  return memory(rounds * a) + memory(rounds * b) +
         std::max(tiled(s, fp8_peak_ * device_.product_efficiency),
                  (a + b + written) / bandwidth_) +
         device_.launch;
}

Seconds KernelTime::attention(double flops, double bytes) const {
  return std::max(flops / (peak_ * device_.attention_efficiency), bytes / bandwidth_) +
         device_.launch;
}

Seconds KernelTime::attention_product(const ProductSizes& sizes, double bytes) const {
  return std::max(tiled(sizes, peak_ * device_.attention_efficiency), bytes / bandwidth_) +
         device_.launch;
}

Seconds KernelTime::memory(double bytes, double rate) const {
  return bytes / (rate > 0 ? rate : bandwidth_) + device_.launch;
}

Seconds KernelTime::random(double numbers) const {
  return random_ > 0 ? numbers / random_ : 0;
}

}  // namespace trireme::plan
