#pragma once

#include <trireme/commands/prompts.hpp>
#include <trireme/data/text_stream.hpp>
#include <trireme/train/generator.hpp>
#include <trireme/train/worker.hpp>

#include <cstdint>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace trireme::commands {

/// Receives the words of text i as they become known; `last`: no more follow.
using Show = std::function<void(std::size_t i, const std::string& words, bool last)>;

/// The texts first, first + stride, … of a command, at most `number` of them, that a replica
/// continues. With options.output they become lines of a file of texts.
class ContinuedTexts final : public train::Continuations {
 public:
  /// Arguments must outlive this object.
  ContinuedTexts(const Texts& texts, const GenerateOptions& options, std::int64_t first,
                 std::int64_t stride, std::int64_t number, Show show);

  std::size_t count() const override { return open_.size(); }
  std::vector<std::int32_t> begin(std::size_t i) override;
  std::uint32_t sample(std::size_t i) const override {
    return static_cast<std::uint32_t>(open_[i].n);
  }
  bool take(std::size_t i, std::int32_t token) override;
  void end(std::size_t i) override;

  /// The printed or written form of each text.
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

/// The texts of a run's evaluations: texts.jsonl in the run's folder. Every rank has one.
class RunTexts {
 public:
  /// UsageError for mistakes in the prompts. The deck must outlive this object.
  explicit RunTexts(const deck::Deck& deck);
  RunTexts(const RunTexts&) = delete;
  RunTexts& operator=(const RunTexts&) = delete;

  std::string description() const { return describe_prompts(*texts_, options_); }
  const Texts& texts() const { return *texts_; }

  /// Opens the file on rank 0: a run restored from a step keeps the lines up to it; another run
  /// renames the file of an earlier run to texts.previous-1.jsonl (the first free number).
  /// Collective.
  void open(grid::Runtime& runtime, std::optional<std::int64_t> restored);
  /// Continues all prompts with the most likely tokens by the worker's weights, and writes them.
  /// Returns the reason if a logit is not finite, on all ranks. Collective.
  std::string write(grid::Runtime& runtime, std::int64_t step, train::Worker& worker);

 private:
  struct Open;
  void add_lines(const std::vector<std::string>& lines);

  std::int64_t sequence_;
  std::string directory_;
  GenerateOptions options_;
  std::unique_ptr<Texts> texts_;
  std::ofstream file_;
};

}  // namespace trireme::commands
