#pragma once

#include <trireme/data/samples.hpp>
#include <trireme/data/token_file.hpp>
#include <trireme/data/token_file_writer.hpp>
#include <trireme/deck/deck.hpp>
#include <trireme/grid/runtime.hpp>
#include <trireme/installation/this_installation.hpp>
#include <trireme/plan/program.hpp>
#include <trireme/schedule/generate.hpp>
#include <trireme/schedule/lower.hpp>
#include <trireme/train/engine.hpp>

#include "support/runtime.hpp"
#include "support/temporary_folder.hpp"

#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

namespace trireme::testing {

inline constexpr const char* shared_vocabulary = "parallel.vocabulary=pipeline";

/// A resolved deck of a model of 2 layers with odd sizes, in fp64 with dropout, for `ranks` ranks,
/// which are data-parallel unless overrides change this.
inline deck::Config small_config(std::int64_t global, std::int64_t micro, std::int64_t ranks,
                                 const std::vector<std::string>& overrides = {}) {
  const std::string content = R"(
[run]
steps = 20
[model]
layers = 2
hidden = 36
heads = 3
feed_forward = 100
sequence = 23
vocabulary = 257
dropout = 0.1
[batch]
global = )" + std::to_string(global) +
                              "\nmicro = " + std::to_string(micro) + R"(
[precision]
compute = "fp64"
[optimizer]
learning_rate = 5e-3
warmup_steps = 4
[data]
train = "unused.h5"
)";
  deck::Config config = deck::parse_deck(content, "test.toml", overrides).config;
  config.parallel.data = ranks / config.parallel.model_ranks() - config.parallel.server_places();
  return config;
}

/// Keys that are separated by spaces.
inline std::vector<std::string> keys_of(const std::string& keys) {
  std::istringstream words(keys);
  return {std::istream_iterator<std::string>(words), {}};
}

/// A token file of pseudo-random bytes in documents of 100 tokens, written by rank 0 in its folder.
inline std::string write_tokens(const TemporaryFolder& folder, std::int64_t tokens) {
  const std::string path = folder.file("tokens.h5");
  data::TokenFileWriter writer(path, "bytes", 257);
  std::uint64_t state = 88172645463325252ull;
  std::vector<std::int32_t> document;
  for (std::int64_t i = 0; i < tokens; ++i) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    // Skewed like text: a model can learn it, so that losses change.
    document.push_back(static_cast<std::int32_t>('a' + (state >> 40) % 5 * ((state >> 20) % 5)));
    if (document.size() == 100) {
      writer.append(document);
      writer.end_document(100);
      document.clear();
    }
  }
  writer.commit("test");
  return path;
}

/// The program of a deck, lowered for MPI.
inline schedule::Program program_of(const deck::Config& config) {
  const deck::ParallelConfig& p = config.parallel;
  schedule::ProgramLayout layout{
      static_cast<int>(p.pipeline),
      static_cast<int>(config.batch.global / config.batch.micro / p.data),
      static_cast<int>(p.chunks)};
  layout.placement = p.stage_map().placement;
  schedule::Program program = schedule::generate(p.schedule, layout);
  schedule::lower(program,
                  {config.model.tied_embeddings, schedule::Transport::independent_channels});
  return program;
}

/// Losses and norms of the first steps.
struct Trace {
  std::vector<double> losses;
  std::vector<double> norms;
  bool operator==(const Trace&) const = default;
};

inline Trace run_steps(train::Engine& engine, const data::Samples& samples, std::int64_t first,
                       std::int64_t last) {
  Trace trace;
  for (std::int64_t step = first; step <= last; ++step) {
    engine.train_step(step, samples);
    const auto found = engine.result();
    trace.losses.push_back(found.loss);
    trace.norms.push_back(found.gradient_norm);
  }
  return trace;
}

/// This machine with NCCL's rules for messages between its ranks.
inline plan::Machine with_nccl() {
  plan::Machine machine = installation::this_machine();
  machine.software.transport = TransportKind::nccl;
  return machine;
}

/// This machine with offloading to another memory as on a device, even if it is the same memory.
inline plan::Machine with_own_memory() {
  plan::Machine machine = installation::this_machine();
  machine.own_memory = true;
  return machine;
}

/// An engine and everything it needs, on all ranks of `world`.
class Rig {
 public:
  Rig(const deck::Config& config, const data::TokenFile& tokens,
      grid::Communicator& world = runtime().world(), const grid::TransportFactory& transport = {},
      const plan::Machine& machine = installation::this_machine())
      : config_(config),
        machine_(machine),
        architecture_(architecture::describe(config_.model)),
        grid_(world, layout::ProcessGrid(config.parallel.axes(), world.size()),
              config.parallel.stage_map()),
        programs_(programs(transport)),
        samples(tokens, data::SampleForm(config.model), 3),
        engine(train::make_engine(config_, architecture_, grid_, machine_, programs_,
                                  train::Mode::train)) {
    engine->initialise();
  }
  Trace run(std::int64_t first, std::int64_t last) {
    return run_steps(*engine, samples, first, last);
  }
  grid::Grid& grid() { return grid_; }

 private:
  /// Called after creating the grid, before the engine requests communicators.
  std::vector<schedule::Program> programs(const grid::TransportFactory& transport) {
    if (transport) grid_.use_transports(transport);
    return plan::step_programs(config_, machine_);
  }

  deck::Config config_;
  plan::Machine machine_;
  architecture::Architecture architecture_;
  grid::Grid grid_;
  std::vector<schedule::Program> programs_;

 public:
  data::Samples samples;
  std::unique_ptr<train::Engine> engine;
};

}  // namespace trireme::testing
