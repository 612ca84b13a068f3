#include <support/imitated_transport.hpp>
#include <trireme/base/events.hpp>
#include <trireme/grid/runtime.hpp>
#include <trireme/grid/watchdog.hpp>
#include <trireme/tensor/arena.hpp>
#include <trireme/tensor/fence.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

// grid_transport_hang_driver FOLDER SECONDS MISHAP: runs steps whose sums and messages use a
// transport with NCCL's rules, with a watchdog's limit of SECONDS. In step 3, MISHAP happens to the
// last rank. Prints "finished" if the job ends normally.

namespace trireme::grid {
namespace {

using Clock = std::chrono::steady_clock;

void compute(double seconds) {
  const auto until = Clock::now() + std::chrono::duration<double>(seconds);
  while (Clock::now() < until) {
  }
}

/// Two axes of all ranks, each with a queue of its own.
struct Axes {
  Axes(Runtime& runtime, bool as_streams) {
    const auto make = as_streams ? testing::imitate_stream : testing::imitate_nccl;
    for (auto* one : {&data, &tensor}) {
      *one = runtime.world().split(0, runtime.rank(), one == &data ? "data" : "tensor");
      auto transport = make(**one);
      transports[one == &data ? 0 : 1] = transport.get();
      (*one)->use(std::move(transport));
    }
  }
  /// The host's wait at the end of a step for all launched work.
  void wait_for_device() {
    Transport::Place ends[2];
    for (int i = 0; i < 2; ++i) transports[i]->record(ends[i]);
    const auto done = [&] {
      return transports[0]->passed(ends[0]) && transports[1]->passed(ends[1]);
    };
    wait_until(done, "loss of a step");
  }

  std::unique_ptr<Communicator> data;
  std::unique_ptr<Communicator> tensor;
  Transport* transports[2] = {};
};

ExitCode steps(Runtime& runtime, char** argv) {
  const std::string kind = argv[3];
  const bool streams = kind == "streams" || kind == "streams-absent";
  events::set_file(std::string(argv[1]) + "/events.jsonl", runtime.rank() == 0);
  const Watchdog watchdog(runtime, argv[1], std::atof(argv[2]));
  Axes axes(runtime, streams);
  Arena arena("driver", 1 << 20);
  const auto small = arena.take<float>(100);
  const auto large = arena.take<float>(100'000);
  const int last = runtime.ranks() - 1;
  for (int step = 1; step <= 6; ++step) {
    Heartbeat::publish({"forward", step, 0, 5});
    const bool mishap = step == 3 && runtime.rank() == last;
    // A step has two all_reduces on tensor, one on data, a message from the last rank to the first,
    // and a gather on data.
    if (mishap && kind == "streams-absent") compute(0.7);  // the others wait, then continue
    axes.tensor->all_reduce(Exec(), small, Reduction::sum, "head");
    if (mishap && kind == "loop") compute(1e9);
    if (mishap && kind.ends_with("absent")) runtime.world().barrier("what only this rank does");
    axes.tensor->all_reduce(Exec(), large, Reduction::sum, "activations");
    axes.data->all_reduce(Exec(), large, Reduction::sum, "gradients");
    Request request;
    if (runtime.rank() == last && !(mishap && kind == "silent"))
      request = axes.data->start_send<float>(Exec(), small, 0, 0);
    if (runtime.rank() == 0) request = axes.data->start_receive<float>(Exec(), small, last, 0);
    axes.data->wait(request, "a message");
    axes.wait_for_device();
  }
  if (runtime.rank() == 0) std::puts("finished");
  return ExitCode::finished;
}

}  // namespace
}  // namespace trireme::grid

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  trireme::grid::Runtime runtime(argc, argv);
  return static_cast<int>(runtime.guard([&] { return trireme::grid::steps(runtime, argv); }));
}
