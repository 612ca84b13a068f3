// Measures of tasks, as lm-evaluation-harness defines them (api/task.py and api/metrics.py).
#include <trireme/data/tasks.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>

namespace trireme::data {
namespace {

/// The mean and the sample deviation / sqrt(n), which one value does not have.
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

/// The first choice with the largest log-likelihood per unit.
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

/// exp(- Σ nats / Σ units) and its logarithm, with the errors of a ratio of two means.
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
