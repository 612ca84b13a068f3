// Converts JSON lines to requests, and computes metrics. As in lm-evaluation-harness
// (api/model.py), a continuation begins after as many tokens as the context alone has.
#include <trireme/data/tasks.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/types.hpp>
#include <trireme/data/json_lines.hpp>
#include <trireme/data/unicode.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numbers>
#include <utility>

namespace trireme::data {
namespace {

constexpr std::array<const char*, 3> forms{
    R"({"context": "The capital of France is", "choices": ["Paris", "Rome"], "gold": 0})",
    R"({"context": "The capital of France is", "continuation": "Paris"})",
    R"({"text": "Paris is the capital of France."})"};

std::int64_t characters_of(std::string_view text) {
  return std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; });
}

/// Number of parts between runs of white space, empty parts at the ends included.
std::int64_t words_of(std::string_view text) {
  std::int64_t words = 1;
  bool inside = false;
  for (std::size_t at = 0; at < text.size();) {
    const bool white = is_space(next_character(text, at));
    if (white && !inside) ++words;
    inside = white;
  }
  return words;
}

std::size_t trailing_space(std::string_view text) {
  std::string_view rest = text;
  while (!rest.empty()) {
    std::string_view shorter = rest;
    if (!is_space(take_last_character(shorter))) break;
    rest = shorter;
  }
  return text.size() - rest.size();
}

class TaskReader {
 public:
  TaskReader(const std::string& path, const Tokenizer& tokenizer, const TaskOptions& options,
             std::vector<Request>& requests)
      : tokenizer_(tokenizer), options_(options), requests_(requests) {
    task_.path = path;
  }

  void read(const JsonLine& line) {
    const TaskKind kind = kind_of(line);
    if (task_.items.empty()) task_.kind = kind;
    if (kind != task_.kind)
      throw UsageError(text(line.where(), ": is a line of kind ", name_of(kind), ", but line ",
                            task_.items.front().line, " is of kind ", name_of(task_.kind),
                            "; write each kind to a file of its own"));
    TaskItem item;
    item.line = std::stoll(line.where().substr(line.where().rfind(':') + 1));
    item.first = requests_.size();
    switch (kind) {
      case TaskKind::multiple_choice:
        read_choices(line, item);
        break;
      case TaskKind::continuation:
        add_continuation(line, "continuation", delimiter(line) + line.string("continuation"));
        break;
      case TaskKind::rolling:
        read_text(line, item);
        break;
    }
    item.count = requests_.size() - item.first;
    task_.items.push_back(std::move(item));
  }

  Task finish() {
    check_usage(!task_.items.empty(), task_.path,
                ": has no lines; write one object per line, such as ", forms[0]);
    return std::move(task_);
  }

 private:
  static TaskKind kind_of(const JsonLine& line) {
    const bool asks = line.has("choices");
    const bool continues = line.has("continuation");
    const bool is_text = line.has("text");
    if (asks + continues + is_text != 1)
      line.refuse("needs exactly one of \"choices\", \"continuation\" and \"text\"");
    return asks        ? TaskKind::multiple_choice
           : continues ? TaskKind::continuation
                       : TaskKind::rolling;
  }

  /// Targets of sources are texts of their own.
  std::string delimiter(const JsonLine& line) const {
    if (line.has("target_delimiter")) return line.string("target_delimiter");
    return options_.source > 0 ? "" : " ";
  }

  static const std::string& context_of(const JsonLine& line) {
    if (line.has("context") && line.has("query"))
      line.refuse("has both \"context\" and \"query\", which are the same");
    return line.string(line.has("query") ? "query" : "context");
  }

  static std::int64_t gold_of(const JsonLine& line, const std::vector<std::string>& choices) {
    if (line.has("gold") && line.has("answer"))
      line.refuse("has both \"gold\" and \"answer\", which are the same");
    const char* key = line.has("answer") ? "answer" : "gold";
    const std::string expected =
        text("the number of the right choice, 0 to ", choices.size() - 1, ", or its text");
    if (!line.has(key)) line.refuse(key, expected);
    const auto& gold = line.json()[key];
    if (gold.is_string()) {
      const auto found = std::ranges::find(choices, gold.get_ref<const std::string&>());
      if (found != choices.end()) return found - choices.begin();
    } else if (gold.is_number_unsigned() && gold.get<std::uint64_t>() < choices.size()) {
      return gold.get<std::int64_t>();
    }
    line.refuse(key, expected);
  }

  void read_choices(const JsonLine& line, TaskItem& item) {
    const std::vector<std::string> choices = line.strings("choices");
    item.gold = gold_of(line, choices);
    for (const std::string& choice : choices) {
      if (choice.empty()) line.refuse("\"choices\" has an empty string");
      item.characters.push_back(characters_of(choice));
      item.bytes.push_back(std::ssize(choice));
      add_continuation(line, "choices", delimiter(line) + choice);
    }
  }

  std::vector<std::int32_t> encode(const JsonLine& line, std::string_view words) const {
    std::vector<std::int32_t> ids;
    tokenizer_.encode(words, ids, {true});  // names of special tokens become these tokens
    for (const std::int32_t id : ids)
      check_usage(id < options_.vocabulary, line.where(), ": has token ", id,
                  ", but the model has ", options_.vocabulary,
                  " ids; set data.tokenizer to the tokenizer of its training");
    return ids;
  }

  /// Adds a request. White space at the context's end belongs to the continuation, because tokens
  /// begin with spaces.
  void add_continuation(const JsonLine& line, const char* key, const std::string& continuation) {
    const std::string& context = context_of(line);
    if (options_.source > 0) return add_target(line, key, context, continuation);
    const std::size_t moved = trailing_space(context);
    Request request;
    if (context.empty()) {
      std::vector<std::int32_t> ids = encode(line, continuation);
      if (!ids.empty() && ids.front() == options_.prefix) {
        request.tokens = std::move(ids);
      } else {
        request.tokens = {options_.prefix};
        request.tokens.insert(request.tokens.end(), ids.begin(), ids.end());
      }
      request.context = 1;
    } else {
      request.tokens = encode(line, context + continuation);
      request.context =
          std::ssize(encode(line, std::string_view(context).substr(0, context.size() - moved)));
      if (request.context == 0) {  // the context is only white space
        request.tokens.insert(request.tokens.begin(), options_.prefix);
        request.context = 1;
      }
    }
    add(line, key, std::move(request));
  }

  /// Adds a request whose context is the source. A source that is too long loses its beginning.
  void add_target(const JsonLine& line, const char* key, const std::string& source,
                  const std::string& target) {
    Request request;
    request.source = encode(line, source);
    const std::int64_t dropped = std::ssize(request.source) + 1 - options_.source;
    if (dropped > 0) {
      request.source.erase(request.source.begin(), request.source.begin() + dropped);
      ++task_.truncated;
    }
    request.source.push_back(options_.end);
    request.tokens = encode(line, target);
    request.tokens.insert(request.tokens.begin(), options_.start);
    add(line, key, std::move(request));
  }

  void add(const JsonLine& line, const char* key, Request request) {
    const std::int64_t scored = std::ssize(request.tokens) - request.context;
    if (scored <= 0) line.refuse(text("\"", key, "\" has no token of its own after the context"));
    check_usage(scored <= options_.sequence, line.where(), ": \"", key, "\" has ", scored,
                " tokens, more than [model] sequence = ", options_.sequence,
                "; shorten it, or write it as {\"text\": ...}");
    const std::int64_t dropped = std::ssize(request.tokens) - (options_.sequence + 1);
    if (dropped > 0) {
      request.tokens.erase(request.tokens.begin(), request.tokens.begin() + dropped);
      request.context -= dropped;
      ++task_.truncated;
    }
    requests_.push_back(std::move(request));
  }

  /// Adds requests for windows of up to S predicted tokens. The first window begins with the prefix
  /// token; later windows have as much context as fits.
  void read_text(const JsonLine& line, TaskItem& item) {
    if (options_.source > 0)
      line.refuse("has a \"text\", but a model with an encoder needs a \"context\" to read");
    const std::string& words = line.string("text");
    const std::vector<std::int32_t> ids = encode(line, words);
    if (ids.empty()) line.refuse("\"text\" is empty");
    item.bytes.push_back(std::ssize(words));
    item.words = words_of(words);
    const std::int64_t all = std::ssize(ids);
    const std::int64_t most = options_.sequence;
    for (std::int64_t done = 0; done < all;) {
      const std::int64_t scored = std::min(all - done, most);
      const std::int64_t end = done + scored;
      const std::int64_t begin = done == 0 ? 0 : end - most - 1;
      Request request;
      if (done == 0) request.tokens.push_back(options_.prefix);
      request.tokens.insert(request.tokens.end(), ids.begin() + begin, ids.begin() + end);
      request.context = std::ssize(request.tokens) - scored;
      requests_.push_back(std::move(request));
      done = end;
    }
  }

  const Tokenizer& tokenizer_;
  const TaskOptions& options_;
  std::vector<Request>& requests_;
  Task task_;
};

}  // namespace

std::string_view name_of(TaskKind kind) {
  static constexpr auto all =
      trireme::words_of<TaskKind>("multiple_choice", "continuation", "rolling");
  return all[static_cast<std::size_t>(kind)];
}

Task read_task(const std::string& path, const Tokenizer& tokenizer, const TaskOptions& options,
               std::vector<Request>& requests) {
  TaskReader reader(path, tokenizer, options, requests);
  read_json_lines(path, forms[0], [&](const JsonLine& line) { reader.read(line); });
  return reader.finish();
}

// Metrics as in lm-evaluation-harness (api/task.py and api/metrics.py).

namespace {

/// The mean, and its standard error: sample standard deviation / sqrt(n).
Measure mean(std::string name, const std::vector<double>& values) {
  const auto n = static_cast<double>(values.size());
  double sum = 0;
  for (const double x : values) sum += x;
  Measure found{std::move(name), sum / n};
  if (values.size() < 2) return found;
  double squares = 0;
  for (const double x : values) squares += (x - found.value) * (x - found.value);
  found.error = std::sqrt(squares / (n - 1)) / std::sqrt(n);
  return found;
}

/// The first choice with the largest log-likelihood, per unit if `units` is not empty.
std::int64_t best(const TaskItem& item, std::span<const Likelihood> likelihoods,
                  const std::vector<std::int64_t>& units) {
  std::size_t chosen = 0;
  const auto value = [&](std::size_t i) {
    const double nats = likelihoods[item.first + i].nats;
    return units.empty() ? nats : nats / static_cast<double>(units[i]);
  };
  for (std::size_t i = 1; i < item.count; ++i)
    if (value(i) > value(chosen)) chosen = i;
  return static_cast<std::int64_t>(chosen);
}

double nats_of(const TaskItem& item, std::span<const Likelihood> likelihoods) {
  double sum = 0;
  for (const Likelihood& part : likelihoods.subspan(item.first, item.count)) sum += part.nats;
  return sum;
}

/// -Σ nats / Σ units, and its standard error as a ratio of two means.
Measure nats_per(const Task& task, std::span<const Likelihood> likelihoods,
                 const std::function<double(const TaskItem&)>& units) {
  double nats = 0;
  double count = 0;
  for (const TaskItem& item : task.items) {
    nats -= nats_of(item, likelihoods);
    count += units(item);
  }
  Measure found{"", nats / count};
  const auto n = static_cast<double>(task.items.size());
  if (task.items.size() < 2) return found;
  double squares = 0;
  for (const TaskItem& item : task.items) {
    const double rest = -nats_of(item, likelihoods) - found.value * units(item);
    squares += rest * rest;
  }
  found.error = std::sqrt(squares * n / (n - 1)) / count;
  return found;
}

Measure exponential(std::string name, const Measure& logarithm) {
  Measure found{std::move(name), std::exp(logarithm.value)};
  if (logarithm.error) found.error = found.value * *logarithm.error;
  return found;
}

}  // namespace

std::int64_t likeliest_choice(const TaskItem& item, std::span<const Likelihood> likelihoods) {
  return best(item, likelihoods, {});
}

std::vector<Measure> measures(const Task& task, std::span<const Likelihood> likelihoods) {
  const auto mean_of = [&](const char* name, const std::function<double(const TaskItem&)>& value) {
    std::vector<double> values;
    for (const TaskItem& item : task.items) values.push_back(value(item));
    return mean(name, values);
  };
  const auto accuracy = [&](const char* name, std::vector<std::int64_t> TaskItem::*units) {
    return mean_of(name, [&](const TaskItem& item) {
      const auto none = std::vector<std::int64_t>();
      return best(item, likelihoods, units ? item.*units : none) == item.gold ? 1.0 : 0.0;
    });
  };
  switch (task.kind) {
    case TaskKind::multiple_choice:
      return {accuracy("acc", nullptr), accuracy("acc_norm", &TaskItem::characters),
              accuracy("acc_bytes", &TaskItem::bytes)};
    case TaskKind::continuation: {
      const auto greedy = [&](const TaskItem& item) {
        return likelihoods[item.first].greedy ? 1.0 : 0.0;
      };
      const auto loss = [&](const TaskItem& item) { return -nats_of(item, likelihoods); };
      return {mean_of("acc", greedy), exponential("perplexity", mean_of("", loss))};
    }
    case TaskKind::rolling: {
      const auto words = [](const TaskItem& item) { return static_cast<double>(item.words); };
      const auto bytes = [](const TaskItem& item) { return static_cast<double>(item.bytes[0]); };
      const Measure per_byte = nats_per(task, likelihoods, bytes);
      Measure bits{"bits_per_byte", per_byte.value / std::numbers::ln2};
      if (per_byte.error) bits.error = *per_byte.error / std::numbers::ln2;
      return {exponential("word_perplexity", nats_per(task, likelihoods, words)),
              exponential("byte_perplexity", per_byte), bits};
    }
  }
  return {};
}

}  // namespace trireme::data
