// The command trireme generate: the ranks share the texts, each has the whole model.
#include <trireme/base/input.hpp>
#include <trireme/base/log.hpp>
#include <trireme/checkpoint/reader.hpp>
#include <trireme/commands/engine.hpp>
#include <trireme/commands/restart.hpp>
#include <trireme/commands/session.hpp>
#include <trireme/data/text_stream.hpp>
#include <trireme/data/tokenizer.hpp>
#include <trireme/io/atomic_file.hpp>
#include <trireme/io/output_file.hpp>
#include <trireme/io/text_reader.hpp>
#include <trireme/train/generator.hpp>

#include <nlohmann/json.hpp>

#include <array>
#include <cstdio>
#include <functional>

namespace trireme::commands {
namespace {

std::string whole_file(const std::string& path) {
  io::TextReader reader(path);
  std::string content;
  std::array<char, 1 << 16> block{};
  while (const std::size_t n = reader.read(block)) content.append(block.data(), n);
  return content;
}

/// The prompt of a line of a .jsonl file.
std::string prompt_of(const std::string& line, const std::string& cited) {
  const auto object = nlohmann::json::parse(line, nullptr, false);
  check_usage(object.is_object() && object.contains("prompt") && object["prompt"].is_string(),
              cited, R"(: expected an object such as {"prompt": "Once upon a time"})");
  return object["prompt"].get<std::string>();
}

/// One prompt per line.
std::vector<std::string> prompts_in(const std::string& path) {
  const std::string content = whole_file(path);
  const bool is_json = path.ends_with(".jsonl");
  std::vector<std::string> prompts;
  for (std::size_t begin = 0, number = 1; begin < content.size(); ++number) {
    const std::size_t end = std::min(content.find('\n', begin), content.size());
    std::string line = content.substr(begin, end - begin);
    if (line.ends_with('\r')) line.pop_back();
    prompts.push_back(is_json ? prompt_of(line, text(path, ":", number)) : line);
    begin = end + 1;
  }
  check_usage(!prompts.empty(), path, ": has no prompts; write one per line");
  return prompts;
}

/// All texts of a command: `samples` of each prompt in turn.
class Texts {
 public:
  Texts(const Session& session, const GenerateOptions& options)
      : options_(options),
        tokenizer_(tokenizer_of(session.deck)),
        prompts_(options.prompts.empty() ? std::vector{options.prompt}
                                         : prompts_in(options.prompts)),
        sampling_{options.temperature,      options.top_k, static_cast<std::uint64_t>(options.seed),
                  tokenizer_->vocabulary(), options.top_p, options.min_p} {
    const std::int64_t vocabulary = session.config().model.vocabulary;
    for (std::size_t p = 0; p < prompts_.size(); ++p)
      for (const std::int32_t id : ids_of(p))
        check_usage(id < vocabulary,
                    options.prompts.empty() ? "the prompt" : text(options.prompts, ":", p + 1),
                    " has token ", id, ", the model only ", vocabulary);
  }

  std::int64_t count() const { return std::ssize(prompts_) * options_.samples; }

  /// Text number `n`, which depends only on (seed, n, prompt): what is printed or written. `show`
  /// gets the pieces of a printed text as they are known.
  std::string write(train::Generator& generator, std::int64_t n,
                    const std::function<void(const std::string&)>& show) const {
    const auto p = static_cast<std::size_t>(n / options_.samples);
    const std::vector<std::int32_t> ids = ids_of(p);
    data::TextStream stream(*tokenizer_, ids, options_.stops);
    std::string continuation;
    std::int64_t tokens = 0;
    bool stopped = false;
    show(heading(n) + prompts_[p]);
    const auto append = [&](const auto& next) {
      std::string piece;
      const bool goes_on = next(piece);
      continuation += piece;
      show(piece);
      return goes_on;
    };
    generator.generate(ids, options_.tokens, tokenizer_->end_of_document(), sampling_,
                       static_cast<std::uint32_t>(n), [&](std::int32_t id) {
                         ++tokens;
                         stopped = !append([&](std::string& out) { return stream.feed(id, out); });
                         return !stopped;
                       });
    if (!append([&](std::string& out) { return stream.finish(out); })) stopped = true;
    show("\n");
    if (options_.output.empty()) return heading(n) + prompts_[p] + continuation + "\n";
    const char* end = stopped ? "stop" : tokens == options_.tokens ? "tokens" : "end_of_document";
    const nlohmann::ordered_json line{{"prompt", prompts_[p]},
                                      {"sample", n % options_.samples + 1},
                                      {"text", continuation},
                                      {"tokens", tokens},
                                      {"end", end}};
    return line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  }

 private:
  std::vector<std::int32_t> ids_of(std::size_t p) const {
    std::vector<std::int32_t> ids{tokenizer_->end_of_document()};  // a document's beginning
    tokenizer_->encode(prompts_[p], ids);
    return ids;
  }

  /// The line before a text if there are several.
  std::string heading(std::int64_t n) const {
    const std::string sample = text("sample ", n % options_.samples + 1, " of ", options_.samples);
    if (prompts_.size() == 1) return options_.samples == 1 ? "" : "---- " + sample + "\n";
    return text("---- prompt ", n / options_.samples + 1, " of ", prompts_.size(),
                options_.samples == 1 ? "" : ", " + sample, "\n");
  }

  const GenerateOptions& options_;
  std::unique_ptr<data::Tokenizer> tokenizer_;
  std::vector<std::string> prompts_;
  train::Sampling sampling_;
};

/// Mistakes of the output file are found before the texts are generated.
void expect_output(const std::string& path) {
  const std::string kind = not_a_file(path);
  if (!path.empty() && (kind.empty() || kind == "a folder")) io::AtomicFile{path};
}

void print(const std::string& words) {
  std::fwrite(words.data(), 1, words.size(), stdout);
  std::fflush(stdout);
}

}  // namespace

ExitCode generate(grid::Runtime& runtime, const GenerateOptions& options) {
  Session session =
      open_session(runtime, options.deck, options.overrides, Ranks::all_data_parallel);
  const deck::Config& config = session.config();
  runtime.together([&] {
    check_usage(!config.model.predicts_masked_tokens(), session.deck.cite("model", "objective"),
                ": a model that predicts masked tokens, such as bert, cannot generate text; use a "
                "model with objective = \"next_token\", such as gpt or llama");
  });
  const std::string folder = find_model(runtime, session.deck, options.checkpoint);
  std::unique_ptr<Texts> texts;
  std::unique_ptr<train::Generator> generator;
  runtime.together([&] {
    if (runtime.rank() == 0) expect_output(options.output);
    texts = std::make_unique<Texts>(session, options);
    generator = train::make_generator(config, session.architecture);
    generator->load(checkpoint::Reader(folder, checkpoint::Opening::manifest));
  });

  // Rank i mod ranks writes text i.
  const bool prints = options.output.empty();
  const bool streams = prints && runtime.ranks() == 1 && log::on_terminal();
  const auto show = [&](const std::string& piece) {
    if (streams) print(piece);
  };
  std::string written;
  for (std::int64_t first = 0; first < texts->count(); first += runtime.ranks()) {
    std::string mine;
    runtime.together([&] {
      const std::int64_t i = first + runtime.rank();
      if (i < texts->count()) mine = texts->write(*generator, i, show);
    });
    for (const std::string& words : runtime.world().gather(mine, 0, "generated texts"))
      if (!prints)
        written += words;
      else if (!streams)
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
