// Continues texts. The evaluations of a run use passes over whole texts: a pass predicts the token
// after each position, so that one pass can confirm several guessed tokens.
#include <trireme/commands/continued_texts.hpp>

#include <trireme/base/check.hpp>
#include <trireme/grid/heartbeat.hpp>
#include <trireme/io/atomic_file.hpp>
#include <trireme/io/input_file.hpp>
#include <trireme/tensor/region.hpp>
#include <trireme/train/metrics.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <utility>

namespace trireme::commands {

ContinuedTexts::ContinuedTexts(const Texts& texts, const GenerateOptions& options,
                               std::int64_t first, std::int64_t stride, std::int64_t number,
                               Show show)
    : texts_(texts), options_(options), show_(std::move(show)) {
  for (std::int64_t n = first; n < texts.count() && std::ssize(open_) < number; n += stride)
    open_.push_back({n, nullptr, {}});
  written_.resize(open_.size());
}

std::vector<std::int32_t> ContinuedTexts::begin(std::size_t i) {
  Text& text = open_[i];
  const std::vector<std::int32_t> ids = texts_.ids(text.n);
  text.stream = std::make_unique<data::TextStream>(texts_.tokenizer(),
                                                   texts_.ids_before_text(text.n), options_.stops);
  const bool continues = !texts_.is_chat() && !texts_.are_targets();
  if (options_.output.empty())
    append(i, texts_.heading(text.n) + texts_.prompt(text.n) + (continues ? "" : "\n"));
  return ids;
}

bool ContinuedTexts::take(std::size_t i, std::int32_t token) {
  Text& text = open_[i];
  if (texts_.ends_with(token)) return false;
  ++text.tokens;
  std::string words;
  text.stopped = !text.stream->feed(token, words);
  append(i, words);
  return !text.stopped;
}

void ContinuedTexts::end(std::size_t i) {
  Text& text = open_[i];
  std::string words;
  if (!text.stream->finish(words)) text.stopped = true;
  append(i, words);
  const char* end = text.stopped                     ? "stop"
                    : text.tokens == options_.tokens ? "tokens"
                    : texts_.is_chat()               ? "end_of_answer"
                    : texts_.are_targets()           ? "end_of_target"
                                                     : "end_of_document";
  if (options_.output.empty())
    append(i, "\n");
  else
    written_[i] = texts_.json(text.n, written_[i], text.tokens, end);
  show_(i, "", true);
  text.stream = nullptr;
}

void ContinuedTexts::append(std::size_t i, const std::string& words) {
  written_[i] += words;
  show_(i, words, false);
}

/// A text that is not complete yet.
struct RunTexts::Open {
  std::size_t text = 0;
  std::vector<std::int32_t> tokens;      ///< context of the next token
  std::vector<std::int32_t> guessed;     ///< tokens that may follow
  std::vector<std::int32_t> image_rows;  ///< of the tokens; empty without images
  std::int64_t generated = 0;
};

namespace {

/// Keeps the last `most` tokens.
void keep_last(std::vector<std::int32_t>& tokens, std::int64_t most) {
  if (std::ssize(tokens) > most) tokens.erase(tokens.begin(), tokens.end() - most);
}

/// Guesses the next `count` tokens: the tokens after the latest earlier occurrence of the last two
/// tokens (Saxena 2023, prompt lookup decoding). Empty if there is no earlier occurrence.
std::vector<std::int32_t> guess(const std::vector<std::int32_t>& tokens, std::int64_t count) {
  std::vector<std::int32_t> all = tokens;
  for (std::size_t next = tokens.size() - 1; count > 0 && next >= 2; --next) {
    if (!std::equal(tokens.end() - 2, tokens.end(), tokens.begin() + std::ptrdiff_t(next) - 2))
      continue;
    while (std::ssize(all) < std::ssize(tokens) + count) all.push_back(all[next++]);
    break;
  }
  return {all.begin() + std::ssize(tokens), all.end()};
}

/// The complete lines of a file of texts up to a step.
std::string lines_up_to(const std::string& path, std::int64_t step) {
  std::string kept;
  if (!std::filesystem::exists(path)) return kept;
  std::istringstream in(io::read_text_file(path, train::record_limit_bytes));
  for (std::string line; std::getline(in, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (json.is_object() && json.contains("step") && json["step"].is_number_integer() &&
        json["step"].get<std::int64_t>() <= step)
      kept += line + '\n';
  }
  return kept;
}

}  // namespace

RunTexts::RunTexts(const deck::Deck& deck, const data::ImageForm& trained)
    : sequence_(deck.config.model.sequence),
      directory_(deck.config.run.directory),
      options_(options_of_run(deck.config.run)),
      texts_(texts_of_run(deck, options_, trained)) {
  for (std::int64_t n = 0; n < texts_->count(); ++n)
    images_.push_back(texts_->images(n, texts_->ids(n)));
}

void RunTexts::open(grid::Runtime& runtime, std::optional<std::int64_t> restored) {
  runtime.together([&] {
    if (runtime.rank() > 0) return;
    if (restored == 0) restored.reset();  // imported weights have no earlier texts
    const std::string kept = restored ? lines_up_to(options_.output, *restored) : "";
    if (!restored) train::move_aside(options_.output, directory_, "texts");
    io::replace_file(options_.output, kept);
    file_.open(options_.output, std::ios::app);
    check(file_.good(), "cannot write ", options_.output, "; is the folder writable?");
  });
}

std::string RunTexts::write(grid::Runtime& runtime, std::int64_t step, train::Engine& engine) {
  const Region region("texts");
  grid::Heartbeat::publish({"texts of the evaluation", step});
  texts_->set_step(step);
  ContinuedTexts all(*texts_, options_, 0, 1, texts_->count(), [](auto&&...) {});
  std::vector<Open> open;
  for (std::size_t i = 0; i < all.count(); ++i) {
    open.push_back({i, all.begin(i), {}, images_[i].rows, 0});
    keep_last(open.back().tokens, sequence_);
    keep_last(open.back().image_rows, sequence_);
  }
  const std::int64_t ids = texts_->tokenizer().vocabulary();
  while (!open.empty()) {
    std::vector<data::Request> requests;
    for (Open& one : open) {
      const std::int64_t context = std::ssize(one.tokens);
      one.guessed =
          guess(one.tokens, std::min(options_.tokens - one.generated - 1, sequence_ - context));
      requests.push_back({one.tokens, context, {}, one.image_rows, images_[one.text].pixels});
      requests.back().tokens.insert(requests.back().tokens.end(), one.guessed.begin(),
                                    one.guessed.end());
    }
    const auto likeliest = engine.likeliest(data::Requests(std::move(requests), sequence_, ids));
    for (std::size_t i = 0; i < open.size(); ++i) {
      Open& one = open[i];
      const std::vector<std::int32_t>& found = likeliest[i];
      bool more = true, right = true;
      for (std::size_t k = 0; k < found.size() && more && right; ++k) {
        if (found[k] < 0)
          return text("a logit of the text that continues prompt ", one.text + 1, " is not finite");
        more = found[k] != texts_->end() && all.take(one.text, found[k]) &&
               ++one.generated < options_.tokens;
        one.tokens.push_back(found[k]);
        if (!one.image_rows.empty()) one.image_rows.push_back(-1);
        right = k < one.guessed.size() && one.guessed[k] == found[k];
        if (std::ssize(one.tokens) <= sequence_) continue;
        const std::int64_t kept = std::max<std::int64_t>(1, sequence_ / 2);
        keep_last(one.tokens, kept);  // as in `trireme generate`
        keep_last(one.image_rows, kept);
        right = false;
      }
      if (!more) all.end(one.text);
      one.generated = more ? one.generated : -1;
    }
    std::erase_if(open, [](const Open& one) { return one.generated < 0; });
  }
  runtime.together([&] {
    if (runtime.rank() == 0) add_lines(all.written());
  });
  return "";
}

void RunTexts::add_lines(const std::vector<std::string>& lines) {
  file_ << join(lines, "") << std::flush;
  check(file_.good(), "cannot write ", options_.output, "; is the disk full?");
}

}  // namespace trireme::commands
