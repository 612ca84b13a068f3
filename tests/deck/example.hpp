#pragma once

#include <trireme/base/check.hpp>
#include <trireme/deck/deck.hpp>
#include <trireme/deck/parallel_checks.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "support/messages.hpp"

namespace trireme::deck {

using testing::expect_contains;

/// A deck with every required key; heads on line 4, global on line 7.
inline const std::string example =
    "[model]\n"
    "layers = 2\n"
    "hidden = 40\n"
    "heads = 4\n"
    "sequence = 16\n"
    "[batch]\n"
    "global = 12\n"
    "micro = 2\n"
    "[data]\n"
    "train = \"data/corpus.h5\"\n";

/// The message of the UsageError for a deck; "" and a failed test if there is no error.
inline std::string mistakes_of(const std::string& content,
                               const std::vector<std::string>& overrides = {}) {
  try {
    parse_deck(content, "a.toml", overrides);
  } catch (const UsageError& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.what();
  }
  ADD_FAILURE() << "accepted:\n" << content.substr(0, 400);
  return "";
}

inline std::string replaced(std::string content, const std::string& what, const std::string& by) {
  const std::size_t at = content.find(what);
  if (at == std::string::npos) throw std::logic_error("nothing to replace: " + what);
  return content.replace(at, what.size(), by);
}

/// The message of the UsageError of resolve_parallel.
inline std::string resolve_refusal(std::int64_t ranks, const std::vector<std::string>& overrides) {
  Deck deck = parse_deck(example, "a.toml", overrides);
  try {
    resolve_parallel(deck, ranks);
  } catch (const UsageError& error) {
    return error.what();
  }
  ADD_FAILURE() << "accepted";
  return "";
}

}  // namespace trireme::deck
