#pragma once

#include <trireme/commands/prompts.hpp>
#include <trireme/data/text_stream.hpp>
#include <trireme/train/engine.hpp>
#include <trireme/train/generator.hpp>

#include <cstdint>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace trireme::commands {

/// Receives the words of text i as they become known; `last`: no more words follow.
using Show = std::function<void(std::size_t i, const std::string& words, bool last)>;

/// The texts `first`, `first` + `stride`, … of `texts`, at most `number`, for one replica.
class ContinuedTexts final : public train::Continuations {
 public:
  /// `texts` and `options` must outlive this object.
  ContinuedTexts(const Texts& texts, const GenerateOptions& options, std::int64_t first,
                 std::int64_t stride, std::int64_t number, Show show);

  std::size_t count() const override { return open_.size(); }
  std::vector<std::int32_t> begin(std::size_t i) override;
  data::TextImages images(std::size_t i) override {
    return texts_.images(open_[i].n, texts_.ids(open_[i].n));
  }
  std::uint32_t sample(std::size_t i) const override {
    return static_cast<std::uint32_t>(open_[i].n);
  }
  bool take(std::size_t i, std::int32_t token) override;
  void end(std::size_t i) override;

  /// Each ended text with heading and prompt; with options.output, as a JSON line.
  const std::vector<std::string>& written() const { return written_; }

 private:
  struct Text {
    std::int64_t n = 0;
    std::unique_ptr<data::TextStream> stream;  ///< set while the text is open
    std::int64_t tokens = 0;
    bool stopped = false;
  };

  void append(std::size_t i, const std::string& words);

  const Texts& texts_;
  const GenerateOptions& options_;
  Show show_;
  std::vector<Text> open_;
  std::vector<std::string> written_;
};

/// The texts of a run's evaluations, which rank 0 writes to texts.jsonl in the run's folder.
class RunTexts {
 public:
  /// `trained` is as in Texts. UsageError for mistakes in the prompts.
  RunTexts(const deck::Deck& deck, const data::ImageForm& trained);
  RunTexts(const RunTexts&) = delete;
  RunTexts& operator=(const RunTexts&) = delete;

  std::string description() const { return describe_prompts(*texts_, options_); }
  const Texts& texts() const { return *texts_; }

  /// Opens the file on rank 0. A run restored from a step after 0 keeps the lines up to this step;
  /// any other run renames an existing file (train::move_aside). Collective.
  void open(grid::Runtime& runtime, std::optional<std::int64_t> restored);
  /// Continues all prompts with the engine's most likely tokens, writes the texts and returns "".
  /// If a logit is not finite, writes nothing and returns the reason on all ranks. Collective.
  std::string write(grid::Runtime& runtime, std::int64_t step, train::Engine& engine);

 private:
  struct Open;
  void add_lines(const std::vector<std::string>& lines);

  std::int64_t sequence_;
  std::string directory_;
  GenerateOptions options_;
  std::unique_ptr<Texts> texts_;
  std::vector<data::TextImages> images_;  ///< of each text
  std::ofstream file_;
};

}  // namespace trireme::commands
