#include <trireme/commands/bench.hpp>
#include <trireme/kernels/matmul.hpp>

#include <algorithm>

namespace trireme::commands {

BenchRows bench_matmul(const BenchSetting& setting) {
  const DType type = setting.session.config().precision.compute;
  const Exec exec;
  std::vector<double> all;
  std::vector<double> slowest;
  for (std::int64_t round = 0; round < setting.rounds; ++round) {
    setting.runtime.world().barrier("matrix products");
    const double mine = kernels::measure_matmul_peak(exec, type);
    grid::Communicator& world = setting.runtime.world();
    all.push_back(world.all_reduce<double>(mine, grid::Reduction::sum, "matrix products"));
    slowest.push_back(world.all_reduce<double>(mine, grid::Reduction::minimum, "matrix products"));
  }
  const std::string how = text("large square ", name_of(type), " products by ",
                               kernels::matmul_backend_name(type), ", all ranks at once");
  return {{"matmul", "peak_of_all_ranks", median(all) / 1e9, "GFLOP/s", how},
          {"matmul", "peak_of_slowest_rank", median(slowest) / 1e9, "GFLOP/s", how}};
}

}  // namespace trireme::commands
