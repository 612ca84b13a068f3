#include <trireme/deck/adapter_checks.hpp>

#include <trireme/base/text.hpp>

#include <algorithm>

namespace trireme::deck {

std::vector<std::string> adapter_mistakes(const Deck& deck) {
  std::vector<std::string> mistakes;
  const auto report = [&](const auto&... parts) { mistakes.push_back(text(parts...)); };
  const ModelConfig& m = deck.config.model;
  const AdapterConfig& a = m.adapter;
  if (!a.present()) return mistakes;
  const std::string targets = deck.cite("adapter", "targets");
  if (a.targets.empty())
    report(targets, " names no product; choose some, such as [\"attention.query\"]");
  const bool gated = m.gated();
  const std::string_view other = gated ? "feed_forward.up" : "feed_forward.gate_up";
  if (a.targets_product(other))
    report(targets, " names ", other, ", which a model with ", deck.cite("model", "activation"),
           " does not have; choose ", gated ? "feed_forward.gate_up" : "feed_forward.up");
  if (a.targets_product("attention.query_key_value") &&
      (a.targets_product("attention.query") || a.targets_product("attention.key_value")))
    report(targets,
           " names queries, or keys and values, twice; choose attention.query_key_value, or "
           "attention.query and attention.key_value");
  for (const std::string& target : a.targets)
    if (std::ranges::count(a.targets, target) > 1) {
      report(targets, " names ", target, " twice; name it once");
      break;
    }
  return mistakes;
}

}  // namespace trireme::deck
