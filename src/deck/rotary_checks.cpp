// Conditions on rotary positions and on their scaling for longer sequences.
#include <trireme/deck/rotary_checks.hpp>

#include <trireme/base/text.hpp>
#include <trireme/deck/choices.hpp>

namespace trireme::deck {
namespace {

/// The mistake of heads with an odd number of columns.
std::string odd_heads(const Deck& deck) {
  const ModelConfig& m = deck.config.model;
  if (m.explicit_head_size > 0)
    return text(deck.cite("model", "head_size"),
                " is odd, and rotary positions need an even number; choose ", m.head_size() + 1);
  if (m.hidden % m.heads != 0) return "";  // reported anyway
  return text(deck.cite("model", "hidden"), " / ", deck.cite("model", "heads"),
              " is a head size of ", m.head_size(), ", and rotary positions need an even one; ",
              m.hidden % 2 == 0 ? text("choose ", choices(divisors(m.hidden / 2), m.heads),
                                       " heads, or set head_size")
                                : text("set an even head_size, or choose an even hidden"));
}

}  // namespace

std::vector<std::string> rotary_mistakes(const Deck& deck) {
  std::vector<std::string> mistakes;
  const ModelConfig& m = deck.config.model;
  if (m.positions == Positions::rotary && m.head_size() % 2 != 0)
    if (const std::string mistake = odd_heads(deck); !mistake.empty()) mistakes.push_back(mistake);
  if (m.rope_scaling == RotaryScalingKind::none) return mistakes;
  const auto report = [&](const auto&... parts) { mistakes.push_back(text(parts...)); };
  const std::string scaling = deck.cite("model", "rope_scaling");
  if (m.positions != Positions::rotary)
    report(scaling, " needs rotary positions, but the deck has ", deck.cite("model", "positions"),
           "; choose rope_scaling = \"none\", or positions = \"rotary\"");
  if (!deck.places.contains("model.rope_factor"))
    report(scaling, " needs rope_factor; set it to the factor by which sequences are longer than ",
           "those of the earlier training");
  const bool yarn = m.rope_scaling == RotaryScalingKind::yarn;
  if (m.rope_scaling != RotaryScalingKind::linear && m.rope_original_sequence == 0)
    report(scaling,
           " needs rope_original_sequence; set it to the sequence of the earlier training");
  if (m.rope_scaling == RotaryScalingKind::dynamic && m.head_size() <= 2)
    report(scaling, " needs heads of more than 2 columns, but a head has ", m.head_size(),
           "; choose fewer heads, or another rope_scaling");
  if (m.rope_scaling == RotaryScalingKind::llama3 &&
      m.rope_high_frequency_factor <= m.rope_low_frequency_factor)
    report(deck.cite("model", "rope_high_frequency_factor"), " is not above ",
           deck.cite("model", "rope_low_frequency_factor"), "; choose a larger one");
  if (yarn && m.rope_beta_fast < m.rope_beta_slow)
    report(deck.cite("model", "rope_beta_fast"), " is less than ",
           deck.cite("model", "rope_beta_slow"), "; choose a larger one");
  if (yarn && m.rope_theta <= 1)
    report(scaling, " needs rope_theta above 1, but the deck has ",
           deck.cite("model", "rope_theta"), "; choose a larger one");
  return mistakes;
}

}  // namespace trireme::deck
