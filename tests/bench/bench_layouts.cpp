// mpiexec -n 2 bench_layouts ROUNDS[:NAME] DECK [section.key=value ...]: what each axis costs, in
// all layouts or in those whose name contains NAME. Trains the
// deck's model on the same ranks in several layouts, step by step in turn with and without
// communication (the communicators' verbs on views then do nothing: same kernels, wrong numbers),
// and prints tokens/s of both by the median step and their ratio. For pipelines, the idle share
// that was measured and the one simulated with the measured mean cost of each (operation, stage).
#include <trireme/deck/deck.hpp>
#include <trireme/schedule/machine.hpp>
#include <trireme/tensor/fence.hpp>

#include "support/training.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string_view>

namespace trireme::testing {
namespace {

grid::Runtime* current = nullptr;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Case {
  const char* name;
  std::vector<std::string> overrides;
};

deck::Config config_of(const std::vector<std::string>& arguments, const Case& c, int ranks) {
  std::vector<std::string> overrides(arguments.begin() + 1, arguments.end());
  overrides.insert(overrides.end(), c.overrides.begin(), c.overrides.end());
  deck::Config config = deck::load_deck(arguments[0], overrides).config;
  config.parallel.data = ranks / config.parallel.model_ranks();
  return config;
}

double step_seconds(Rig& rig, std::int64_t step) {
  rig.grid().world().barrier("a step's beginning");
  const auto begin = std::chrono::steady_clock::now();
  rig.engine->train_step(step, rig.samples);
  fence(Exec(), "bench_layouts");
  rig.grid().world().barrier("a step's end");
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void leave_out(Rig& rig, bool out) {
  for (const Axis axis : {Axis::data, Axis::pipeline, Axis::tensor, Axis::context})
    rig.grid().communicator(axis).leave_out(out);
  rig.grid().replicas().leave_out(out);
  rig.grid().model().leave_out(out);
  rig.grid().embedding().leave_out(out);
  for (const auto& [name, part] : rig.grid().parts_of_tensor_axis()) part->leave_out(out);
}

/// The named program of the deck as it runs.
schedule::Program program_that_runs(const deck::Config& config) {
  return plan::step_program(config, installation::this_machine());
}

/// Idle shares of the step that is repeated: its end on a rank to the end of the step before. Every
/// third step is one.
void measure_overlap(const Case& c, deck::Config config, const data::TokenFile& file, int rounds) {
  std::vector<double> took, measured, simulated;
  {
    Rig rig(config, file);
    auto last = std::chrono::steady_clock::now();
    for (std::int64_t step = 1; step <= rounds + 2; ++step) {
      rig.engine->overlapping_step(step, rig.samples, step < rounds + 2);
      const auto now = std::chrono::steady_clock::now();
      if (step > 1 && step < rounds + 2)
        took.push_back(std::chrono::duration<double>(now - last).count());
      last = now;
    }
  }
  config.run.timeline = true;
  Rig rig(config, file);
  for (std::int64_t step = 1; step <= 3 * rounds; ++step) {
    rig.engine->overlapping_step(step, rig.samples, step % 3 != 0);
    if (step % 3 != 0) continue;
    const schedule::Timeline timeline = rig.engine->timeline();
    if (runtime().rank() > 0) continue;
    measured.push_back(timeline.idle_share());
    simulated.push_back(
        schedule::simulate(program_that_runs(config), schedule::mean_costs(timeline))
            .timeline.idle_share());
  }
  const double tokens = static_cast<double>(config.batch.global * config.model.sequence);
  if (runtime().rank() == 0)
    std::printf("%-24s %9.1f tokens/s  idle measured %5.2f %%  simulated %5.2f %%\n", c.name,
                tokens / median(took), 100 * median(measured), 100 * median(simulated));
  std::fflush(stdout);
}

void measure(const Case& c, const std::vector<std::string>& arguments, const data::TokenFile& file,
             int rounds) {
  const int ranks = runtime().ranks();
  const deck::Config config = config_of(arguments, c, ranks);
  if (config.parallel.overlaps_steps()) return measure_overlap(c, config, file, rounds);
  Rig rig(config, file);
  std::vector<double> with;
  std::vector<double> without;
  std::int64_t step = 1;
  step_seconds(rig, step++);
  const bool pipeline = config.parallel.pipeline > 1;
  for (int i = 0; i < rounds; ++i) {
    with.push_back(step_seconds(rig, step++));
    if (pipeline) continue;
    leave_out(rig, true);
    without.push_back(step_seconds(rig, step++));
    leave_out(rig, false);
  }
  const double tokens = static_cast<double>(config.batch.global * config.model.sequence);
  const double rate = tokens / median(with);
  if (!pipeline) {
    const double alone = tokens / median(without);
    if (runtime().rank() == 0)
      std::printf("%-24s %9.1f tokens/s  without communication %9.1f  ratio %.3f\n", c.name, rate,
                  alone, rate / alone);
    return;
  }
  std::vector<double> measured;
  std::vector<double> simulated;
  for (int i = 0; i < rounds; ++i) {
    rig.engine->timed_step(step++, rig.samples);
    const schedule::Timeline timeline = rig.engine->timeline();
    if (runtime().rank() > 0) continue;
    measured.push_back(timeline.idle_share());
    simulated.push_back(
        schedule::simulate(program_that_runs(config), schedule::mean_costs(timeline))
            .timeline.idle_share());
  }
  if (runtime().rank() == 0)
    std::printf("%-24s %9.1f tokens/s  idle measured %5.2f %%  simulated %5.2f %%\n", c.name, rate,
                100 * median(measured), 100 * median(simulated));
  std::fflush(stdout);
}

}  // namespace

grid::Runtime& runtime() {
  return *current;
}

}  // namespace trireme::testing

int main(int argc, char** argv) {
  using namespace trireme;
  using namespace trireme::testing;
  grid::Runtime runtime(argc, argv);
  current = &runtime;
  const int rounds = argc > 2 ? std::atoi(argv[1]) : 0;
  if (rounds < 1) {
    std::fprintf(stderr, "usage: bench_layouts ROUNDS[:NAME] DECK [section.key=value ...]\n");
    return 2;
  }
  const std::string_view first = argv[1];
  const std::string_view name =
      first.find(':') == std::string_view::npos ? "" : first.substr(first.find(':') + 1);
  const std::vector<std::string> arguments(argv + 2, argv + argc);
  const TemporaryFolder folder;
  const data::TokenFile file(write_tokens(folder, 200000));
  const std::string n = std::to_string(runtime.ranks());
  const std::vector<Case> cases{
      {"data", {}},
      {"tensor", {"parallel.tensor=" + n}},
      {"tensor, sequence", {"parallel.tensor=" + n, "parallel.sequence_parallel=true"}},
      {"context", {"parallel.context=" + n, "batch.micro=1"}},
      {"pipeline, gpipe", {"parallel.pipeline=" + n, "parallel.schedule=gpipe", "batch.micro=1"}},
      {"pipeline, 1f1b", {"parallel.pipeline=" + n, "batch.micro=1"}},
      {"pipeline, interleaved 2",
       {"parallel.pipeline=" + n, "parallel.schedule=interleaved", "parallel.chunks=2",
        "batch.micro=1"}},
      {"pipeline, zb-h1", {"parallel.pipeline=" + n, "parallel.schedule=zb-h1", "batch.micro=1"}},
      {"1f1b, shared vocabulary",
       {"parallel.pipeline=" + n, "parallel.vocabulary=pipeline", "batch.micro=1"}},
      {"gpipe, shared vocabulary",
       {"parallel.pipeline=" + n, "parallel.vocabulary=pipeline", "parallel.schedule=gpipe",
        "batch.micro=1"}},
      {"zb-h1, shared vocabulary",
       {"parallel.pipeline=" + n, "parallel.vocabulary=pipeline", "parallel.schedule=zb-h1",
        "batch.micro=1"}},
      {"pipeline, zb-v", {"parallel.pipeline=" + n, "parallel.schedule=zb-v", "batch.micro=1"}},
      {"pipeline, v-half", {"parallel.pipeline=" + n, "parallel.schedule=v-half", "batch.micro=1"}},
      {"pipeline, v-min", {"parallel.pipeline=" + n, "parallel.schedule=v-min", "batch.micro=1"}},
      {"pipeline, dualpipe-v",
       {"parallel.pipeline=" + n, "parallel.schedule=dualpipe-v", "batch.micro=1"}},
      {"pipeline, 2bw", {"parallel.pipeline=" + n, "parallel.schedule=2bw", "batch.micro=1"}}};
  return static_cast<int>(runtime.guard([&] {
    for (const Case& c : cases)
      if (std::string_view(c.name).find(name) != std::string_view::npos)
        measure(c, arguments, file, rounds);
    return ExitCode::finished;
  }));
}
