// Matches patterns with names of arrays, and checks a deck's patterns.
#include <trireme/architecture/frozen.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/text.hpp>

#include <algorithm>
#include <charconv>
#include <optional>
#include <vector>

namespace trireme::architecture {
namespace {

std::optional<std::int64_t> number_of(std::string_view word) {
  std::int64_t n = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), n);
  if (error != std::errc() || end != word.data() + word.size()) return {};
  return n;
}

bool part_matches(std::string_view pattern, std::string_view part) {
  if (pattern == "*" || pattern == part) return true;
  const std::size_t dash = pattern.find('-');
  if (dash == std::string_view::npos) return false;
  const auto first = number_of(pattern.substr(0, dash)), last = number_of(pattern.substr(dash + 1));
  const auto n = number_of(part);
  return first && last && n && *first <= *n && *n <= *last;
}

/// Removes the part before the first dot from `name` and returns it.
std::string_view take_part(std::string_view& name) {
  const std::size_t dot = std::min(name.find('.'), name.size());
  const std::string_view part = name.substr(0, dot);
  name.remove_prefix(std::min(dot + 1, name.size()));
  return part;
}

bool any_matches(const std::vector<std::string>& patterns, std::string_view name) {
  return std::ranges::any_of(patterns, [&](const auto& p) { return matches(p, name); });
}

/// Whether one kernel computes the gradients of arrays `a` and `b`.
bool joined(const Operation& op, const ArraySpec& a, const ArraySpec& b) {
  if (a.adapter || b.adapter) return false;
  return rule_of(op.kind).joins_arrays && a.decay == b.decay;
}

void expect_joined(const deck::Deck& deck, const BlockDescription& part,
                   const std::string& prefix) {
  const deck::ModelConfig& m = deck.config.model;
  const bool adapters = m.adapter.present() && m.frozen.empty();
  const auto named = [&](const ArraySpec& a) { return is_frozen(m, prefix + a.name) != adapters; };
  for (const Operation& op : part.operations)
    for (const ArraySpec& a : op.arrays)
      for (const ArraySpec& b : op.arrays)
        check_usage(
            !joined(op, a, b) || !named(a) || named(b),
            adapters ? deck.cite("adapter", "also_trained") : deck.cite("optimizer", "frozen"),
            " names ", prefix, a.name, ", not ", prefix, b.name,
            ", and one kernel computes the gradients of both; name both or none");
}

/// UsageError unless each pattern matches an array.
void expect_matches(const deck::Deck& deck, const Architecture& a, const char* section,
                    const char* key, const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns)
    check_usage(
        std::ranges::any_of(a.arrays, [&](const ArraySpec& s) { return matches(pattern, s.name); }),
        deck.cite(section, key), ": \"", pattern,
        "\" names no array of the model; examples of names are ", a.arrays.front().name, ", ",
        a.arrays[a.arrays.size() / 2].name, " and ", a.arrays.back().name);
}

}  // namespace

bool matches(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) return false;
  while (!pattern.empty()) {
    if (name.empty() || !part_matches(take_part(pattern), take_part(name))) return false;
  }
  return true;
}

bool is_frozen(const deck::ModelConfig& m, std::string_view name) {
  if (any_matches(m.frozen, name)) return true;
  const bool adapter =
      name.ends_with(adapter_a) || name.ends_with(adapter_b) || name.ends_with(adapter_m);
  return m.adapter.present() && !adapter && !any_matches(m.adapter.also_trained, name);
}

void mark_frozen(BlockDescription& part, const deck::ModelConfig& m, const std::string& prefix) {
  for (Operation& op : part.operations)
    for (ArraySpec& array : op.arrays)
      array.frozen = array.constant || is_frozen(m, prefix + array.name);
}

std::vector<double> rate_factors(const Architecture& a, const deck::OptimizerConfig& optimizer) {
  if (optimizer.rate_factors.empty()) return {};
  std::vector<double> factors(a.arrays.size(), 1.0);
  for (const std::string& entry : optimizer.rate_factors) {
    const auto part = deck::rate_factor_of(entry);
    check(part.has_value(), "[optimizer] rate_factors has \"", entry, "\"");
    for (std::size_t i = 0; i < factors.size(); ++i)
      if (matches(part->pattern, a.arrays[i].name)) factors[i] = part->factor;
  }
  return factors;
}

namespace {

/// Whether the learning rate changes an array.
bool has_rate(const ArraySpec& array) {
  return !array.frozen && !array.counts_tokens;
}

/// UsageError unless each entry of [optimizer] rate_factors names trained arrays, and no array is
/// named twice.
void expect_rate_factors(const deck::Deck& deck) {
  const std::vector<std::string>& entries = deck.config.optimizer.rate_factors;
  if (entries.empty()) return;
  const Architecture a = describe(deck.config.model);
  const std::string cited = deck.cite("optimizer", "rate_factors");
  std::vector<std::string> patterns;
  for (const std::string& entry : entries)
    patterns.push_back(deck::rate_factor_of(entry).value().pattern);
  expect_matches(deck, a, "optimizer", "rate_factors", patterns);
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    bool trains = false;
    for (const ArraySpec& array : a.arrays) {
      if (!matches(patterns[i], array.name)) continue;
      trains = trains || has_rate(array);
      for (std::size_t before = 0; before < i; ++before)
        check_usage(!matches(patterns[before], array.name), cited, ": \"", entries[before],
                    "\" and \"", entries[i], "\" both name ", array.name,
                    "; let each array have one factor");
    }
    check_usage(trains, cited, ": \"", patterns[i],
                "\" names only arrays that are not trained by a learning rate; remove \"",
                entries[i], "\", or train them (", deck.cite("optimizer", "frozen"), ", ",
                deck.cite("adapter", "kind"), ")");
  }
}

}  // namespace

void expect_trainable(const deck::Deck& deck) {
  const deck::ModelConfig& m = deck.config.model;
  expect_rate_factors(deck);
  if (m.frozen.empty() && !m.adapter.present()) return;
  const char* section = m.adapter.present() ? "adapter" : "optimizer";
  const char* key = m.adapter.present() ? "kind" : "frozen";
  const Architecture a = describe(m);
  expect_matches(deck, a, "optimizer", "frozen", m.frozen);
  expect_matches(deck, a, "adapter", "also_trained", m.adapter.also_trained);
  check_usage(!std::ranges::all_of(a.arrays, &ArraySpec::frozen), deck.cite("optimizer", "frozen"),
              " names every array",
              m.adapter.present() ? " that [adapter] trains" : " of the model",
              ", so nothing would be trained; leave some arrays out");
  const auto expect_changes = [&](const char* changed, const char* name, bool is_load,
                                  const char* remedy) {
    const auto changes = [&](const ArraySpec& array) {
      return array.counts_tokens && array.is_load == is_load && !array.frozen;
    };
    check_usage(std::ranges::any_of(a.arrays, changes), deck.cite("experts", changed),
                " changes the arrays ", name, ", but ", deck.cite(section, key),
                " trains none of them; choose ", remedy, ", or ",
                m.adapter.present() ? text("also_trained = [\"layers.*.", name, "\"]")
                                    : "leave them out of frozen");
  };
  if (m.experts.bias_rate > 0)
    expect_changes("bias_rate", "experts.bias", false, "bias_rate = 0.0");
  if (m.experts.keeps_load())
    expect_changes("balance", "experts.load", true, "balance = \"none\" or \"sequence\"");
  for (const Block& block : a.blocks) expect_joined(deck, a.kinds[block.kind], block.prefix);
  const deck::ParallelConfig& p = deck.config.parallel;
  const auto excludes = [&](const char* other_section, const char* other, const char* remedy) {
    throw UsageError(text(deck.cite(section, key), " cannot be combined with ",
                          deck.cite(other_section, other), "; choose ", remedy));
  };
  if (m.shared_layers > 0) excludes("model", "shared_layers", "shared_layers = 0");
  if (p.shares_vocabulary()) excludes("parallel", "vocabulary", "vocabulary = \"stage\"");
}

}  // namespace trireme::architecture
