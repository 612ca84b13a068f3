#pragma once

#include <trireme/base/types.hpp>
#include <trireme/deck/config.hpp>
#include <trireme/plan/machine.hpp>

#include <cstdint>

namespace trireme::plan {

/// Sizes of `count` matrix products of the same shape: [rows, sum] times [sum, columns].
struct ProductSizes {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t sum = 0;
  std::int64_t count = 1;
  double flops() const {
    return 2.0 * static_cast<double>(rows) * static_cast<double>(columns) *
           static_cast<double>(sum) * static_cast<double>(count);
  }
};

/// Execution times of kernels in seconds on a machine's device.
class KernelTime {
 public:
  KernelTime(const Machine& machine, const deck::PrecisionConfig& precision);

  /// Time of a matrix product that reads and writes `bytes`. A device computes it by tiles and may
  /// split the sum; the fastest choice counts.
  Seconds product(const ProductSizes& sizes, double bytes) const;
  /// Whether products of layers round their operands to fp8.
  bool fp8() const { return fp8_peak_ > 0; }
  /// Time of a product of fp8 operands, rounding of the operands included, at the fp8 peak if it is
  /// known, otherwise at the peak of the compute type. The product writes `written` bytes.
  Seconds fp8_product(const ProductSizes& sizes, double written) const;
  /// Time of the products in fused attention, which have their own efficiency.
  Seconds attention(double flops, double bytes) const;
  /// Time of batched products of attention that stores its scores in memory.
  Seconds attention_product(const ProductSizes& sizes, double bytes) const;
  /// Time of a memory-bound kernel, or of a kernel with a measured `rate` in bytes/s.
  Seconds memory(double bytes, double rate = 0) const;
  /// Additional time of a kernel that draws random numbers for dropout; 0 if the rate is unknown.
  Seconds random(double numbers) const;

 private:
  /// `rate`: FLOP/s that an efficient product reaches.
  Seconds tiled(const ProductSizes& sizes, double rate) const;

  const Machine::Device& device_;
  double random_;
  double peak_;
  double fp8_peak_;  ///< 0: no fp8 products
  double bandwidth_;
  bool tiles_;
};

}  // namespace trireme::plan
