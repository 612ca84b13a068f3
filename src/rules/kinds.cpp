// Descriptions of the rules, from the members of each rule.
#include <trireme/rules/kinds.hpp>

#include <trireme/rules/table.hpp>

#include <algorithm>
#include <array>

namespace trireme {

EnumWords enum_words(OptimizerKind) {
  static constexpr auto all = []<class... R>(std::type_identity<std::tuple<R...>>) {
    return words_of<OptimizerKind>(R::word...);
  }(std::type_identity<rules::Table>{});
  return all;
}

EnumWords enum_words(MuonScale) {
  static constexpr auto all = words_of<MuonScale>("match_adamw", "spectral");
  return all;
}

}  // namespace trireme

namespace trireme::rules {
namespace {

template <class R>
std::vector<Pass> passes_of(const Settings& settings) {
  std::vector<Pass> passes;
  [&]<class... P>(std::type_identity<std::tuple<P...>>) {
    int number = 0;
    const auto add = [&](Pass pass, bool applies) {
      pass.number = number++;
      if (applies) passes.push_back(pass);
    };
    (add(P::described(), P::applies(settings)), ...);
  }(std::type_identity<typename R::Passes>{});
  return passes;
}

template <class R>
Description description_of() {
  return {R::word,
          R::source,
          R::keys,
          R::matrices,
          R::default_momentum,
          R::has_nesterov,
          R::nesterov_by_default,
          R::needs_whole_replicas,
          &R::states,
          &passes_of<R>,
          &R::factor};
}

const auto& descriptions() {
  static const auto all = []<class... R>(std::type_identity<std::tuple<R...>>) {
    return std::array{description_of<R>()...};
  }(std::type_identity<Table>{});
  return all;
}

/// Joins words as "a, b and c", with " and " as `last`.
std::string joined(const std::vector<std::string>& words, std::string_view last) {
  std::string all;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) all += i + 1 == words.size() ? last : std::string_view(", ");
    all += words[i];
  }
  return all;
}

}  // namespace

bool Description::has(PassKind kind, const Settings& settings) const {
  return std::ranges::any_of(passes(settings), [=](const Pass& p) { return p.kind == kind; });
}

std::int64_t Description::norms(const Settings& settings) const {
  std::int64_t most = 0;
  for (const Pass& pass : passes(settings)) most = std::max<std::int64_t>(most, pass.norms);
  return most;
}

const Description& rule_of(OptimizerKind kind) {
  return descriptions()[static_cast<std::size_t>(kind)];
}

std::string readers_of(std::string_view key, std::string_view last, std::string_view quote) {
  std::vector<std::string> words;
  for (const Description& rule : descriptions()) {
    const std::string all = " " + std::string(rule.keys) + " ";
    if (all.find(" " + std::string(key) + " ") != std::string::npos)
      words.push_back(std::string(quote) + std::string(rule.word) + std::string(quote));
  }
  return joined(words, last);
}

std::string rules_with_sources() {
  std::vector<std::string> words;
  for (const Description& rule : descriptions())
    words.push_back(std::string(rule.word) + " (" + std::string(rule.source) + ")");
  return joined(words, " or ");
}

}  // namespace trireme::rules
