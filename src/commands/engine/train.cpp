// `trireme train`: the function train() at the end of this file has eight numbered parts.
#include <trireme/base/events.hpp>
#include <trireme/base/log.hpp>
#include <trireme/commands/continued_texts.hpp>
#include <trireme/commands/engine.hpp>
#include <trireme/commands/identity.hpp>
#include <trireme/commands/images.hpp>
#include <trireme/commands/resolve.hpp>
#include <trireme/commands/restart.hpp>
#include <trireme/commands/run_folders.hpp>
#include <trireme/commands/session.hpp>
#include <trireme/data/batch_reader.hpp>
#include <trireme/deck/batch_schedule.hpp>
#include <trireme/deck/layout.hpp>
#include <trireme/grid/devices.hpp>
#include <trireme/grid/nodes.hpp>
#include <trireme/grid/transport.hpp>
#include <trireme/grid/watchdog.hpp>
#include <trireme/plan/choices.hpp>
#include <trireme/plan/memory.hpp>
#include <trireme/plan/program.hpp>
#include <trireme/plan/servers.hpp>
#include <trireme/tensor/device.hpp>
#include <trireme/train/executor.hpp>
#include <trireme/train/precision.hpp>
#include <trireme/train/trainer.hpp>

#include <csignal>
#include <fstream>
#include <span>
#include <vector>

namespace trireme::commands {
namespace {

/// Writes the resolved deck to the run's folder.
void leave_deck(const deck::Deck& deck) {
  const std::string path = deck.config.run.directory + "/deck.toml";
  std::ofstream out(path);
  out << deck::resolved_toml(deck);
  out.flush();
  check_usage(out.good(), deck.cite("run", "directory"), ": cannot write ", path,
              "; choose a folder that can be written");
}

/// Error unless all ranks have built equal programs. Collective.
void compare_programs(grid::Runtime& runtime, std::span<const schedule::Program> programs) {
  const auto mine = static_cast<std::int64_t>(schedule::fingerprint(programs));
  const auto all = runtime.world().all_gather(mine, "comparison of programs");
  runtime.together([&] {
    for (std::size_t r = 0; r < all.size(); ++r)
      check(all[r] == all[0], "rank ", r, " built other programs than rank 0");
  });
}

/// "tensor, pipeline, data": the order of the axes in the form of [parallel] order.
std::string order_text(const deck::ParallelConfig& parallel) {
  std::vector<std::string> names;
  const layout::AxisList axes = parallel.axes();
  for (const layout::AxisSize& axis : axes.axes()) names.emplace_back(name_of(axis.axis));
  return join(names, ", ");
}

/// Records the start of the job, a chosen layout, and the hosts of the ranks. Collective.
void record_start(grid::Runtime& runtime, const deck::Deck& deck, const std::string& former) {
  const deck::Config& c = deck.config;
  events::record(events::Start{TRIREME_VERSION, deck.file_name, runtime.ranks(), c.parallel.data,
                               c.parallel.pipeline, c.parallel.tensor,
                               std::string(name_of(c.parallel.schedule)), c.run.steps, batch_job(),
                               former.empty() ? std::nullopt : std::optional(former)});
  if (!former.empty()) say("took the run's folders over from ", former);
  if (!deck.layout_reason.empty())
    events::record(events::Layout{c.parallel.data, c.parallel.pipeline, c.parallel.tensor,
                                  order_text(c.parallel), std::string(name_of(c.parallel.schedule)),
                                  c.parallel.chunks, c.batch.micro, c.parallel.sequence_parallel,
                                  std::string(name_of(c.parallel.recompute)),
                                  std::string(name_of(c.parallel.shard)), c.parallel.expert,
                                  deck::fixed_keys(deck), deck.layout_reason});
  const grid::Software software = runtime.software();
  events::Ranks ranks{{},          {}, software.kokkos, software.execution_space, software.threads,
                      software.mpi};
  for (const grid::Node& node : grid::nodes(runtime.world())) {
    ranks.hosts.push_back(node.name);
    ranks.ranks_per_host.push_back(std::ssize(node.ranks));
  }
  events::record(ranks);
}

/// The back ends of attention; "": portable.
std::string attention_text(const deck::Config& config) {
  const std::string chosen =
      train::kernel_choice(config.precision).attention_description(config.precision.compute);
  const deck::VisionConfig& vision = config.model.vision;
  if (vision.present() && vision.sees_whole_images() && !chosen.empty() && device_info())
    return "portable in the language model, whose images' tokens see one another, else " + chosen;
  return config.model.packs_documents() && !chosen.empty() ? "tensor cores, else portable" : chosen;
}

void record_devices(const deck::Config& config, const plan::Machine& machine,
                    const train::Engine& engine) {
  const auto device = device_info();
  const std::string attention = attention_text(config);
  events::record(
      events::Devices{device ? device->name : "host", engine.description(),
                      attention.empty() ? "portable" : attention,
                      plan::uses_nccl(config.parallel, machine) ? grid::nccl_name() : "MPI",
                      plan::device_total(engine.memory())});
}

/// Bytes of this rank's host memory for background checkpoints; 0 without background checkpoints.
Bytes saved_bytes(const Session& session, const architecture::Shard& shard) {
  const deck::Config& c = session.config();
  if (!plan::saves_in_background(c)) return 0;
  const bool serves =
      c.parallel.has_servers() && session.grid->coordinates()[Axis::data] >= c.parallel.data;
  return serves ? plan::server_share_bytes(c, session.architecture, shard, session.machine)
                : plan::share_bytes(c, session.architecture, shard, session.machine);
}

/// The data of a run, and the identity that checkpoints store.
struct RunData {
  std::optional<data::Samples> samples;
  std::unique_ptr<data::TokenSource> validation_file;
  std::optional<data::Windows> validation;
  std::vector<std::int32_t> bytes_of_token;
  std::unique_ptr<RunTexts> texts;  ///< null without [run] prompts
  Identity identity;
};

/// UsageError if a token file cannot form batches.
void expect_usable(const deck::Config& config, const RunData& run) {
  const auto reader = data::make_batch_reader(config);
  for (std::size_t file = 0; file < run.samples->files(); ++file)
    reader->expect_usable(run.samples->windows(file));
  if (run.validation) reader->expect_usable(*run.validation);
}

/// The widest vectors of host kernels, AVX-512 or AVX2; "" without either, and on devices.
std::string_view vector_instructions() {
#if defined(__AVX512F__)
  return exec_on_host ? "AVX-512" : "";
#elif defined(__AVX2__)
  return exec_on_host ? "AVX2" : "";
#else
  return "";
#endif
}

/// The choices that determine the rounding of kernels: "fp32 products by oneDNN 2.6.3, AVX-512".
std::string kernels_text(const deck::PrecisionConfig& precision) {
  const DType type = precision.compute;
  const kernels::KernelChoice choice = train::kernel_choice(precision);
  const std::string attention = choice.attention_description(type);
  const std::string_view vectors = vector_instructions();
  return text(name_of(type), " products by ", choice.products_description(type),
              attention.empty() ? "" : ", attention " + attention, vectors.empty() ? "" : ", ",
              vectors);
}

/// Opens the token files and the prompts, and sets the identity. Collective.
RunData open_data(grid::Runtime& runtime, Session& session) {
  const deck::Config& config = session.config();
  RunData run;
  runtime.together([&] {
    if (session.training.files.empty()) session.training = open_training_data(session.deck);
    const data::SampleForm form(config.model);
    run.samples.emplace(session.training.parts(), form,
                        static_cast<std::uint64_t>(config.run.seed));
    if (!config.data.validation.empty()) {
      run.validation_file = open_validation_file(session.deck);
      run.validation.emplace(*run.validation_file, form);
    }
    expect_usable(config, run);
    images_of(session.training, run.validation_file.get());  // expects the same of validation
    if (!config.run.prompts.empty()) {
      run.texts = std::make_unique<RunTexts>(
          session.deck, images_of(session.training).value_or(data::ImageForm{.token = -1}));
      run.texts->texts().warn_of_long_prompts();
    }
    run.bytes_of_token = bytes_of_token(
        session.deck, run.validation_file ? *run.validation_file : *session.training.files.front());
    if (runtime.rank() == 0 || !config.checkpoint.local.empty()) {
      run.identity = identity_of(session.deck);
      add_answer_ends(run.identity, session.deck, session.training);
      set_kernels(run.identity, kernels_text(config.precision));
    }
    add_data(run.identity, session.training, run.validation_file.get());
  });
  return run;
}

void say_data(const Session& session, const RunData& run) {
  const deck::Config& config = session.config();
  const data::Samples& samples = *run.samples;
  events::Data data{config.data.train, std::ssize(session.training.files),
                    session.training.tokens(), std::nullopt};
  if (samples.files() == 1) data.samples_per_epoch = samples.per_epoch();
  events::record(data);
  const std::string one_epoch =
      samples.files() > 1
          ? text(" in ", samples.files(), " files, samples of ", config.model.sequence, " tokens; ")
          : text(", ", with_commas(samples.per_epoch()), " samples of ", config.model.sequence,
                 " tokens per epoch; ");
  say("data ", config.data.train, ": ", with_commas(session.training.tokens()), " tokens",
      one_epoch, config.batch.global, " per step, ", config.run.steps, " steps");
  const deck::BatchSchedule batches(config.batch);
  for (const std::string& line : blend_text(samples, batches.samples(config.run.steps)))
    say("blend ", line);
  const auto say_packing = [](const char* what, const data::TokenSource& file,
                              const data::Windows& windows) {
    const bool images = windows.documents() != nullptr;
    if (!images && windows.packed() == nullptr && windows.pairs() == nullptr) return;
    say(images                       ? "images "
        : windows.pairs() != nullptr ? "pairs "
                                     : "packing ",
        what, packing_text(file, windows));
    warn_of_packing(file, windows);
  };
  for (std::size_t i = 0; i < samples.files(); ++i)
    say_packing("", *session.training.files[i], samples.windows(i));
  if (run.validation) say_packing("of validation ", *run.validation_file, *run.validation);
  if (run.texts) say("texts ", run.texts->description());
}

/// The programs of the steps, one per size of the global batch. Collective.
std::vector<schedule::Program> make_programs(grid::Runtime& runtime, const Session& session) {
  std::vector<schedule::Program> programs;
  runtime.together([&] { programs = plan::step_programs(session.config(), session.machine); });
  compare_programs(runtime, programs);
  return programs;
}

void say_programs(const deck::Config& config, std::span<const schedule::Program> programs) {
  const schedule::ProgramLayout& layout = programs.back().layout;
  say("schedule ", name_of(config.parallel.schedule), ": ", layout.micro_batches,
      layout.micro_batches == 1 ? " micro-batch" : " micro-batches", " per rank and step on ",
      layout.stages(), layout.stages() == 1 ? " stage" : " stages");
  const deck::BatchSchedule batches(config.batch);
  if (programs.size() > 1)
    say("batch grows from ", batches.phases().front().global, " to ", config.batch.global,
        " samples in ", programs.size(), " sizes, the full batch from step ",
        with_commas(batches.phases().back().first_step), " on");
}

void say_memory(const Session& session, const architecture::Shard& shard,
                const train::Engine& engine) {
  const deck::Config& config = session.config();
  const bool served = config.parallel.has_servers();
  const Bytes copy =
      plan::checkpoint_copy_bytes(config, session.architecture, shard, session.machine);
  say(served ? "memory per rank of a worker\n" : "memory per rank\n",
      plan::table(engine.memory(), copy));
  if (!served) return;
  const auto server = plan::plan_server(config, session.architecture, session.machine);
  say("memory per rank of a server\n", plan::table(server.memory, server.parts.checkpoint_copy));
}

void say_choices(const Session& session) {
  for (const plan::Note& note : plan::notes(session.config(), session.machine)) {
    const bool names_nccl = note.topic == "transport" && !grid::nccl_name().empty();
    say(note.topic, ": ", note.words, names_nccl ? ": " + grid::nccl_name() : "");
  }
  if (const std::string by = attention_text(session.config()); !by.empty()) say("attention ", by);
}

/// Writes log and events to the run's folder from now on, and records the job's start. Collective.
void begin_log(grid::Runtime& runtime, const Session& session, const RunFolders& folders) {
  const deck::Config& config = session.config();
  const std::string events_file = config.run.directory + "/events.jsonl";
  runtime.together([&] {
    if (runtime.rank() != 0) return events::set_file(events_file, false);
    log::set_file(config.run.directory + "/log.txt");
    events::set_file(events_file, true);
  });
  record_start(runtime, session.deck, folders.former());
  say("trireme: ", runtime.description());
  say("deck ", session.deck.file_name, ": ", with_commas(session.architecture.parameters()),
      " parameters, ", name_of(config.precision.compute), ", ",
      config.parallel.sizes().named_sizes(),
      config.parallel.has_servers()
          ? text(": workers ", config.parallel.data, ", servers ", config.parallel.servers)
          : "");
  if (const std::string chosen = layout_text(session.deck); !chosen.empty())
    say("layout = \"auto\" chose ", chosen);
}

}  // namespace

ExitCode train(grid::Runtime& runtime, const TrainOptions& options) {
  std::signal(SIGPIPE, SIG_IGN);  // standard output may be closed while the run continues
  // Part 1, the runtime, is complete. Parts 2, 3: deck and grid
  Session session = open_session(runtime, options.deck, options.overrides, Ranks::as_deck_says);
  const deck::Config& config = session.config();
  const RunFolders folders(runtime, session.deck);
  begin_log(runtime, session, folders);
  std::optional<grid::Watchdog> watchdog;
  if (config.run.watchdog > 0) watchdog.emplace(runtime, config.run.directory, config.run.watchdog);

  // Part 4: token data, and the checkpoint to continue from
  RunData data = open_data(runtime, session);
  Restart restart(runtime, session.deck, data.identity);
  runtime.together([&] {  // after Restart has accepted the deck
    if (runtime.rank() == 0) leave_deck(session.deck);
  });
  say_data(session, data);

  // Part 5: programs
  const std::vector<schedule::Program> programs = make_programs(runtime, session);
  say_programs(config, programs);

  // Parts 6, 7: stages of the model, their memory, optimizer, checkpoints
  const auto engine = train::make_engine(config, session.architecture, *session.grid,
                                         session.machine, programs, train::Mode::train);
  const auto shard =
      architecture::make_shard(session.architecture, config.parallel, session.grid->coordinates());
  say_memory(session, shard, *engine);
  record_devices(config, session.machine, *engine);
  say_choices(session);
  train::Trainer trainer({config, session.architecture, runtime.world(), *data.samples,
                          data.validation ? &*data.validation : nullptr, data.bytes_of_token,
                          saved_bytes(session, shard), [&] { folders.expect_mine(); },
                          [&](std::int64_t step) {
                            return data.texts ? data.texts->write(runtime, step, *engine) : "";
                          }},
                         *engine);

  // Part 8: training
  return runtime.guard([&] {
    const Beginning beginning = restart.load(*engine);
    if (data.texts) data.texts->open(runtime, beginning.step);
    trainer.start(beginning.step, {.deck_toml = deck::resolved_toml(session.deck),
                                   .values = beginning.identity.values,
                                   .files = beginning.identity.files,
                                   .starts = beginning.starts});
    return trainer.run();
  });
}

}  // namespace trireme::commands
