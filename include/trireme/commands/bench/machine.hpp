#pragma once

#include <trireme/base/types.hpp>
#include <trireme/kernels/arithmetic.hpp>
#include <trireme/plan/kernel_time.hpp>
#include <trireme/tensor/arena.hpp>

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

/// Limits of a kernel on this machine, measured on all ranks at once: bandwidth by working set, and
/// the rates of matrix products and of a few functions.
namespace trireme::commands {

struct BenchSetting;

/// Seconds per call, the same on all ranks.
struct BenchTiming {
  Seconds seconds = 0;           ///< seconds of a call on the slowest rank
  Rank rank = -1;                ///< the slowest rank; −1: `call` is empty on all ranks
  std::vector<double> of_ranks;  ///< seconds in each rank's best round; 0: `call` is empty there
};

/// Times `call`, which is empty on ranks that do not run it. A round has about 10 ms of calls, at
/// least one, on all ranks after a common start. There are max(setting.rounds, least_rounds)
/// rounds; seconds and rank come from the round whose slowest rank is the fastest. Collective;
/// `call` may be collective too. `restore`, if not empty, runs outside of the measured time before
/// every group of calls: it restores values that repeated calls would let grow or vanish.
BenchTiming time_calls(const BenchSetting& setting, const std::function<void()>& call,
                       std::int64_t least_rounds = 1, const std::function<void()>& restore = {});

/// Minimum number of rounds of the measurements with which kernels are compared.
inline constexpr std::int64_t machine_rounds = 16;

/// Returns `mine` of `rank` on all ranks. Collective.
std::vector<double> from_rank(const BenchSetting& setting, Rank rank, std::vector<double> mine);

/// Bytes per second of y += x: two reads and a write.
struct BenchBandwidth {
  Bytes working_set = 0;  ///< bytes of both arrays of a rank
  double mine = 0;        ///< this rank's bandwidth
  double slowest = 0;     ///< the slowest rank's bandwidth
  double all = 0;         ///< sum over all ranks
};

/// FLOP/s of large square matrix products of the deck's type.
struct BenchPeak {
  double mine = 0;
  double slowest = 0;
  double all = 0;
};

/// A matrix product of given sizes on the slowest rank.
struct BenchProduct {
  plan::ProductSizes sizes;
  double calls = 0;  ///< per step
  Seconds seconds = 0;
};

/// A kernel other than a product, on the slowest rank.
struct BenchKernelTime {
  std::string name;
  double calls = 0;  ///< per step
  Seconds seconds = 0;
  double elements = 0;  ///< elements of its output
  double work = 0;      ///< bytes that it reads and writes, or FLOPs of its products
};

/// Fit of a message's time: seconds = alpha + beta bytes.
struct BenchLine {
  Seconds alpha = 0;
  double beta = 0;
};

/// Measurements of this run so far. A section adds the missing measurements that it needs.
struct BenchMachine {
  std::vector<BenchBandwidth> bandwidth;  ///< ascending working sets
  std::size_t near = 0;                   ///< index of the largest working set that fits in cache
  std::optional<BenchPeak> peak;
  /// Seconds per element on this rank, by kernels::Arithmetic, in the deck's type of sums.
  std::optional<std::array<double, kernels::arithmetic_kinds>> arithmetic;
  std::vector<BenchProduct> products;    ///< from bench_matmul
  std::vector<BenchKernelTime> kernels;  ///< from bench_kernels
  std::optional<BenchLine> sums;         ///< all-reduce of all ranks, from bench_communication
  std::optional<BenchLine> messages;     ///< from each rank to the next
};

/// Each function sets its members of `machine`, unless they have been measured already. Collective.
void know_bandwidth(const BenchSetting& setting);
void know_peak(const BenchSetting& setting);
void know_arithmetic(const BenchSetting& setting);

/// Minimum work of a kernel.
struct BenchCost {
  double bytes = 0;     ///< bytes read and written, each once
  double resident = 0;  ///< bytes of all arrays, which a cache would have to hold
  double flops = 0;     ///< FLOPs of matrix products
  std::optional<kernels::Arithmetic> arithmetic = std::nullopt;
  double elements = 0;  ///< evaluations of the arithmetic function
};

/// Limit of a kernel. The limits from `exponential` on have the order of kernels::Arithmetic.
enum class BenchLimit : std::uint8_t {
  cache,
  memory,
  products,
  exponential,
  hyperbolic_tangent,
  error_function,
  sine_and_cosine,
  random_word,
};

/// "cache", "memory", "products", "exp", "tanh", "erf", "sin, cos", "Philox".
std::string name_of(BenchLimit limit);

/// Roofline: the longest of the times for bytes, products and arithmetic on this rank (Williams et
/// al. 2009, Commun. ACM 52, 65). The bandwidth is interpolated between the measured working sets
/// by the logarithm of the size.
struct BenchBound {
  Seconds seconds = 0;
  BenchLimit limit = BenchLimit::memory;
};
BenchBound bound_of(const BenchMachine& machine, const BenchCost& cost);

/// An array for a measurement, filled with normal random values (kernels::fill_operand). Converts
/// to the view that a kernel expects.
template <class T>
class BenchArray {
 public:
  BenchArray(const Exec& exec, std::int64_t rows, std::int64_t columns = 1);

  operator View1<T>() const { return list(); }
  operator View2<T>() const { return matrix(); }
  operator View1<const T>() const { return list(); }
  operator View2<const T>() const { return matrix(); }

  View1<T> list() const { return flat(matrix_); }
  View2<T> matrix() const { return matrix_; }
  /// The first `count` columns, with the row stride of the whole array.
  View2<T> columns(std::int64_t count) const { return first_columns(matrix_, count); }
  /// The first `n` elements as a list.
  View1<T> list(std::int64_t n) const {
    return View1<T>(matrix_.data(), static_cast<std::size_t>(n));
  }

 private:
  Arena arena_;
  View2<T> matrix_;
};

/// Smallest number of columns, at least `columns`, with which rows begin at multiples of 64 bytes,
/// like the rows of logits.
template <class T>
std::int64_t columns_in_lines(std::int64_t columns) {
  constexpr auto size = static_cast<std::int64_t>(sizeof(T));
  return aligned(columns * size) / size;
}

}  // namespace trireme::commands
