// `trireme eval`: losses of a checkpoint on a token file, and the scores of tasks (eval_tasks.cpp), as
// text and as JSON.
#include <trireme/base/check.hpp>
#include <trireme/base/log.hpp>
#include <trireme/commands/engine.hpp>
#include <trireme/commands/eval_tasks.hpp>
#include <trireme/commands/resolve.hpp>
#include <trireme/commands/restart.hpp>
#include <trireme/commands/session.hpp>
#include <trireme/data/batch_reader.hpp>
#include <trireme/io/output_file.hpp>
#include <trireme/train/worker.hpp>

#include <nlohmann/json.hpp>

#include <cmath>

namespace trireme::commands {
namespace {

void print(const train::Evaluation& e, const std::string& checkpoint, std::int64_t step,
           const std::string& file) {
  say("checkpoint ", checkpoint, ", step ", step);
  const train::LossSum& tokens = e.tokens();
  say("data ", file, ": ", with_commas(tokens.count), " ", tokens.counted, "s",
      e.bytes > 0 ? text(", ", with_commas(e.bytes), " bytes") : "");
  for (const train::LossSum& sum : e.losses)
    say("loss ", &sum == &tokens ? "" : text("of ", sum.counted, "s "), fixed(sum.mean(), 6),
        " nats per ", sum.counted);
  say("perplexity ", fixed(std::exp(tokens.mean()), 4));
  if (e.bytes > 0) say("bits per byte ", fixed(e.bits_per_byte(), 4));
}

void add_losses(const train::Evaluation& e, nlohmann::ordered_json& json) {
  auto losses = nlohmann::ordered_json::array();
  for (const train::LossSum& sum : e.losses)
    losses.push_back({{"of", sum.counted}, {"count", sum.count}, {"loss", sum.mean()}});
  json["loss"] = e.tokens().mean();
  json["perplexity"] = std::exp(e.tokens().mean());
  json["bits_per_byte"] = e.bytes > 0 ? nlohmann::ordered_json(e.bits_per_byte()) : nullptr;
  json["bytes"] = e.bytes;
  json["losses"] = std::move(losses);
}

void write_results(grid::Runtime& runtime, const std::string& path,
                   const nlohmann::ordered_json& json) {
  if (path.empty()) return;
  runtime.together([&] {
    if (runtime.rank() == 0)
      io::write_json(path,
                     json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  });
  expect_output_written(runtime);
}

}  // namespace

ExitCode evaluate(grid::Runtime& runtime, const EvalOptions& options) {
  Session session = open_session(runtime, options.deck, options.overrides, Ranks::any_replicas);
  if (options.json != "-")
    runtime.together([&] {
      if (runtime.rank() == 0) io::expect_writable(options.json);
    });
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (!options.tasks.empty()) json = evaluate_tasks(runtime, session, options);
  if (!options.tasks.empty() && options.data.empty()) {
    write_results(runtime, options.json, json);
    return ExitCode::finished;
  }
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
  if (options.json != "-") print(e, folder, step, file->path());
  expect_output_written(runtime);
  runtime.together([&] {
    for (const train::LossSum& sum : e.losses)
      if (!std::isfinite(sum.mean()))
        throw Error(text("the loss of checkpoint ", folder, " on ", file->path(),
                         " is not finite: its weights are damaged or have diverged; evaluate an "
                         "earlier checkpoint"));
  });
  add_losses(e, json);
  json["deck"] = session.deck.file_name;
  json["checkpoint"] = folder;
  json["step"] = step;
  json["data"] = file->path();
  write_results(runtime, options.json, json);
  return ExitCode::finished;
}

}  // namespace trireme::commands
