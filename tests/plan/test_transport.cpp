#include <trireme/base/check.hpp>
#include <trireme/plan/transport.hpp>

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace trireme::plan {
namespace {

/// Its line 17 is `key`, of [parallel].
deck::Deck deck_with(const std::string& key, const std::vector<std::string>& overrides = {}) {
  const std::string before = R"([run]
steps = 20
[model]
layers = 2
hidden = 64
heads = 4
sequence = 64
vocabulary = 257
[batch]
global = 8
micro = 2
[optimizer]
learning_rate = 3e-3
[data]
train = "data/tiny.h5"
)";
  return deck::parse_deck(before + "[parallel]\n" + key + "\n", "a.toml", overrides);
}

std::string error_of(const deck::Deck& deck) {
  try {
    expect_transport(deck, true);
  } catch (const UsageError& e) {
    return e.what();
  }
  return "no error";
}

TEST(Transport, ThatTheInstallationLacksIsNamedWithItsPlaceInTheDeck) {
  const std::string what =
      " is not possible: this installation was built without NCCL; choose transport = \"mpi\", or "
      "configure with -DTRIREME_NCCL=ON";
  EXPECT_EQ(error_of(deck_with("transport = \"nccl\"")),
            "[parallel] transport = \"nccl\" (a.toml:17)" + what);
  EXPECT_EQ(error_of(deck_with("tensor = 1", {"parallel.transport=nccl"})),
            "[parallel] transport = \"nccl\" (command line)" + what);
}

TEST(Transport, WhatTheInstallationHasIsNoError) {
  for (const char* kind : {"auto", "mpi"}) {
    const deck::Deck deck = deck_with(text("transport = \"", kind, "\""));
    EXPECT_NO_THROW(expect_transport(deck, true));
  }
  const deck::Deck nccl = deck_with("transport = \"nccl\"");
  EXPECT_NO_THROW(expect_transport(nccl, false));
  if (lacks_nccl())
    EXPECT_THROW(expect_transport(nccl), UsageError);
  else
    EXPECT_NO_THROW(expect_transport(nccl));
}

}  // namespace
}  // namespace trireme::plan
