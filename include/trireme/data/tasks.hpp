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
  multiple_choice,  ///< {"context", "choices", "gold"}: which choice is the most likely
  continuation,     ///< {"context", "continuation"}: its likelihood, and whether it is predicted
  rolling           ///< {"text"}: the likelihood of all of it
};
std::string_view name_of(TaskKind kind);

/// A line of a task, with the numbers of its requests.
struct TaskItem {
  std::int64_t line = 0;
  std::size_t first = 0;                      ///< request
  std::size_t count = 0;                      ///< one per choice; windows of a text
  std::int64_t gold = 0;                      ///< the right choice
  std::vector<std::int64_t> characters = {};  ///< of each choice
  std::vector<std::int64_t> bytes = {};       ///< of each choice, or of the text
  std::int64_t words = 0;                     ///< of the text
};

struct Task {
  std::string path;
  TaskKind kind = TaskKind::multiple_choice;
  std::vector<TaskItem> items;
  std::int64_t truncated = 0;  ///< requests whose context was cut from the left
};

/// How lines become requests.
struct TaskOptions {
  std::int64_t sequence = 0;    ///< S: a request has at most S + 1 tokens
  std::int64_t vocabulary = 0;  ///< ids of the model
  std::int32_t prefix = 0;      ///< the token before a text without context
};

/// Reads a task and appends its requests. All lines must be of one kind. A context that is too long
/// loses tokens on the left. UsageError with file, line, value and remedy.
Task read_task(const std::string& path, const Tokenizer& tokenizer, const TaskOptions& options,
               std::vector<Request>& requests);

/// Log-likelihood of a request in nats, and whether each of its tokens is the most likely one.
struct Likelihood {
  double nats = 0;
  bool greedy = false;
};

/// A mean over a task with its standard error, if there is one.
struct Measure {
  std::string name;
  double value = 0;
  std::optional<double> error = {};
};

/// multiple_choice: acc, acc_norm (log-likelihood per character of the choice), acc_bytes (per
/// byte). continuation: acc (the continuation is what greedy decoding gives), perplexity = exp(-
/// mean log-likelihood). rolling: word_perplexity, byte_perplexity, bits_per_byte. The error of a
/// mean is the sample deviation / sqrt(n); that of a perplexity p is p times that of its logarithm.
std::vector<Measure> measures(const Task& task, std::span<const Likelihood> likelihoods);

/// The choice that `acc` takes: the first of the most likely.
std::int64_t likeliest_choice(const TaskItem& item, std::span<const Likelihood> likelihoods);

}  // namespace trireme::data
