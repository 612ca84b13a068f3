// trireme bench, section kernels: times every kernel of a step except matrix products, and compares
// it with the roofline of the same rank (bound_of). block_kernels.cpp, loss_kernels.cpp and
// update_kernels.cpp choose the kernels; this file has the timing and the table.
#include <trireme/commands/bench/kernels.hpp>
#include <trireme/commands/bench/table.hpp>
#include <trireme/kernels/attention_cudnn.hpp>
#include <trireme/tensor/copy.hpp>
#include <trireme/tensor/fence.hpp>
#include <trireme/train/precision.hpp>

#include <algorithm>
#include <cmath>

namespace trireme::commands {

void KernelBench::measure(const BenchKernel& kernel, const std::function<void()>& call,
                          const std::function<void()>& restore) {
  const BenchTiming timing = time_calls(setting_, kernel.here ? call : nullptr, 1, restore);
  if (timing.rank < 0) return;
  const bool counts_flops = kernel.cost.flops > 0;
  BenchBound bound;
  if (kernel.here) bound = bound_of(setting_.machine, kernel.cost);
  const auto of = from_rank(
      setting_, timing.rank,
      {kernel.calls, static_cast<double>(kernel.rows), static_cast<double>(kernel.columns),
       counts_flops ? kernel.cost.flops : kernel.cost.bytes, bound.seconds,
       static_cast<double>(bound.limit), counts_flops ? 1.0 : 0.0});
  found_.push_back({kernel.name, timing.seconds, of[0], of[1], of[2], of[3], of[4],
                    static_cast<BenchLimit>(static_cast<int>(of[5])), of[6] > 0});
  setting_.machine.kernels.push_back({kernel.name, of[0], timing.seconds, of[1] * of[2], of[3]});
}

namespace {

std::vector<std::int32_t> scattered(std::int64_t n, std::int64_t below) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < n; ++i)
    ids.push_back(static_cast<std::int32_t>(i * 48271 % std::max<std::int64_t>(below, 1)));
  return ids;
}

}  // namespace

BenchIds::BenchIds(const Exec& exec, const std::vector<std::int32_t>& ids)
    : arena_("bench", aligned(std::ssize(ids) * 4)),
      list_(arena_.take<std::int32_t>(std::ssize(ids))) {
  copy_to_device<std::int32_t>(exec, list_, ids);
  fence(exec, "a measurement's indices");
}

BenchIds::BenchIds(const Exec& exec, std::int64_t n, std::int64_t below)
    : BenchIds(exec, scattered(n, below)) {}

namespace {

std::string size_of(double rows, double columns) {
  return columns == 1 ? with_commas(std::llround(rows)) : text(rows, " × ", columns);
}

std::string calls_of(double calls) {
  return calls == std::round(calls) ? with_commas(std::llround(calls)) : fixed(calls, 1);
}

}  // namespace

BenchReport KernelBench::report() const {
  BenchReport report;
  BenchTable table(
      {"kernel", "size", "time", "achieved", "attainable", "share", "calls per step", "bound by"});
  double step = 0;
  double attainable_step = 0;
  double largest_loss = 0;
  std::string largest;
  for (const Found& f : found_) {
    const std::string unit = f.counts_flops ? "GFLOP/s" : "GB/s";
    const std::string size = size_of(f.rows, f.columns);
    const double rate = f.work / f.seconds / 1e9;
    const double attainable = f.work / f.bound / 1e9;
    const double share = f.bound / f.seconds;
    const auto add = [&](const char* what, double quantity, const std::string& of_unit,
                         const std::string& convention) {
      report.rows.push_back({"kernels", f.name + what, quantity, of_unit, convention});
    };
    add(".seconds", f.seconds, "s", text("one call of ", size, ", slowest rank"));
    add(".rate", rate, unit,
        f.counts_flops ? "FLOPs of its products" : "bytes that must be read and written once");
    add(".attainable", attainable, unit, text("bound by ", name_of(f.limit)));
    add(".share", share, "1", "rate / attainable");
    add(".calls", f.calls, "1", "per step of the slowest rank");
    table.add({f.name, size, rounded_seconds(f.seconds), rounded(rate) + " " + unit,
               rounded(attainable) + " " + unit, rough_percent(share), calls_of(f.calls),
               name_of(f.limit)});
    step += f.calls * f.seconds;
    attainable_step += f.calls * f.bound;
    if (const double loss = f.calls * (f.seconds - f.bound); loss > largest_loss) {
      largest_loss = loss;
      largest = f.name;
    }
  }
  const std::string sum = "sum of calls × seconds of all kernels except matrix products";
  report.rows.push_back({"kernels", "step.seconds", step, "s", sum});
  report.rows.push_back({"kernels", "step.attainable_seconds", attainable_step, "s",
                         "the same at the attainable rates"});
  report.table = text(
      "one call on the slowest rank, all ranks at once; a micro-batch of ", sizes().micro, " × ",
      sizes().sequence,
      " tokens\n"
      "achieved: bytes that must be read and written once, or FLOPs of products, per second\n"
      "attainable: the lowest of the rates that bandwidth at this size, products and arithmetic "
      "allow\n",
      table.str(), "\n  one step: ", rounded_seconds(step), ", at the attainable rates ",
      rounded_seconds(attainable_step),
      largest.empty() ? ""
                      : text("; largest loss: ", largest, ", ", rounded_seconds(largest_loss)));
  return report;
}

BenchReport bench_kernels(const BenchSetting& setting) {
  know_bandwidth(setting);
  know_peak(setting);
  know_arithmetic(setting);
  KernelBench bench(setting);
  train::with_precision(bench.config().precision.compute, [&](auto number_types) {
    using P = decltype(number_types);
    measure_block_kernels<P>(bench);
    measure_loss_kernels<P>(bench);
    measure_update_kernels<P>(bench);
  });
  BenchReport report = bench.report();
  std::string chosen;  // choices of cuDNN on rank 0
  for (const std::string& line : bench.handle().attention_choices()) {
    chosen += "\n  " + line;
    report.rows.push_back({"kernels", text("choice.", report.rows.size()), 1, "1", line});
  }
  if (!chosen.empty()) report.table += "\nchosen by cuDNN's heuristics on rank 0" + chosen;
  return report;
}

}  // namespace trireme::commands
