// `trireme eval`: losses of a checkpoint on a token file, and scores of tasks, as text and as JSON.
#include <trireme/base/check.hpp>
#include <trireme/base/log.hpp>
#include <trireme/commands/engine.hpp>
#include <trireme/commands/images.hpp>
#include <trireme/commands/prompts.hpp>
#include <trireme/commands/resolve.hpp>
#include <trireme/commands/restart.hpp>
#include <trireme/commands/session.hpp>
#include <trireme/data/batch_reader.hpp>
#include <trireme/data/tasks.hpp>
#include <trireme/io/atomic_file.hpp>
#include <trireme/train/engine.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace trireme::commands {
namespace {

using data::Likelihood;
using data::Request;
using data::Task;
using nlohmann::ordered_json;

constexpr std::int64_t shortest_sequence = 16;

/// The tasks and all their requests.
struct Tasks {
  std::vector<Task> tasks;
  std::vector<Request> requests;
};

Tasks read_tasks(const deck::Deck& deck, const EvalOptions& options) {
  const auto tokenizer = tokenizer_of(deck);
  const deck::ModelConfig& model = deck.config.model;
  check_usage(options.prefix.empty() || !model.encoder.present(), "--prefix ", options.prefix,
              " has no effect with an encoder, ", deck.cite("encoder", "layers"),
              "; leave --prefix out");
  data::TaskOptions form{model.sequence, model.vocabulary,
                         prefix_token(*tokenizer, options.prefix)};
  if (model.encoder.present()) {
    const deck::SpanIds ids = deck::span_ids(deck.config);
    form.source = model.encoder.sequence;
    form.start = static_cast<std::int32_t>(ids.start);
    form.end =
        model.reads_pairs() ? tokenizer->end_of_document() : static_cast<std::int32_t>(ids.end);
  }
  check_usage(form.prefix < model.vocabulary, "the token before a text has id ", form.prefix,
              ", but the model has ", model.vocabulary,
              " ids; set data.tokenizer to the tokenizer of its training");
  Tasks found;
  for (auto file = options.tasks.begin(); file != options.tasks.end(); ++file) {
    check_usage(std::find(options.tasks.begin(), file, *file) == file, "--tasks names ", *file,
                " twice; name each file once");
    check_usage(*file != "-",
                "--tasks -: every rank reads the tasks, so standard input is not "
                "possible; give a file");
    found.tasks.push_back(data::read_task(*file, *tokenizer, form, found.requests));
  }
  return found;
}

/// Whether the model with a shorter sequence computes the same function. Learned positions are a
/// table of S rows, and dynamic scaling depends on S.
bool can_be_shorter(const deck::ModelConfig& model) {
  return model.positions == Positions::rotary && model.rope_scaling != RotaryScalingKind::dynamic;
}

/// Groups the indices of the requests by the shortest sequence length that suffices: S, S/2, S/4, …
/// Small groups join a longer length, because each group loads the weights again.
std::vector<std::pair<std::int64_t, std::vector<std::size_t>>> by_length(
    const std::vector<Request>& requests, const deck::Config& config) {
  std::vector<std::int64_t> lengths{config.model.sequence};
  const std::int64_t shortest = shortest_sequence * config.parallel.context;
  while (can_be_shorter(config.model) && lengths.back() / 2 >= shortest)
    lengths.push_back(lengths.back() / 2);
  std::vector<std::vector<std::size_t>> classes(lengths.size());
  for (std::size_t r = 0; r < requests.size(); ++r) {
    std::size_t k = 0;
    while (k + 1 < lengths.size() && std::ssize(requests[r].tokens) - 1 <= lengths[k + 1]) ++k;
    classes[k].push_back(r);
  }
  std::vector<std::pair<std::int64_t, std::vector<std::size_t>>> found;
  std::vector<std::size_t> left;
  for (std::size_t k = classes.size(); k-- > 0;) {
    left.insert(left.end(), classes[k].begin(), classes[k].end());
    const bool few = 8 * left.size() < requests.size();
    const bool more = std::any_of(classes.begin(), classes.begin() + static_cast<std::ptrdiff_t>(k),
                                  [](const auto& longer) { return !longer.empty(); });
    if (left.empty() || (few && more)) continue;
    found.emplace_back(lengths[k], std::move(left));
    left.clear();
  }
  return found;
}

/// The same model, that scores single texts: it predicts the next token only, and a sample has one
/// pair of a source and a target.
deck::Config that_scores(const deck::Config& config) {
  deck::Config scores = config.without_modules();
  if (!scores.model.encoder.present()) return scores;
  scores.model.objective = Objective::sequence_to_sequence;
  scores.model.packing = Packing::none;
  return scores;
}

/// `config` with another sequence length and about as many tokens per micro-batch as before.
deck::Config with_sequence(deck::Config config, std::int64_t sequence) {
  config.batch.micro *= config.model.sequence / sequence;
  config.batch.global = config.batch.micro * config.parallel.data;
  config.batch.ramp_start = 0;
  config.model.sequence = sequence;
  return config;
}

std::vector<Likelihood> score(grid::Runtime& runtime, Session& session, const std::string& folder,
                              const std::vector<Request>& requests) {
  std::vector<Likelihood> likelihoods(requests.size());
  for (const auto& [sequence, chosen] : by_length(requests, session.config())) {
    const deck::Config config = with_sequence(that_scores(session.config()), sequence);
    const auto architecture = architecture::describe(config.model);
    const auto engine = train::make_engine(config, architecture, *session.grid, session.machine, {},
                                           train::Mode::evaluate);
    std::vector<Request> part;
    for (const std::size_t r : chosen) part.push_back(requests[r]);
    runtime.together(
        [&] { engine->load(checkpoint::Reader(folder, checkpoint::Opening::manifest)); });
    const auto scores = engine->score(data::Requests(std::move(part), sequence));
    for (std::size_t i = 0; i < chosen.size(); ++i)
      likelihoods[chosen[i]] = {scores[i].log_likelihood, scores[i].greedy};
  }
  return likelihoods;
}

/// Six decimals, or seven significant digits if the absolute value is at least 1e7.
std::string shown(double value) {
  if (std::abs(value) < 1e7) return fixed(value, 6);
  std::array<char, 32> digits{};
  std::snprintf(digits.data(), digits.size(), "%.6e", value);
  return digits.data();
}

void print(const std::vector<Task>& tasks, std::span<const Likelihood> likelihoods) {
  std::size_t width = 4;
  for (const Task& task : tasks) width = std::max(width, task.path.size());
  say(padded("task", width), "  ", padded("measure", 15), "  ", padded("value", 14), "  ",
      padded("standard error", 14), "  samples");
  for (const Task& task : tasks)
    for (const data::Measure& m : data::measures(task, likelihoods))
      say(padded(task.path, width), "  ", padded(m.name, 15), "  ", padded(shown(m.value), 14),
          "  ", padded(m.error ? shown(*m.error) : "-", 14), "  ",
          with_commas(std::ssize(task.items)));
  for (const Task& task : tasks)
    if (task.truncated > 0)
      say(task.path, ": contexts cut from the left to fit the model's sequence: ",
          with_commas(task.truncated));
}

ordered_json results_json(const std::vector<Task>& tasks, std::span<const Likelihood> likelihoods,
                          const Session& session, const std::string& checkpoint) {
  ordered_json results = ordered_json::object();
  for (const Task& task : tasks) {
    ordered_json entry{{"kind", data::name_of(task.kind)},
                       {"samples", task.items.size()},
                       {"truncated", task.truncated}};
    for (const data::Measure& m : data::measures(task, likelihoods)) {
      entry[m.name] = m.value;
      entry[m.name + "_stderr"] = m.error ? ordered_json(*m.error) : ordered_json();
    }
    results[task.path] = std::move(entry);
  }
  return {{"deck", session.deck.file_name},
          {"checkpoint", checkpoint},
          {"results", std::move(results)}};
}

std::string likelihoods_json(const std::vector<Task>& tasks, const std::vector<Request>& requests,
                             std::span<const Likelihood> likelihoods) {
  std::string lines;
  for (const Task& task : tasks)
    for (const data::TaskItem& item : task.items)
      for (std::size_t i = 0; i < item.count; ++i) {
        const Likelihood& found = likelihoods[item.first + i];
        const Request& request = requests[item.first + i];
        ordered_json line{{"task", task.path},
                          {"line", item.line},
                          {"request", i},
                          {"log_likelihood", found.nats},
                          {"greedy", found.greedy},
                          {"tokens", std::ssize(request.tokens) - request.context},
                          {"context_tokens", request.context}};
        if (task.kind == data::TaskKind::multiple_choice)
          line["gold"] = static_cast<std::int64_t>(i) == item.gold;
        lines += line.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
      }
  return lines;
}

ordered_json evaluate_tasks(grid::Runtime& runtime, Session& session, const EvalOptions& options) {
  const deck::Config& config = session.config();
  Tasks found;
  runtime.together([&] {
    check_usage(config.model.predicts_next_token() || config.model.encoder.present(),
                session.deck.cite("model", "objective"),
                ": a model that predicts masked tokens, such as bert, has no likelihood of a "
                "continuation; use a model with objective = \"next_token\", such as gpt or llama");
    check_usage(!config.model.vision.present(), session.deck.cite("vision", "layers"),
                ": --tasks has no images; evaluate a token file with images, without --tasks");
    if (runtime.rank() == 0)
      for (const std::string& path : {options.output, options.log_likelihoods})
        io::expect_writable(path);
    found = read_tasks(session.deck, options);
  });
  const std::string folder = find_model(runtime, session.deck, options.checkpoint, options.as_deck);
  const std::vector<Likelihood> likelihoods = score(runtime, session, folder, found.requests);
  runtime.together([&] {
    for (const Task& task : found.tasks)
      for (const data::TaskItem& item : task.items)
        for (std::size_t i = 0; i < item.count; ++i)
          if (!std::isfinite(likelihoods[item.first + i].nats))
            throw Error(
                text("the log-likelihood of ", task.path, ":", item.line, " by checkpoint ", folder,
                     " is not finite: its weights are damaged or have diverged; evaluate an "
                     "earlier checkpoint"));
  });
  const ordered_json results = results_json(found.tasks, likelihoods, session, folder);
  if (options.json != "-") {
    say("checkpoint ", folder);
    print(found.tasks, likelihoods);
  }
  runtime.together([&] {
    if (runtime.rank() > 0) return;
    if (!options.output.empty())
      io::write_output(options.output,
                       results.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n",
                       "; choose another file with -o");
    if (!options.log_likelihoods.empty())
      io::write_output(options.log_likelihoods,
                       likelihoods_json(found.tasks, found.requests, likelihoods),
                       "; choose another file with --log-likelihoods");
  });
  expect_output_written(runtime);
  return results;
}

void print(const train::Evaluation& e, const std::string& checkpoint, std::int64_t step,
           const std::string& file) {
  say("checkpoint ", checkpoint, ", step ", step);
  const train::LossSum& tokens = e.tokens();
  say("data ", file, ": ", with_commas(tokens.count), " ", tokens.counted, "s",
      e.bytes > 0 ? text(", ", with_commas(e.bytes), " bytes") : "");
  for (const train::LossSum& sum : e.losses)
    say(sum.name, " ", fixed(sum.mean(), 6), &sum == &tokens ? " nats per " : " per ", sum.counted);
  const auto of_layers = [](const char* what, const std::vector<double>& values) {
    std::vector<std::string> all;
    for (const double value : values) all.push_back(fixed(value, 2));
    if (!all.empty()) say(what, join(all, ", "));
  };
  of_layers("load of the most used expert of each layer, relative to the mean: ", e.expert_loads);
  of_layers("fraction of dropped choices of experts of each layer: ", e.dropped_choices);
  say("perplexity ", fixed(std::exp(tokens.mean()), 4));
  if (e.bytes > 0) say("bits per byte ", fixed(e.bits_per_byte(), 4));
}

void add_losses(const train::Evaluation& e, nlohmann::ordered_json& json) {
  auto losses = nlohmann::ordered_json::array();
  for (const train::LossSum& sum : e.losses)
    losses.push_back(
        {{"name", sum.name}, {"of", sum.counted}, {"count", sum.count}, {"loss", sum.mean()}});
  json["loss"] = e.tokens().mean();
  json["perplexity"] = std::exp(e.tokens().mean());
  json["bits_per_byte"] = e.bytes > 0 ? nlohmann::ordered_json(e.bits_per_byte()) : nullptr;
  json["bytes"] = e.bytes;
  json["losses"] = std::move(losses);
  if (!e.expert_loads.empty()) json["expert_loads"] = e.expert_loads;
  if (!e.dropped_choices.empty()) json["dropped_choices"] = e.dropped_choices;
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
    if (!options.data.empty()) {
      deck.config.data.validation = options.data;
      deck.places["data.validation"] = "--data";
    }
    check_usage(!config.data.validation.empty(), deck.file_name,
                ": nothing to evaluate on; give --data FILE or [data] validation");
    file = open_validation_file(deck);
    windows.emplace(*file, data::SampleForm(config.model));
    data::make_batch_reader(config)->expect_usable(*windows);
    if (runtime.rank() == 0) file->verify_bytes();  // all bytes are about to be read
    bytes = bytes_of_token(deck, *file);
  });

  const std::string folder = find_model(runtime, session.deck, options.checkpoint, options.as_deck);
  const auto engine = train::make_engine(config, session.architecture, *session.grid,
                                         session.machine, {}, train::Mode::evaluate);
  std::int64_t step = 0;
  runtime.together([&] {
    const checkpoint::Reader reader(folder, checkpoint::Opening::manifest);
    expect_same_images(*file, images_of(reader.state().values), folder);
    engine->load(reader);
    step = reader.state().step;
  });
  const train::Evaluation e = engine->evaluate(*windows, windows->count(), bytes);
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
