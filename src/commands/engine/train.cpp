#include <trireme/base/log.hpp>
#include <trireme/commands/engine.hpp>
#include <trireme/commands/resolve.hpp>
#include <trireme/commands/restart.hpp>
#include <trireme/commands/session.hpp>
#include <trireme/data/batch_reader.hpp>
#include <trireme/deck/batch_schedule.hpp>
#include <trireme/grid/transport.hpp>
#include <trireme/grid/watchdog.hpp>
#include <trireme/plan/choices.hpp>
#include <trireme/plan/memory.hpp>
#include <trireme/plan/program.hpp>
#include <trireme/train/executor.hpp>
#include <trireme/train/kernel_choice.hpp>
#include <trireme/train/trainer.hpp>

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <span>
#include <vector>

namespace trireme::commands {
namespace {

/// Makes the folder of [section] directory. One that cannot be written is found now and not at the
/// first checkpoint.
void open_directory(const deck::Deck& deck, const char* section, const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (!error && ::access(directory.c_str(), W_OK | X_OK) != 0)
    error = std::error_code(errno, std::generic_category());
  check_usage(!error, deck.cite(section, "directory"), ": cannot write there (", error.message(),
              "); choose a folder that can be written");
}

/// Leaves the resolved deck in the run's folder.
void leave_deck(const deck::Deck& deck) {
  const std::string path = deck.config.run.directory + "/deck.toml";
  std::ofstream out(path);
  out << deck::resolved_toml(deck);
  out.flush();
  check_usage(out.good(), deck.cite("run", "directory"), ": cannot write ", path,
              "; choose a folder that can be written");
}

/// Every rank builds the whole programs and runs its rows: they must have built the same.
void compare_programs(grid::Runtime& runtime, std::span<const schedule::Program> programs) {
  const auto mine = static_cast<std::int64_t>(schedule::fingerprint(programs));
  const auto all = runtime.world().all_gather(mine, "comparison of programs");
  runtime.together([&] {
    for (std::size_t r = 0; r < all.size(); ++r)
      check(all[r] == all[0], "rank ", r, " built other programs than rank 0");
  });
}

}  // namespace

namespace {

/// Files that batches cannot be made of are found before the first step.
void expect_usable(const deck::Config& config, const data::Samples& samples,
                   const std::optional<data::Windows>& validation) {
  const auto reader = data::make_batch_reader(config);
  for (std::size_t file = 0; file < samples.files(); ++file)
    reader->expect_usable(samples.windows(file));
  if (validation) reader->expect_usable(*validation);
}

}  // namespace

ExitCode train(grid::Runtime& runtime, const TrainOptions& options) {
  // 1 runtime: MPI, Kokkos and the device are up. 2, 3 deck and process grid.
  Session session = open_session(runtime, options.deck, options.overrides, Ranks::as_deck_says);
  const deck::Config& config = session.config();
  runtime.together([&] {
    if (runtime.rank() != 0) return;
    open_directory(session.deck, "run", config.run.directory);
    open_directory(session.deck, "checkpoint", config.checkpoint.directory);
    log::set_file(config.run.directory + "/log.txt");
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
    const std::int64_t text_tokens = config.model.text_tokens();
    samples.emplace(session.training.parts(), text_tokens,
                    static_cast<std::uint64_t>(config.run.seed));
    if (!config.data.validation.empty()) {
      validation_file = open_validation_file(session.deck);
      validation.emplace(*validation_file, text_tokens);
    }
    expect_usable(config, *samples, validation);
    bytes = bytes_of_token(session.deck, *session.training.files.front());
  });
  Restart restart(runtime, session.deck);
  runtime.together([&] {  // not before a deck that contradicts the checkpoint is refused
    if (runtime.rank() == 0) leave_deck(session.deck);
  });
  const std::string one_epoch = samples->files() > 1
                                    ? text(" in ", samples->files(), " files, samples of ",
                                           config.model.sequence, " tokens; ")
                                    : text(", ", with_commas(samples->per_epoch()), " samples of ",
                                           config.model.sequence, " tokens per epoch; ");
  say("data ", config.data.train, ": ", with_commas(session.training.tokens()), " tokens",
      one_epoch, config.batch.global, " per step, ", config.run.steps, " steps");

  // 5 program
  std::vector<schedule::Program> programs;  // of each size of the global batch
  runtime.together([&] { programs = plan::step_programs(config, session.machine); });
  compare_programs(runtime, programs);
  const schedule::ProgramLayout& layout = programs.back().layout;
  say("schedule ", name_of(config.parallel.schedule), ": ", layout.micro_batches,
      " micro-batches per rank and step on ", layout.stages(),
      layout.stages() == 1 ? " stage" : " stages");
  const deck::BatchSchedule batches(config.batch);
  if (programs.size() > 1)
    say("batch grows from ", batches.phases().front().global, " to ", config.batch.global,
        " samples in ", programs.size(), " sizes, the full one from step ",
        with_commas(batches.phases().back().first_step), " on");

  // 6, 7 model, memory, optimizer
  const auto worker = train::make_worker(config, session.architecture, *session.grid,
                                         session.machine, programs, train::Mode::train);
  const layout::Coordinates at = session.grid->coordinates();
  const Bytes copy = plan::checkpoint_copy_bytes(
      config, session.architecture,
      architecture::make_shard(session.architecture, static_cast<int>(config.parallel.pipeline),
                               static_cast<int>(config.parallel.chunks), at.pipeline,
                               static_cast<int>(config.parallel.tensor), at.tensor),
      session.machine);
  say("memory per rank\n", plan::table(worker->memory(), copy));
  if (const std::string note = plan::transport_note(config.parallel, session.machine);
      !note.empty())
    say("transport: ", note, grid::nccl_name().empty() ? "" : ": " + grid::nccl_name());
  if (config.parallel.offload != Offload::none)
    say("offload = ", plan::offload_note(config.parallel, session.machine));
  if (config.precision.tf32) say("tf32: ", plan::tf32_note(config.precision, session.machine));
  if (const std::string note = plan::attention_note(config.precision, session.machine);
      !note.empty())
    say("attention: ", note);
  const auto choice = train::kernel_choice(config.precision);
  if (const std::string by = choice.attention_description(config.precision.compute); !by.empty())
    say("attention ", by);

  // 8 train
  train::Trainer trainer(
      {config, session.architecture, runtime.world(), *samples, validation ? &*validation : nullptr,
       bytes, deck::resolved_toml(session.deck), copy},
      *worker);
  return runtime.guard([&] {
    trainer.start(restart.load(*worker));
    return trainer.run();
  });
}

}  // namespace trireme::commands
