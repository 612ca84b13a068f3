// trireme bench, section bandwidth: y += x by the size of the arrays, on all ranks at once. Other
// sections take the bandwidth that bounds a kernel from this curve.
#include <trireme/base/process.hpp>
#include <trireme/commands/bench/bench.hpp>
#include <trireme/commands/bench/table.hpp>
#include <trireme/kernels/elementwise.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <functional>

namespace trireme::commands {
namespace {

constexpr Bytes smallest_set = 64 << 10;
constexpr Bytes farthest_set = 256 << 20;  // or 4 × the largest cache if that is more
constexpr int set_growth = 4;              // ratio of consecutive working sets

/// Size of this processor's last-level cache from Linux's sysfs ("32768K"); 0 if unknown. sysconf
/// is not used, because it may return the total of a larger machine.
Bytes last_level_cache() {
  Bytes largest = 0;
  for (int level = 0; level < 8; ++level) {
    std::ifstream file(text("/sys/devices/system/cpu/cpu0/cache/index", level, "/size"));
    Bytes size = 0;
    char unit = ' ';
    if (!(file >> size)) continue;
    file >> unit;
    largest = std::max(largest, unit == 'M' ? size << 20 : unit == 'K' ? size << 10 : size);
  }
  return largest;
}

/// The smallest part of a cache that a rank has, and the size of the largest cache, over all ranks.
/// Collective.
std::array<Bytes, 2> caches(const BenchSetting& setting) {
  constexpr Bytes usual = exec_on_host ? 32 << 20 : 64 << 20;
  const Bytes found = exec_on_host ? last_level_cache() : 0;
  const Bytes cache = found > 0 ? found : usual;
  const Bytes part = exec_on_host ? cache / ranks_on_this_node(setting) : cache;
  grid::Communicator& world = setting.runtime.world();
  return {world.all_reduce<Bytes>(part, grid::Reduction::minimum, "parts of caches"),
          world.all_reduce<Bytes>(cache, grid::Reduction::maximum, "caches")};
}

BenchBandwidth measure(const BenchSetting& setting, Bytes working_set) {
  const Exec exec;
  const std::int64_t n = working_set / 2 / static_cast<Bytes>(sizeof(float));
  const BenchArray<float> x(exec, n);
  const BenchArray<float> y(exec, n);
  const BenchTiming timing = time_calls(
      setting, [&] { kernels::accumulate<float>(exec, y.list(), x.list()); }, machine_rounds);
  const double bytes = 3.0 * static_cast<double>(n) * sizeof(float);
  BenchBandwidth out{working_set};
  out.mine = bytes / timing.of_ranks.at(static_cast<std::size_t>(setting.runtime.rank()));
  out.slowest = bytes / std::ranges::max(timing.of_ranks);
  for (const double seconds : timing.of_ranks) out.all += bytes / seconds;
  return out;
}

}  // namespace

std::int64_t ranks_on_this_node(const BenchSetting& setting) {
  const auto mine = static_cast<std::int64_t>(std::hash<std::string>()(host_name()));
  return std::ranges::count(setting.runtime.world().all_gather(mine, "ranks of each node"), mine);
}

void know_bandwidth(const BenchSetting& setting) {
  BenchMachine& machine = setting.machine;
  if (!machine.bandwidth.empty()) return;
  const auto [part, largest] = caches(setting);
  const Bytes far = std::max(farthest_set, 4 * largest);
  for (Bytes size = smallest_set;; size *= set_growth) {
    machine.bandwidth.push_back(measure(setting, std::min(size, far)));
    if (2 * size <= part) machine.near = machine.bandwidth.size() - 1;
    if (size >= far) break;
  }
}

BenchReport bench_bandwidth(const BenchSetting& setting) {
  know_bandwidth(setting);
  const std::vector<BenchBandwidth>& all = setting.machine.bandwidth;
  const std::size_t near = setting.machine.near;
  BenchReport report;
  BenchTable table({"arrays per rank", "slowest rank", "all ranks", ""});
  const auto add_rows = [&](const std::string& name, const BenchBandwidth& b) {
    const std::string how = text("y += x, two reads and a write, arrays of ",
                                 human_bytes(b.working_set), " per rank, all ranks at once");
    report.rows.push_back({"bandwidth", name + ".slowest_rank", b.slowest / 1e9, "GB/s", how});
    report.rows.push_back({"bandwidth", name + ".all_ranks", b.all / 1e9, "GB/s", how});
  };
  for (std::size_t i = 0; i < all.size(); ++i) {
    add_rows(text("bytes_", all[i].working_set), all[i]);
    const char* note = i + 1 == all.size() ? "far: in memory"
                       : i == near         ? "near: fits in cache"
                                           : "";
    table.add({human_bytes(all[i].working_set), rounded(all[i].slowest / 1e9) + " GB/s",
               rounded(all[i].all / 1e9) + " GB/s", note});
  }
  add_rows("near", all[near]);
  add_rows("far", all.back());
  report.table = text("y += x, counted as two reads and a write, all ranks at once\n", table.str());
  return report;
}

}  // namespace trireme::commands
