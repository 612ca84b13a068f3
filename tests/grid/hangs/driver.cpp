#include <trireme/base/events.hpp>
#include <trireme/grid/runtime.hpp>
#include <trireme/grid/watchdog.hpp>

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

// grid_hang_driver FOLDER SECONDS RANK MISHAP [RANKS_PER_NODE]: runs steps of some work and a sum
// over all ranks, with a watchdog's limit of SECONDS. In step 3, MISHAP happens to RANK. Prints
// "finished" if the job ends normally.

namespace trireme::grid {
namespace {

using Clock = std::chrono::steady_clock;

void compute(double seconds) {
  const auto until = Clock::now() + std::chrono::duration<double>(seconds);
  while (Clock::now() < until) {
  }
}

void mishap(const std::string& kind, Communicator& world, double limit) {
  if (kind == "kill") kill(getpid(), SIGKILL);
  if (kind == "crash") std::abort();
  if (kind == "stop") kill(getpid(), SIGSTOP);
  if (kind == "loop") compute(1e9);
  if (kind == "throw") throw Error("this rank's data are broken");
  if (kind == "absent") {  // waits for a message that no rank sends
    std::vector<double> x(4);
    Request request = world.start_receive(Exec(), View1<double>(x.data(), 4), 0, 77);
    world.wait(request, "what nobody sends");
  }
  // Slow, but it publishes progress; the others wait for longer than the limit.
  for (int i = 0; kind == "slow" && i < 12; ++i) {
    Heartbeat::publish({"evaluation", 3, -1, i});
    compute(limit / 4);
  }
}

ExitCode steps(Runtime& runtime, char** argv) {
  const double limit = std::atof(argv[2]);
  const int victim = std::atoi(argv[3]);
  const std::string kind = argv[4];
  std::string node;
  if (argv[5] != nullptr) node = text("node", runtime.rank() / std::atoi(argv[5]));
  const std::vector<char> model(std::size_t{96} << 20, 1);  // a small model's memory
  events::set_file(std::string(argv[1]) + "/events.jsonl", runtime.rank() == 0);
  const Watchdog watchdog(runtime, argv[1], limit, node);
  Communicator& world = runtime.world();
  for (int step = 1; step <= 6; ++step) {
    Heartbeat::publish({"forward", step, 0, 5});
    compute(0.01);
    if (step == 3 && (victim == runtime.rank() || (victim < 0 && runtime.rank() >= -victim)))
      mishap(kind, world, limit);
    world.all_reduce<double>(1.0, Reduction::sum, "gradients");
  }
  if (runtime.rank() == 0) std::puts("finished");
  return ExitCode::finished;
}

}  // namespace
}  // namespace trireme::grid

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  trireme::grid::Runtime runtime(argc, argv);
  return static_cast<int>(runtime.guard([&] { return trireme::grid::steps(runtime, argv); }));
}
