#pragma once

#include <trireme/commands/bench/bench.hpp>
#include <trireme/kernels/handle.hpp>
#include <trireme/train/precision.hpp>

#include <functional>
#include <string>
#include <vector>

namespace trireme::commands {

/// A kernel with the sizes of a training step.
struct BenchKernel {
  std::string name;  ///< "layer_norm.forward"
  bool here = true;  ///< whether this rank runs the kernel
  double calls = 0;  ///< per step
  std::int64_t rows = 0;
  std::int64_t columns = 1;
  BenchCost cost = {};

  std::int64_t elements() const { return rows * columns; }
  BenchKernel with(const BenchCost& its_cost) const {
    return {name, here, calls, rows, columns, its_cost};
  }
};

/// Measures kernels in sequence and keeps the results.
class KernelBench {
 public:
  /// Bandwidth, peak and arithmetic must have been measured. Collective.
  explicit KernelBench(const BenchSetting& setting)
      : setting_(setting),
        shard_(shard_of(setting)),
        handle_(train::kernel_choice(config().precision)) {}

  const deck::Config& config() const { return setting_.session.config(); }
  const deck::ModelConfig& model() const { return config().model; }
  const BenchShard& shard() const { return shard_; }
  const architecture::RankSizes& sizes() const { return shard_.sizes; }
  const kernels::Handle& handle() const { return handle_; }
  const Exec& exec() const { return handle_; }
  const architecture::Operation& operation(const plan::BlockKernel& kernel) const;
  /// A kernel of the layers, without its cost. Rows and columns are the sizes of the operation's
  /// output; for a linear operation, of its input, whose gradient the kernel accumulates. The calls
  /// of a norm include the norm of the head.
  BenchKernel of_layers(const plan::BlockKernel& kernel) const;

  /// Measures a kernel. All ranks pass the same kernels in the same order; sizes, costs and `here`
  /// may differ. Collective.
  void measure(const BenchKernel& kernel, const std::function<void()>& call);

  BenchReport report() const;

 private:
  struct Found {
    std::string name;
    double seconds, calls, rows, columns, work, bound;
    BenchLimit limit;
    bool counts_flops;
  };

  const BenchSetting& setting_;
  BenchShard shard_;
  kernels::Handle handle_;
  std::vector<Found> found_;
};

/// Cost of arrays of `read` bytes that are only read, `written` bytes that are only written, and
/// `updated` bytes that are read and written.
inline BenchCost traffic(double read, double written, double updated = 0) {
  return {read + written + 2 * updated, read + written + updated};
}

/// `cost` with `elements` evaluations of a function.
inline BenchCost with(BenchCost cost, kernels::Arithmetic arithmetic, std::int64_t elements) {
  cost.arithmetic = arithmetic;
  cost.elements = static_cast<double>(elements);
  return cost;
}

/// Measures a kernel of attention, rotary positions or head norms.
template <class P>
void measure_attention_kernel(KernelBench& bench, const plan::BlockKernel& kernel);

/// Each function measures one group of a step's kernels with the types P.
template <class P>
void measure_block_kernels(KernelBench& bench);
template <class P>
void measure_end_kernels(KernelBench& bench);  // embedding and loss
template <class P>
void measure_update_kernels(KernelBench& bench);

}  // namespace trireme::commands
