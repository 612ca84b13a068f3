// The command trireme generate: replicas share the texts, and print them in order.
#include <trireme/base/log.hpp>
#include <trireme/base/text.hpp>
#include <trireme/base/utf8.hpp>
#include <trireme/checkpoint/reader.hpp>
#include <trireme/commands/engine.hpp>
#include <trireme/commands/prompts.hpp>
#include <trireme/commands/restart.hpp>
#include <trireme/commands/session.hpp>
#include <trireme/data/chat.hpp>
#include <trireme/data/instructions.hpp>
#include <trireme/data/text_stream.hpp>
#include <trireme/data/tokenizer.hpp>
#include <trireme/io/atomic_file.hpp>
#include <trireme/train/generator.hpp>

#include <nlohmann/json.hpp>

#include <array>
#include <cstdio>
#include <exception>
#include <functional>
#include <utility>

namespace trireme::commands {
namespace {

/// A message on standard error; standard output contains only the texts.
void note(const std::string& message) {
  if (log::speaking())
    std::fputs(text("trireme: note: ", printable(message), "\n").c_str(), stderr);
}

/// All texts of a command: `samples` texts for each prompt in turn.
class Texts {
 public:
  Texts(const Session& session, const GenerateOptions& options)
      : options_(options),
        tokenizer_(tokenizer_of(session.deck)),
        chat_(data::chat_format(options.chat)),
        sequence_(session.config().model.sequence),
        prompts_(prompts_of(options)) {
    if (is_chat()) data::expect_special_tokens(*tokenizer_, chat_, false);
    const std::int64_t vocabulary = session.config().model.vocabulary;
    for (std::size_t p = 0; p < prompts_.size(); ++p) {
      const std::vector<std::int32_t> ids = ids_of(p);
      for (const std::int32_t id : ids)
        check_usage(id < vocabulary, prompts_[p].where, " has token ", id, ", the model only ",
                    vocabulary);
      tokens_.push_back(std::ssize(ids));
    }
  }

  /// Logs the ids before prompts, and the prompts that are cut at the beginning.
  void announce() const {
    if (!is_chat()) note(describe_prefix(*tokenizer_, options_.prefix));
    const auto is_long = [&](std::int64_t tokens) { return tokens > sequence_; };
    const auto first = std::ranges::find_if(tokens_, is_long);
    if (first == tokens_.end()) return;
    const Prompt& prompt = prompts_[static_cast<std::size_t>(first - tokens_.begin())];
    log::warn(text(prompt.where, " has ", *first, " tokens, but [model] sequence = ", sequence_,
                   ": the first ", *first - sequence_, " are left out",
                   prompts_.size() == 1 ? ""
                                        : text(" (", std::ranges::count_if(tokens_, is_long),
                                               " of ", prompts_.size(), " prompts are too long)"),
                   "; shorten the prompt"));
  }

  /// Sets the step of the checkpoint that generates the texts.
  void set_step(std::int64_t step) { step_ = step; }

  bool is_chat() const { return chat_ != data::ChatFormat::none; }
  /// The token that ends a text; a conversation also ends with the document.
  std::int32_t end() const {
    return is_chat() ? tokenizer_->special_token(data::end_of_answer(chat_))
                     : tokenizer_->end_of_document();
  }

  std::int64_t count() const { return std::ssize(prompts_) * options_.samples; }
  const data::Tokenizer& tokenizer() const { return *tokenizer_; }
  const std::string& prompt(std::int64_t n) const { return prompts_[prompt_of_text(n)].words; }
  /// The prompt as a document's beginning, or a conversation up to the answer.
  std::vector<std::int32_t> ids(std::int64_t n) const { return ids_of(prompt_of_text(n)); }

  /// Line before a text, if there are several texts.
  std::string heading(std::int64_t n) const {
    const std::string sample = text("sample ", n % options_.samples + 1, " of ", options_.samples);
    if (prompts_.size() == 1) return options_.samples == 1 ? "" : "---- " + sample + "\n";
    return text("---- prompt ", n / options_.samples + 1, " of ", prompts_.size(),
                options_.samples == 1 ? "" : ", " + sample, "\n");
  }
  std::string json(std::int64_t n, const std::string& continuation, std::int64_t tokens,
                   const char* end) const {
    const nlohmann::ordered_json line{{"step", step_},
                                      {"prompt", prompt(n)},
                                      {"prompt_tokens", tokens_[prompt_of_text(n)]},
                                      {"prompt_tokens_left_out", left_out(n)},
                                      {"sample", n % options_.samples + 1},
                                      {"text", continuation},
                                      {"tokens", tokens},
                                      {"end", end}};
    return line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  }

 private:
  std::size_t prompt_of_text(std::int64_t n) const {
    return static_cast<std::size_t>(n / options_.samples);
  }
  std::int64_t left_out(std::int64_t n) const {
    return std::max<std::int64_t>(0, tokens_[prompt_of_text(n)] - sequence_);
  }
  std::vector<std::int32_t> ids_of(std::size_t p) const {
    const Prompt& prompt = prompts_[p];
    if (!is_chat()) {
      std::vector<std::int32_t> ids = ids_before_prompt(*tokenizer_, options_.prefix);
      tokenizer_->encode(prompt.words, ids);
      if (ids.empty()) ids.push_back(tokenizer_->end_of_document());  // a text begins with a token
      return ids;
    }
    data::expect_plain(prompt.chat, *tokenizer_, prompt.where,
                       "remove it: a message could end its turn with it");
    std::vector<std::int32_t> ids;
    try {
      tokenizer_->encode(data::prompt_of(chat_, prompt.chat), ids, {true});
    } catch (const UsageError& error) {
      throw UsageError(text(prompt.where, " ", error.what()));
    }
    if (data::uses_tools(prompt.chat)) data::expect_special_tokens(*tokenizer_, chat_, true);
    return ids;
  }

  const GenerateOptions& options_;
  std::unique_ptr<data::Tokenizer> tokenizer_;
  data::ChatFormat chat_;
  std::int64_t sequence_;
  std::int64_t step_ = 0;
  std::vector<Prompt> prompts_;
  std::vector<std::int64_t> tokens_;  ///< tokens of each prompt
};

/// Receives the words of text i as they become known; `last`: no more follow.
using Show = std::function<void(std::size_t i, const std::string& words, bool last)>;

/// The texts first, first + stride, … of a command, at most `number` of them, that a replica
/// continues.
class Replica final : public train::Continuations {
 public:
  Replica(const Texts& texts, const GenerateOptions& options, std::int64_t first,
          std::int64_t stride, std::int64_t number, Show show)
      : texts_(texts), options_(options), show_(std::move(show)) {
    for (std::int64_t n = first; n < texts.count() && std::ssize(open_) < number; n += stride)
      open_.push_back({n, nullptr, {}});
    written_.resize(open_.size());
  }

  std::size_t count() const override { return open_.size(); }
  std::vector<std::int32_t> begin(std::size_t i) override {
    Text& text = open_[i];
    const std::vector<std::int32_t> ids = texts_.ids(text.n);
    text.stream = std::make_unique<data::TextStream>(texts_.tokenizer(), ids, options_.stops);
    if (options_.output.empty())
      append(i, texts_.heading(text.n) + texts_.prompt(text.n) + (texts_.is_chat() ? "\n" : ""));
    return ids;
  }
  std::uint32_t sample(std::size_t i) const override {
    return static_cast<std::uint32_t>(open_[i].n);
  }
  bool take(std::size_t i, std::int32_t token) override {
    Text& text = open_[i];
    if (token == texts_.tokenizer().end_of_document()) return false;
    ++text.tokens;
    std::string words;
    text.stopped = !text.stream->feed(token, words);
    append(i, words);
    return !text.stopped;
  }
  void end(std::size_t i) override {
    Text& text = open_[i];
    std::string words;
    if (!text.stream->finish(words)) text.stopped = true;
    append(i, words);
    const char* end = text.stopped                     ? "stop"
                      : text.tokens == options_.tokens ? "tokens"
                      : texts_.is_chat()               ? "end_of_answer"
                                                       : "end_of_document";
    if (options_.output.empty())
      append(i, "\n");
    else
      written_[i] = texts_.json(text.n, written_[i], text.tokens, end);
    show_(i, "", true);
    text.stream = nullptr;
  }

  /// The printed or written form of each text.
  const std::vector<std::string>& written() const { return written_; }

 private:
  struct Text {
    std::int64_t n = 0;
    std::unique_ptr<data::TextStream> stream;  ///< set while the text is open
    std::int64_t tokens = 0;
    bool stopped = false;
  };

  void append(std::size_t i, const std::string& words) {
    written_[i] += words;
    show_(i, words, false);
  }

  const Texts& texts_;
  const GenerateOptions& options_;
  Show show_;
  std::vector<Text> open_;
  std::vector<std::string> written_;
};

void print(const std::string& words) {
  std::fwrite(words.data(), 1, words.size(), stdout);
  std::fflush(stdout);
}

/// Prints texts in order while they are generated: the words of the first open text as they arrive,
/// and later texts after it.
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
  const deck::Config& config = session.config();
  runtime.together([&] {
    check_usage(!config.model.predicts_masked_tokens(), session.deck.cite("model", "objective"),
                ": a model that predicts masked tokens, such as bert, cannot generate text; use a "
                "model with objective = \"next_token\", such as gpt or llama");
  });
  const std::string folder = find_model(runtime, session.deck, options.checkpoint, options.as_deck);
  const std::int64_t replicas = config.parallel.data;
  const std::int64_t replica = session.grid->coordinates()[Axis::data];
  std::unique_ptr<Texts> texts;
  std::unique_ptr<train::Generator> generator;
  std::int64_t batch = 1;
  runtime.together([&] {
    if (runtime.rank() == 0) io::expect_writable(options.output);
    texts = std::make_unique<Texts>(session, options);
    batch = std::min(options.batch, (texts->count() + replicas - 1) / replicas);
    texts->announce();
  });
  runtime.together([&] {
    generator = train::make_generator(config, session.architecture, *session.grid, batch);
    const checkpoint::Reader reader(folder, checkpoint::Opening::manifest);
    texts->set_step(reader.state().step);
    generator->load(reader);
  });

  // Replica n mod replicas generates text n. Several replicas print their results at intervals.
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
    Replica mine(*texts, options, first + replica, replicas, round,
                 [&](std::size_t i, const std::string& words, bool last) {
                   if (prints_now) printer.show(i, words, last);
                 });
    std::exception_ptr error;
    try {
      generator->generate(mine, options.tokens, texts->end(), sampling);
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
