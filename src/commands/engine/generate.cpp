// `trireme generate`: the replicas share the texts, and rank 0 prints or writes them in order.
#include <trireme/base/log.hpp>
#include <trireme/base/text.hpp>
#include <trireme/base/utf8.hpp>
#include <trireme/checkpoint/reader.hpp>
#include <trireme/commands/continued_texts.hpp>
#include <trireme/commands/engine.hpp>
#include <trireme/commands/images.hpp>
#include <trireme/commands/prompts.hpp>
#include <trireme/commands/restart.hpp>
#include <trireme/commands/session.hpp>
#include <trireme/io/atomic_file.hpp>
#include <trireme/train/generator.hpp>

#include <cstdio>
#include <exception>
#include <functional>
#include <utility>

namespace trireme::commands {
namespace {

/// Prints a message on standard error; standard output contains only the texts.
void note(const std::string& message) {
  if (log::speaking())
    std::fputs(text("trireme: note: ", printable(message), "\n").c_str(), stderr);
}

void print(const std::string& words) {
  std::fwrite(words.data(), 1, words.size(), stdout);
  std::fflush(stdout);
}

/// Prints texts in order while they are generated.
class Printer {
 public:
  explicit Printer(std::size_t texts) : kept_(texts), ended_(texts) {}

  void show(std::size_t i, const std::string& words, bool last) {
    if (i == first_ && !words.empty())
      print(words);
    else
      kept_[i] += words;
    ended_[i] = ended_[i] || last;
    if (i != first_ || !last) return;
    while (first_ < ended_.size() && ended_[first_]) {
      if (++first_ < kept_.size() && !kept_[first_].empty())
        print(std::exchange(kept_[first_], {}));
    }
  }

 private:
  std::vector<std::string> kept_;
  std::vector<bool> ended_;
  std::size_t first_ = 0;
};

}  // namespace

ExitCode generate(grid::Runtime& runtime, const GenerateOptions& options) {
  Session session =
      open_session(runtime, options.deck, options.overrides, Ranks::replicas_for_generation);
  const deck::Config config = session.config().without_modules();
  runtime.together([&] {
    check_usage(!config.model.predicts_masked_tokens(), session.deck.cite("model", "objective"),
                ": a model that predicts masked tokens, such as bert, cannot generate text; use a "
                "model with objective = \"next_token\", such as gpt or llama, or one with an "
                "encoder and a decoder, such as t5");
    check_usage(options.chat.empty() || !config.model.encoder.present(), "--chat ", options.chat,
                " needs a model that continues a conversation, but the deck has ",
                session.deck.cite("encoder", "layers"), "; leave --chat out");
  });
  const std::string folder = find_model(runtime, session.deck, options.checkpoint, options.as_deck);
  const std::int64_t replicas = config.parallel.data;
  const std::int64_t replica = session.grid->coordinates()[Axis::data];
  std::unique_ptr<Texts> texts;
  const auto architecture = architecture::describe(config.model);
  std::unique_ptr<train::Generator> generator;
  std::int64_t batch = 1;
  runtime.together([&] {
    if (runtime.rank() == 0) io::expect_writable(options.output);
    const checkpoint::Reader reader(folder, checkpoint::Opening::manifest);
    texts = std::make_unique<Texts>(session.deck, options, images_of(reader.state().values));
    texts->set_step(reader.state().step);
    batch = std::min(options.batch, (texts->count() + replicas - 1) / replicas);
    if (!texts->is_chat()) note(texts->prefix_text());
    if (const std::string images = texts->image_text(); !images.empty()) note(images);
    texts->warn_of_long_prompts();
  });
  runtime.together([&] {
    generator = train::make_generator(config, architecture, *session.grid, {batch, options.tokens});
    const checkpoint::Reader reader(folder, checkpoint::Opening::manifest);
    generator->load(reader);
  });

  // Replica n mod replicas generates text n. With several replicas, rank 0 prints the texts of a
  // round when the round is complete.
  const train::Sampling sampling{options.temperature,
                                 options.top_k,
                                 static_cast<std::uint64_t>(options.seed),
                                 texts->tokenizer().vocabulary(),
                                 options.top_p,
                                 options.min_p};
  const bool prints = options.output.empty();
  const std::int64_t round = replicas == 1 ? texts->count() : 4 * batch;
  const bool leads = session.grid->model().rank() == 0;
  std::string written;
  for (std::int64_t first = 0; first < texts->count(); first += round * replicas) {
    Printer printer(static_cast<std::size_t>(round));
    const bool prints_now = prints && replicas == 1 && runtime.rank() == 0;
    ContinuedTexts mine(*texts, options, first + replica, replicas, round,
                        [&](std::size_t i, const std::string& words, bool last) {
                          if (prints_now) printer.show(i, words, last);
                        });
    std::exception_ptr error;
    try {
      generator->generate(mine, texts->end(), sampling);
    } catch (const train::LogitError&) {
      error = std::current_exception();
    }
    runtime.together([&] {
      if (error) std::rethrow_exception(error);
    });
    const auto all =
        runtime.world().gather(leads ? pack_texts(mine.written()) : "", 0, "generated texts");
    std::vector<std::vector<std::string>> of_replicas;
    for (const std::string& packed : all)
      if (!packed.empty()) of_replicas.push_back(unpack_texts(packed));
    std::string words;
    for (std::size_t i = 0; !of_replicas.empty() && i < of_replicas[0].size(); ++i)
      for (const auto& some : of_replicas)
        if (i < some.size()) words += some[i];
    if (!prints)
      written += words;
    else if (!prints_now && runtime.rank() == 0)
      print(words);
  }
  runtime.together([&] {
    if (runtime.rank() > 0 || prints) return;
    io::write_output(options.output, written, "; choose another file with -o");
    say(options.output, ": ", texts->count(), texts->count() == 1 ? " text" : " texts");
  });
  expect_output_written(runtime);
  return ExitCode::finished;
}

}  // namespace trireme::commands
