#include "deck/example.hpp"

namespace trireme::deck {
namespace {

using Overrides = std::vector<std::string>;

std::string mistakes_with(Overrides more) {
  more.insert(more.begin(), "model.family=llama");
  return mistakes_of(example, more);
}

TEST(RotaryChecks, AcceptCompleteScalings) {
  for (const Overrides& more :
       {Overrides{"model.rope_scaling=linear"},
        Overrides{"model.rope_scaling=dynamic", "model.rope_original_sequence=8"},
        Overrides{"model.rope_scaling=yarn", "model.rope_original_sequence=8"},
        Overrides{"model.rope_scaling=llama3", "model.rope_original_sequence=8"}}) {
    Overrides all = more;
    all.insert(all.end(), {"model.family=llama", "model.rope_factor=1"});
    EXPECT_NE(parse_deck(example, "a.toml", all).config.model.rope_scaling,
              RotaryScalingKind::none);
  }
}

TEST(RotaryChecks, ReportMissingKeys) {
  expect_contains(mistakes_with({"model.rope_scaling=linear"}),
                  "[model] rope_scaling = \"linear\" (command line) needs rope_factor; set it to "
                  "the factor by which sequences are longer");
  for (const char* kind : {"dynamic", "yarn", "llama3"})
    expect_contains(mistakes_with({text("model.rope_scaling=", kind), "model.rope_factor=2"}),
                    "needs rope_original_sequence; set it to the sequence of the earlier training");
  expect_contains(mistakes_of(example, {"model.rope_scaling=linear", "model.rope_factor=2"}),
                  "needs rotary positions, but the deck has [model] positions = \"learned\"");
}

TEST(RotaryChecks, ReportContradictions) {
  const auto with = [](const char* kind, Overrides more) {
    more.insert(more.end(), {text("model.rope_scaling=", kind), "model.rope_factor=2",
                             "model.rope_original_sequence=8"});
    return mistakes_with(more);
  };
  expect_contains(with("llama3", {"model.rope_high_frequency_factor=1"}),
                  "[model] rope_high_frequency_factor = 1.0 (command line) is not above [model] "
                  "rope_low_frequency_factor = 1.0 (default)");
  expect_contains(
      with("yarn", {"model.rope_beta_slow=33"}),
      "[model] rope_beta_fast = 32.0 (default) is less than [model] rope_beta_slow = 33");
  expect_contains(with("yarn", {"model.rope_theta=1"}), "needs rope_theta above 1");
  expect_contains(with("dynamic", {"model.head_size=2"}),
                  "needs more than 2 rotated columns of a head, but a head has 2");
  expect_contains(mistakes_with({"model.rope_scaling=linear", "model.rope_factor=0.5"}),
                  "model.rope_factor=0.5: expected a number of at least 1");
}

}  // namespace
}  // namespace trireme::deck
