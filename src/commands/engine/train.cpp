#include <trireme/base/log.hpp>
#include <trireme/checkpoint/reader.hpp>
#include <trireme/checkpoint/verify.hpp>
#include <trireme/commands/engine.hpp>
#include <trireme/commands/resolve.hpp>
#include <trireme/commands/session.hpp>
#include <trireme/grid/watchdog.hpp>
#include <trireme/plan/memory.hpp>
#include <trireme/plan/program.hpp>
#include <trireme/train/executor.hpp>
#include <trireme/train/trainer.hpp>

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

namespace trireme::commands {
namespace {

/// Makes the run's folder and leaves the resolved deck in it. On one rank.
void open_directory(const deck::Deck& deck) {
  const std::string& directory = deck.config.run.directory;
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  std::ofstream out(directory + "/deck.toml");
  out << deck::resolved_toml(deck);
  out.flush();
  check_usage(out.good(), deck.cite("run", "directory"), ": cannot write ", directory, "/deck.toml",
              error ? text(" (", error.message(), ")") : "",
              "; choose a folder that can be written");
  log::set_file(directory + "/log.txt");
}

/// So that a folder that cannot be written is found now and not at the first checkpoint.
void open_checkpoint_directory(const deck::Deck& deck) {
  const std::string& directory = deck.config.checkpoint.directory;
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  check_usage(!error && ::access(directory.c_str(), W_OK | X_OK) == 0,
              deck.cite("checkpoint", "directory"), ": cannot write there (",
              error ? error.message() : std::strerror(errno),
              "); choose a folder that can be written");
}

std::string restart_folder(const deck::Deck& deck) {
  const std::string& restart = deck.config.checkpoint.restart;
  if (restart == "none") return "";
  if (restart != "latest") return find_checkpoint(deck, restart);
  std::set<std::string> damaged;  // one whose numbers are not intact is found by reading them
  while (const auto folder = checkpoint::latest(deck.config.checkpoint.directory, damaged)) {
    try {
      checkpoint::verify(*folder);
      return *folder;
    } catch (const Error& error) {
      log::warn(text("checkpoint ", *folder, " is passed over: ", error.what()));
      damaged.insert(*folder);
    }
  }
  return "";
}

/// Every rank builds the whole program and runs its row: they must have built the same.
void compare_programs(grid::Runtime& runtime, const schedule::Program& program) {
  const auto mine = static_cast<std::int64_t>(schedule::fingerprint(program));
  const auto all = runtime.world().all_gather(mine, "comparison of programs");
  runtime.together([&] {
    for (std::size_t r = 0; r < all.size(); ++r)
      check(all[r] == all[0], "rank ", r, " built another program than rank 0");
  });
}

}  // namespace

ExitCode train(grid::Runtime& runtime, const TrainOptions& options) {
  // 1 runtime: MPI, Kokkos and the device are up. 2, 3 deck and process grid.
  Session session = open_session(runtime, options.deck, options.overrides, Ranks::as_deck_says);
  const deck::Config& config = session.config();
  runtime.together([&] {
    if (runtime.rank() != 0) return;
    open_directory(session.deck);
    open_checkpoint_directory(session.deck);
  });
  std::optional<grid::Watchdog> watchdog;
  if (config.run.watchdog > 0) watchdog.emplace(runtime, config.run.directory, config.run.watchdog);
  say("trireme: ", runtime.description());
  say("deck ", session.deck.file_name, ": ", with_commas(session.architecture.parameters()),
      " parameters, ", name_of(config.precision.compute), ", data ", config.parallel.data,
      " · pipeline ", config.parallel.pipeline, " · tensor ", config.parallel.tensor);

  // 4 token data
  std::optional<data::Samples> samples;
  std::unique_ptr<data::TokenSource> validation_file;
  std::optional<data::Windows> validation;
  std::vector<std::int32_t> bytes;
  runtime.together([&] {
    if (session.training.files.empty()) session.training = open_training_data(session.deck);
    samples.emplace(session.training.parts(), config.model.sequence,
                    static_cast<std::uint64_t>(config.run.seed));
    if (!config.data.validation.empty()) {
      validation_file = open_validation_file(session.deck);
      validation.emplace(*validation_file, config.model.sequence);
    }
    bytes = bytes_of_token(session.deck, *session.training.files.front());
  });
  const std::string restart = found_by_one(runtime, [&] { return restart_folder(session.deck); });
  const std::string one_epoch = samples->files() > 1
                                    ? text(" in ", samples->files(), " files, samples of ",
                                           config.model.sequence, " tokens; ")
                                    : text(", ", with_commas(samples->per_epoch()), " samples of ",
                                           config.model.sequence, " tokens per epoch; ");
  say("data ", config.data.train, ": ", with_commas(session.training.tokens()), " tokens",
      one_epoch, config.batch.global, " per step, ", config.run.steps, " steps");

  // 5 program
  schedule::Program program;
  runtime.together([&] { program = plan::step_program(config); });
  compare_programs(runtime, program);
  say("schedule ", name_of(config.parallel.schedule), ": ", program.layout.micro_batches,
      " micro-batches per rank and step on ", program.layout.stages(),
      program.layout.stages() == 1 ? " stage" : " stages");

  // 6, 7 model, memory, optimizer
  const auto worker =
      train::make_worker(config, session.architecture, *session.grid, &program, train::Mode::train);
  const layout::Coordinates at = session.grid->coordinates();
  const Bytes copy = plan::checkpoint_copy_bytes(
      config, session.architecture,
      architecture::make_shard(session.architecture, static_cast<int>(config.parallel.pipeline),
                               static_cast<int>(config.parallel.chunks), at.pipeline,
                               static_cast<int>(config.parallel.tensor), at.tensor));
  say("memory per rank\n", plan::table(worker->memory(), copy));

  // 8 train
  train::Trainer trainer(
      {config, session.architecture, runtime.world(), *samples, validation ? &*validation : nullptr,
       bytes, deck::resolved_toml(session.deck), copy},
      *worker);
  return runtime.guard([&] {
    trainer.start(restart);
    return trainer.run();
  });
}

}  // namespace trireme::commands
