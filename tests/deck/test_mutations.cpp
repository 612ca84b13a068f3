#include <trireme/base/check.hpp>
#include <trireme/deck/deck.hpp>
#include <trireme/deck/layout.hpp>
#include <trireme/deck/parallel_checks.hpp>

#include <gtest/gtest.h>

#include <random>
#include <string_view>

#include "deck/example.hpp"

namespace trireme::deck {
namespace {

/// Random edits of a valid deck: bytes changed, removed and doubled, TOML fragments inserted, lines
/// swapped.
std::string mutated(std::string content, std::mt19937_64& random) {
  constexpr std::string_view fragments[] = {"[",
                                            "]",
                                            "{",
                                            "}",
                                            "=",
                                            ".",
                                            "\"",
                                            "'",
                                            "#",
                                            "\n",
                                            "[[",
                                            "\\u0000",
                                            "nan",
                                            "inf",
                                            "-",
                                            "9999999999999999999",
                                            "1e999",
                                            "_",
                                            ",",
                                            "\xff",
                                            "\xe2\x80\xa8",
                                            "\r",
                                            "\v",
                                            "true",
                                            "2020-01-01",
                                            "a.b.c"};
  const auto edits = 1 + random() % 4;
  for (std::uint64_t edit = 0; edit < edits; ++edit) {
    const std::size_t at = random() % (content.size() + 1);
    const std::size_t length = random() % 12;
    switch (random() % 5) {
      case 0:
        if (at < content.size()) content[at] = static_cast<char>(random());
        break;
      case 1:
        content.erase(at, length);
        break;
      case 2:
        content.insert(at, content.substr(random() % (content.size() + 1), length));
        break;
      case 3:
        content.insert(at, fragments[random() % std::size(fragments)]);
        break;
      default:
        if (at < content.size() && content[at] >= '0' && content[at] <= '9')
          content[at] = static_cast<char>('0' + random() % 10);
    }
  }
  return content;
}

TEST(Mutations, GiveAReadableDeckOrAUsageError) {
  const std::string whole = resolved_toml(parse_deck(example, "a.toml"));
  std::mt19937_64 random(11);
  int accepted = 0, refused = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    const std::string content = mutated(trial % 2 == 0 ? example : whole, random);
    try {
      Deck deck = parse_deck(content, "a.toml", {"run.steps=" + mutated("20", random)});
      EXPECT_EQ(parse_deck(resolved_toml(deck), "resolved.toml").config, deck.config) << content;
      ++accepted;
      if (deck.config.parallel.layout == LayoutMode::automatic) expect_layout(deck, 1 + trial % 7);
      resolve_parallel(deck, 1 + trial % 7);
    } catch (const UsageError& error) {
      EXPECT_NE(std::string_view(error.what()), "");
      ++refused;
    }
  }
  EXPECT_GT(accepted, 50) << "the mutations are too rough to reach past the parser";
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace trireme::deck
