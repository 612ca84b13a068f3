// The machine's limits with which trireme bench compares kernels, each measured once per run: peak
// of matrix products, rates of exp, tanh and other functions, and the resulting roofline
// (bound_of). time_calls() is the timing loop of all sections.
#include <trireme/commands/bench/machine.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/clock.hpp>
#include <trireme/base/narrow.hpp>
#include <trireme/commands/bench/bench.hpp>
#include <trireme/kernels/elementwise.hpp>
#include <trireme/kernels/matmul_peak.hpp>
#include <trireme/kernels/random.hpp>
#include <trireme/tensor/fence.hpp>
#include <trireme/train/precision.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <span>
#include <type_traits>

namespace trireme::commands {
namespace {

constexpr Seconds round_seconds = 0.01;
constexpr double most_calls = 1e5;
/// Number of calls between two calls of `restore`: the factor of an embedding, which multiplies a
/// gradient in place, is at most 128 or so, and 128¹⁶ is a normal number in fp32.
constexpr std::int64_t group_calls = 16;

/// Processor time of the calling thread, which runs the kernels on a host, alone or with other
/// threads.
Seconds processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

Seconds seconds_of(const BenchSetting& setting, const Exec& exec, const std::function<void()>& call,
                   std::int64_t times, const std::function<void()>& restore) {
  Seconds sum = 0;
  for (std::int64_t first = 0, n = 0; first < times; first += n) {
    n = restore ? std::min(group_calls, times - first) : times;
    if (restore) restore();
    fence(exec, "a measurement begins");
    const auto begin = Clock::now();
    const Seconds processor = processor_seconds();
    for (std::int64_t i = 0; i < n; ++i) call();
    fence(exec, "a measurement ends");
    sum += setting.processor_time ? processor_seconds() - processor : seconds_since(begin);
  }
  return sum;
}

template <class Real>
std::array<double, kernels::arithmetic_kinds> arithmetic_of(const BenchSetting& setting) {
  // Enough repetitions to fill a device, or to take about a millisecond on a host.
  constexpr bool on_host = std::is_same_v<Memory, Kokkos::HostSpace>;
  constexpr std::int64_t repetitions = on_host ? 256 : 65536;
  const Exec exec;
  const BenchArray<Real> x(exec, kernels::arithmetic_elements);
  const BenchArray<Real> y(exec, kernels::arithmetic_elements);
  std::array<double, kernels::arithmetic_kinds> out{};
  for (std::size_t kind = 0; kind < out.size(); ++kind) {
    const auto call = [&] {
      kernels::arithmetic_work<Real>(exec, y.list(), x.list(),
                                     static_cast<kernels::Arithmetic>(kind), repetitions);
    };
    const BenchTiming timing = time_calls(setting, call, machine_rounds);
    out[kind] = timing.of_ranks[static_cast<std::size_t>(setting.runtime.rank())] /
                static_cast<double>(repetitions * kernels::arithmetic_elements);
  }
  return out;
}

}  // namespace

BenchTiming time_calls(const BenchSetting& setting, const std::function<void()>& call,
                       std::int64_t least_rounds, const std::function<void()>& restore) {
  const Exec exec;
  grid::Communicator& world = setting.runtime.world();
  const bool mine = static_cast<bool>(call);
  const auto measured = [&](std::int64_t times) {
    return mine ? seconds_of(setting, exec, call, times, restore) : 0.0;
  };
  measured(1);  // warm-up: touches memory and starts libraries
  const Seconds once = measured(1);
  const Seconds longest = world.all_reduce<double>(once, grid::Reduction::maximum, "one call");
  const auto calls = static_cast<std::int64_t>(
      std::clamp(round_seconds / std::max(longest, 1e-9), 1.0, most_calls));
  BenchTiming best;
  const std::int64_t rounds = std::max(setting.rounds, least_rounds);
  for (std::int64_t round = 0; round < rounds; ++round) {
    std::vector<double> seconds(static_cast<std::size_t>(world.size()));
    world.barrier("the beginning of a measurement");
    seconds[static_cast<std::size_t>(world.rank())] = measured(calls) / static_cast<double>(calls);
    world.all_reduce(std::span<double>(seconds), grid::Reduction::sum, "seconds of each rank");
    const auto slowest = std::ranges::max_element(seconds);
    if (*slowest == 0) return {};
    if (best.rank < 0 || *slowest < best.seconds) {
      best.seconds = *slowest;
      best.rank = static_cast<Rank>(slowest - seconds.begin());
    }
    if (round == 0) best.of_ranks = seconds;
    std::ranges::transform(best.of_ranks, seconds, best.of_ranks.begin(),
                           [](double x, double y) { return std::min(x, y); });
  }
  return best;
}

std::vector<double> from_rank(const BenchSetting& setting, Rank rank, std::vector<double> mine) {
  if (setting.runtime.rank() != rank) std::ranges::fill(mine, 0.0);
  setting.runtime.world().all_reduce(std::span<double>(mine), grid::Reduction::sum,
                                     "figures of the slowest rank");
  return mine;
}

void know_peak(const BenchSetting& setting) {
  if (setting.machine.peak) return;
  const DType type = setting.session.config().precision.compute;
  const kernels::Handle handle(train::kernel_choice(setting.session.config().precision));
  grid::Communicator& world = setting.runtime.world();
  std::vector<double> mine;
  std::vector<double> all;
  std::vector<double> slowest;
  for (std::int64_t round = 0; round < setting.rounds; ++round) {
    world.barrier("matrix products");
    mine.push_back(kernels::measure_matmul_peak(handle, type));
    all.push_back(world.all_reduce<double>(mine.back(), grid::Reduction::sum, "matrix products"));
    slowest.push_back(
        world.all_reduce<double>(mine.back(), grid::Reduction::minimum, "matrix products"));
  }
  setting.machine.peak = BenchPeak{median(mine), median(slowest), median(all)};
}

void know_arithmetic(const BenchSetting& setting) {
  if (setting.machine.arithmetic) return;
  setting.machine.arithmetic = setting.session.config().precision.compute == DType::fp64
                                   ? arithmetic_of<double>(setting)
                                   : arithmetic_of<float>(setting);
}

std::string name_of(BenchLimit limit) {
  constexpr std::array names{"cache", "memory", "products", "exp",
                             "tanh",  "erf",    "sin, cos", "Philox"};
  static_assert(names.size() == static_cast<std::size_t>(BenchLimit::random_word) + 1);
  return names[static_cast<std::size_t>(limit)];
}

namespace {

double bandwidth_at(const std::vector<BenchBandwidth>& measured, double working_set) {
  const auto above = std::ranges::find_if(measured, [&](const BenchBandwidth& b) {
    return static_cast<double>(b.working_set) >= working_set;
  });
  if (above == measured.begin()) return measured.front().mine;
  if (above == measured.end()) return measured.back().mine;
  const BenchBandwidth& smaller = *(above - 1);
  const auto size = static_cast<double>(smaller.working_set);
  const double part =
      std::log(working_set / size) / std::log(static_cast<double>(above->working_set) / size);
  return smaller.mine + part * (above->mine - smaller.mine);
}

}  // namespace

BenchBound bound_of(const BenchMachine& machine, const BenchCost& cost) {
  const double rate = bandwidth_at(machine.bandwidth, cost.resident);
  const double between =
      std::sqrt(machine.bandwidth.at(machine.near).mine * machine.bandwidth.back().mine);
  BenchBound bound{cost.bytes / rate, rate > between ? BenchLimit::cache : BenchLimit::memory};
  const auto consider = [&](Seconds seconds, BenchLimit limit) {
    if (seconds > bound.seconds) bound = {seconds, limit};
  };
  consider(cost.flops / machine.peak.value().mine, BenchLimit::products);
  if (cost.arithmetic) {
    const auto kind = static_cast<std::size_t>(*cost.arithmetic);
    consider(cost.elements * machine.arithmetic.value()[kind],
             static_cast<BenchLimit>(static_cast<std::size_t>(BenchLimit::exponential) + kind));
  }
  return bound;
}

template <class T>
BenchArray<T>::BenchArray(const Exec& exec, std::int64_t rows, std::int64_t columns)
    : arena_("bench", aligned(rows * columns * static_cast<Bytes>(sizeof(T)))),
      matrix_(arena_.take<T>(rows, columns)) {
  kernels::fill_operand<T>(exec, list(), 0);
}

template class BenchArray<float>;
template class BenchArray<double>;
template class BenchArray<Bf16>;
template class BenchArray<Fp16>;

}  // namespace trireme::commands
