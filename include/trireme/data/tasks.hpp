#pragma once

#include <trireme/data/requests.hpp>
#include <trireme/data/tokenizer.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Tasks that are scored by log-likelihood, with the rules and the measures of
/// lm-evaluation-harness (Gao et al. 2024, version 0.4.13).
namespace trireme::data {

enum class TaskKind : std::uint8_t {
  multiple_choice,  ///< {"context", "choices", "gold"}: the most likely choice
  continuation,     ///< {"context", "continuation"}: its likelihood, and whether it is predicted
  rolling           ///< {"text"}: the likelihood of the whole text
};
std::string_view name_of(TaskKind kind);

/// A line of a task, and its requests.
struct TaskItem {
  std::int64_t line = 0;
  std::size_t first = 0;                      ///< index of the first request
  std::size_t count = 0;                      ///< requests: one per choice or per window of a text
  std::int64_t gold = 0;                      ///< index of the correct choice
  std::vector<std::int64_t> characters = {};  ///< length of each choice
  std::vector<std::int64_t> bytes = {};       ///< length of each choice, or of the text
  std::int64_t words = 0;                     ///< words of the text
};

struct Task {
  std::string path;
  TaskKind kind = TaskKind::multiple_choice;
  std::vector<TaskItem> items;
  std::int64_t truncated = 0;  ///< requests whose context was cut from the left
};

/// Conversion of lines to requests.
struct TaskOptions {
  std::int64_t sequence = 0;    ///< S: a request has at most S + 1 tokens
  std::int64_t vocabulary = 0;  ///< number of the model's ids
  std::int32_t prefix = 0;      ///< token before a text without context
};

/// Reads a task and appends its requests. All lines must be of one kind. A context that is too long
/// is cut on the left. UsageError with file, line, value and remedy.
Task read_task(const std::string& path, const Tokenizer& tokenizer, const TaskOptions& options,
               std::vector<Request>& requests);

/// Log-likelihood of a request in nats, and whether each of its tokens is the most likely one.
struct Likelihood {
  double nats = 0;
  bool greedy = false;
};

/// Mean over a task, and its standard error, if there is one.
struct Measure {
  std::string name;
  double value = 0;
  std::optional<double> error = {};
};

/// multiple_choice: acc, acc_norm (log-likelihood per character of the choice), acc_bytes (per
/// byte). continuation: acc (greedy decoding gives the continuation), perplexity = exp(-mean
/// log-likelihood). rolling: word_perplexity, byte_perplexity, bits_per_byte. The standard error of
/// a mean is the sample deviation / sqrt(n); the error of a perplexity p is p times the error of
/// its logarithm.
std::vector<Measure> measures(const Task& task, std::span<const Likelihood> likelihoods);

/// The choice that `acc` compares: the first of the most likely choices.
std::int64_t likeliest_choice(const TaskItem& item, std::span<const Likelihood> likelihoods);

}  // namespace trireme::data
