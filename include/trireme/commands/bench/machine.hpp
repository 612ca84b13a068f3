#pragma once

#include <trireme/base/types.hpp>
#include <trireme/kernels/arithmetic.hpp>
#include <trireme/tensor/arena.hpp>

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

/// What bounds a kernel on this machine, measured with all ranks at once: bandwidth by the size of
/// what a kernel touches, the rate of matrix products, and the rates of a few functions.
namespace trireme::commands {

struct BenchSetting;

/// Seconds per call, the same on all ranks.
struct BenchTiming {
  Seconds seconds = 0;           ///< of the rank that took longest
  Rank rank = -1;                ///< that one; −1: no rank has such work
  std::vector<double> of_ranks;  ///< of each the best of all rounds; 0: it has no such work
};

/// Times `call`, which may be empty on ranks that have no such work. A round is as many calls as
/// take 10 ms, all ranks beginning together; of the setting's rounds, and at least so many, that
/// one counts whose slowest rank was fastest. Collective; `call` may be, too.
BenchTiming time_calls(const BenchSetting& setting, const std::function<void()>& call,
                       std::int64_t least_rounds = 1);

/// Of what kernels are compared with.
inline constexpr std::int64_t machine_rounds = 16;

/// `mine` of that rank, on all ranks. Collective.
std::vector<double> from_rank(const BenchSetting& setting, Rank rank, std::vector<double> mine);

/// Bytes per second of y += x: two reads and a write.
struct BenchBandwidth {
  Bytes working_set = 0;  ///< of both arrays of a rank
  double mine = 0;        ///< of this rank
  double slowest = 0;     ///< of the slowest rank
  double all = 0;         ///< of all ranks together
};

/// FLOP/s of large square matrix products of the deck's type.
struct BenchPeak {
  double mine = 0;
  double slowest = 0;
  double all = 0;
};

/// What has been measured so far in this run: a section measures what it needs and others have not.
struct BenchMachine {
  std::vector<BenchBandwidth> bandwidth;  ///< ascending working sets
  std::size_t near = 0;                   ///< the largest of them that stays in cache
  std::optional<BenchPeak> peak;
  /// Seconds per element on this rank, by kernels::Arithmetic, in the deck's type of sums.
  std::optional<std::array<double, kernels::arithmetic_kinds>> arithmetic;
};

/// Each measures unless that has been done. Collective.
void know_bandwidth(const BenchSetting& setting);
void know_peak(const BenchSetting& setting);
void know_arithmetic(const BenchSetting& setting);

/// What a kernel cannot do without.
struct BenchCost {
  double bytes = 0;     ///< to be read and written once
  double resident = 0;  ///< of memory that is touched: what a cache would have to hold
  double flops = 0;     ///< of matrix products
  std::optional<kernels::Arithmetic> arithmetic = std::nullopt;
  double elements = 0;  ///< of that arithmetic
};

/// What bounds a kernel. The order is that of the names below.
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

/// The longest of the times that bytes, products and arithmetic take on this rank: roofline
/// (Williams et al. 2009, Commun. ACM 52, 65). The bandwidth is that measured for such a working
/// set, between two of them by the logarithm of the size.
struct BenchBound {
  Seconds seconds = 0;
  BenchLimit limit = BenchLimit::memory;
};
BenchBound bound_of(const BenchMachine& machine, const BenchCost& cost);

/// Memory of its own for a measurement, filled with numbers that no kernel stumbles over. Kernels
/// take it as the view that they expect.
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
  /// As a list of `n` of them.
  View1<T> list(std::int64_t n) const {
    return View1<T>(matrix_.data(), static_cast<std::size_t>(n));
  }

 private:
  Arena arena_;
  View2<T> matrix_;
};

}  // namespace trireme::commands
