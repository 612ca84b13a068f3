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
  const plan::TypedSizes& sizes() const { return shard_.sizes; }
  const kernels::Handle& handle() const { return handle_; }
  const Exec& exec() const { return handle_; }
  const architecture::Architecture& architecture() const { return setting_.session.architecture; }

  /// Measures a kernel. All ranks pass the same kernels in the same order; sizes, costs and `here`
  /// may differ. `restore`: see time_calls(). Collective.
  void measure(const BenchKernel& kernel, const std::function<void()>& call,
               const std::function<void()>& restore = {});

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

/// Integers on the device.
class BenchIds {
 public:
  BenchIds(const Exec& exec, const std::vector<std::int32_t>& ids);
  /// n scattered integers in [0, below).
  BenchIds(const Exec& exec, std::int64_t n, std::int64_t below);

  View1<std::int32_t> list() const { return list_; }

 private:
  Arena arena_;
  View1<std::int32_t> list_;
};

/// Each function measures one group of a step's kernels with the types P.
template <class P>
void measure_block_kernels(KernelBench& bench);  // of the embedding, the layers and the head
template <class P>
void measure_loss_kernels(KernelBench& bench);
template <class P>
void measure_update_kernels(KernelBench& bench);

}  // namespace trireme::commands
