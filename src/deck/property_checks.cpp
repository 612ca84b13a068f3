#include <trireme/deck/property_checks.hpp>

#include <trireme/base/text.hpp>

namespace trireme::deck {

std::vector<std::string> property_mistakes(const Deck& deck) {
  std::vector<std::string> mistakes;
  const ModelConfig& m = deck.config.model;
  const auto report = [&](const auto&... parts) { mistakes.push_back(text(parts...)); };
  const auto cite = [&](const char* key) { return deck.cite("model", key); };
  if (!m.causal() && !m.predicts_masked_tokens())
    report(cite("mask"), " lets each token see the one that ", cite("objective"),
           " predicts; choose mask = \"causal\", or objective = \"masked_token\"");
  if (!m.causal() && m.window > 0)
    report(cite("window"), " needs mask = \"causal\", but ", cite("mask"),
           "; choose window = 0, or mask = \"causal\"");
  if (m.packs_documents() && m.predicts_masked_tokens())
    report(deck.cite("data", "packing"), " needs objective = \"next_token\", but ",
           cite("objective"), " trains on pairs of segments; set packing = \"none\"");
  if (m.packs_documents() && !m.causal() && !m.predicts_masked_tokens())
    report(deck.cite("data", "packing"), " needs mask = \"causal\", but ", cite("mask"),
           "; choose packing = \"none\", or mask = \"causal\"");
  if (m.shared_layers > m.layers)
    report(cite("shared_layers"), " is more than ", cite("layers"), "; choose at most ", m.layers);

  // `key` needs another value of the key `other`.
  const auto expect = [&](const char* key, bool used, const char* other, bool fits,
                          const char* needs, const char* none) {
    if (used && !fits)
      report(cite(key), " needs ", needs, ", but the deck has ", cite(other), "; choose ", key,
             " = ", none, ", or change ", other);
  };
  expect("zero_centered_gains", m.zero_centered_gains, "norm", m.norm == NormKind::rms,
         "norm = \"rms\"", "false");
  expect("full_attention_every", m.full_attention_every > 0, "window", m.window > 0, "a window",
         "0");
  expect("window_rope_theta", m.window_rope_theta > 0, "window", m.window > 0, "a window", "0");
  expect("window_rope_theta", m.window_rope_theta > 0, "positions",
         m.positions == Positions::rotary, "positions = \"rotary\"", "0");
  expect("logit_softcap", m.logit_softcap > 0, "objective", !m.predicts_masked_tokens(),
         "objective = \"next_token\"", "0");
  return mistakes;
}

}  // namespace trireme::deck
