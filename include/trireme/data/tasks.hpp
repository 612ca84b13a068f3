#pragma once

#include <trireme/data/requests.hpp>
#include <trireme/data/tokenizer.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Tasks scored by log-likelihood, as in lm-evaluation-harness (Gao et al. 2024, version 0.4.13).
namespace trireme::data {

enum class TaskKind : std::uint8_t {
  multiple_choice,  ///< {"context", "choices", "gold"}: accuracy of the most likely choice
  continuation,     ///< {"context", "continuation"}: likelihood and accuracy of the continuation
  rolling           ///< {"text"}: the likelihood of the whole text
};
std::string_view name_of(TaskKind kind);

/// A line of a task, and its requests.
struct TaskItem {
  std::int64_t line = 0;
  std::size_t first = 0;                      ///< index of the first request
  std::size_t count = 0;                      ///< number of requests
  std::int64_t gold = 0;                      ///< index of the correct choice
  std::vector<std::int64_t> characters = {};  ///< number of characters of each choice
  std::vector<std::int64_t> bytes = {};       ///< number of bytes of each choice, or of the text
  std::int64_t words = 0;                     ///< number of words of the text
};

struct Task {
  std::string path;
  TaskKind kind = TaskKind::multiple_choice;
  std::vector<TaskItem> items;
  std::int64_t truncated = 0;  ///< requests whose context was truncated on the left
};

/// Options for the conversion of lines to requests.
struct TaskOptions {
  std::int64_t sequence = 0;    ///< S: a request has at most S + 1 tokens
  std::int64_t vocabulary = 0;  ///< number of the model's ids
  std::int32_t prefix = 0;      ///< token before a text that has no context
  /// With an encoder: the number of tokens of a source, S'; 0 without one. Contexts are then
  /// sources, which end with `end`, and continuations are targets, which begin with `start`.
  std::int64_t source = 0;
  std::int32_t start = 0;
  std::int32_t end = 0;
};

/// Reads a task and appends its requests. All lines must be of one kind. A context that is too long
/// is truncated on the left. UsageError with file, line, value and remedy if the file is invalid.
Task read_task(const std::string& path, const Tokenizer& tokenizer, const TaskOptions& options,
               std::vector<Request>& requests);

/// Log-likelihood of a request's scored tokens, and whether each is the most likely token.
struct Likelihood {
  double nats = 0;
  bool greedy = false;
};

/// Value of a metric for a task, and its standard error, which needs at least two items.
struct Measure {
  std::string name;
  double value = 0;
  std::optional<double> error = {};
};

/// Metrics of a task. multiple_choice: acc, acc_norm (accuracy by log-likelihood per character of
/// the choice), acc_bytes (by log-likelihood per byte). continuation: acc (greedy decoding gives
/// the continuation), perplexity = exp(-mean log-likelihood). rolling: word_perplexity,
/// byte_perplexity, bits_per_byte. The standard error of a mean is the sample standard deviation /
/// sqrt(n). The standard error of a perplexity p is p times the error of its logarithm.
std::vector<Measure> measures(const Task& task, std::span<const Likelihood> likelihoods);

/// Index of the most likely choice, of several the first; `acc` compares this index with `gold`.
std::int64_t likeliest_choice(const TaskItem& item, std::span<const Likelihood> likelihoods);

}  // namespace trireme::data
