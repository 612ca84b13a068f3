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

/// Seconds that kernels take on a machine's device, from its peak, its bandwidth and the shares of
/// them that kernels reach.
class KernelTime {
 public:
  KernelTime(const Machine& machine, const deck::PrecisionConfig& precision);

  /// A matrix product. A device computes it by tiles: the smaller ones are less efficient, the last
  /// wave of tiles may leave multiprocessors idle, and if there are few tiles the sum is split. The
  /// best of these choices is taken. It takes at least as long as its operands' `bytes`.
  Seconds product(const ProductSizes& sizes, double bytes) const;
  /// Whether products of layers round their operands to fp8.
  bool fp8() const { return fp8_peak_ > 0; }
  /// Such a product, at the peak of fp8 if the machine has one: the kernels that round and
  /// transpose the operands, then the product, which writes `written` bytes.
  Seconds fp8_product(const ProductSizes& sizes, double written) const;
  /// Products within attention, with their own efficiency.
  Seconds attention(double flops, double bytes) const;
  /// The batched products of attention that stores its scores.
  Seconds attention_product(const ProductSizes& sizes, double bytes) const;
  /// A kernel that is bound by memory, or has its own rate in bytes/s.
  Seconds memory(double bytes, double rate = 0) const;
  /// Random numbers of dropout, drawn by a kernel in addition to its work.
  Seconds random(double numbers) const;

 private:
  /// `rate`: what an efficient product reaches, FLOP/s.
  Seconds tiled(const ProductSizes& sizes, double rate) const;

  const Machine::Device& device_;
  double random_;
  double peak_;
  double fp8_peak_;  ///< 0: products are not in fp8
  double bandwidth_;
  bool tiles_;
};

}  // namespace trireme::plan
