#include <trireme/base/check.hpp>
#include <trireme/base/log.hpp>
#include <trireme/commands/engine.hpp>
#include <trireme/commands/eval_tasks.hpp>
#include <trireme/commands/resolve.hpp>
#include <trireme/commands/restart.hpp>
#include <trireme/commands/session.hpp>
#include <trireme/data/batch_reader.hpp>
#include <trireme/train/worker.hpp>

#include <cmath>

namespace trireme::commands {

ExitCode evaluate(grid::Runtime& runtime, const EvalOptions& options) {
  Session session = open_session(runtime, options.deck, options.overrides, Ranks::any_replicas);
  if (!options.tasks.empty()) evaluate_tasks(runtime, session, options);
  if (!options.tasks.empty() && options.data.empty()) return ExitCode::finished;
  const deck::Config& config = session.config();

  std::unique_ptr<data::TokenSource> file;
  std::optional<data::Windows> windows;
  std::vector<std::int32_t> bytes;
  runtime.together([&] {
    deck::Deck& deck = session.deck;
    if (!options.data.empty()) deck.config.data.validation = options.data;
    check_usage(!config.data.validation.empty(), deck.file_name,
                ": nothing to evaluate on; give --data FILE or [data] validation");
    file = open_validation_file(deck);
    windows.emplace(*file, config.model.text_tokens(), config.model.packing);
    data::make_batch_reader(config)->expect_usable(*windows);
    if (runtime.rank() == 0) file->verify_bytes();  // all of them are about to be read
    bytes = bytes_of_token(deck, *file);
  });

  const std::string folder = find_model(runtime, session.deck, options.checkpoint, options.as_deck);
  const auto worker = train::make_worker(config, session.architecture, *session.grid,
                                         session.machine, {}, train::Mode::evaluate);
  std::int64_t step = 0;
  runtime.together([&] {
    const checkpoint::Reader reader(folder, checkpoint::Opening::manifest);
    worker->load(reader);
    step = reader.state().step;
  });
  const train::Evaluation e = worker->evaluate(*windows, windows->count(), bytes);
  say("checkpoint ", folder, ", step ", step);
  const train::LossSum& tokens = e.tokens();
  say("data ", file->path(), ": ", with_commas(tokens.count), " ", tokens.counted, "s",
      e.bytes > 0 ? text(", ", with_commas(e.bytes), " bytes") : "");
  for (const train::LossSum& sum : e.losses)
    say("loss ", &sum == &tokens ? "" : text("of ", sum.counted, "s "), fixed(sum.mean(), 6),
        " nats per ", sum.counted);
  say("perplexity ", fixed(std::exp(tokens.mean()), 4));
  if (e.bytes > 0) say("bits per byte ", fixed(e.bits_per_byte(), 4));
  expect_output_written(runtime);
  runtime.together([&] {
    for (const train::LossSum& sum : e.losses)
      if (!std::isfinite(sum.mean()))
        throw Error(text("the loss of checkpoint ", folder, " on ", file->path(),
                         " is not finite: its weights are damaged or have diverged; evaluate an "
                         "earlier checkpoint"));
  });
  return ExitCode::finished;
}

}  // namespace trireme::commands
