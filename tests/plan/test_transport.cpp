#include <trireme/base/check.hpp>
#include <trireme/plan/transport.hpp>

#include <gtest/gtest.h>

#include <string>

#include "plan/deck_with.hpp"

namespace trireme::plan {
namespace {

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
  EXPECT_EQ(error_of(testing::deck_with("[parallel]\ntransport = \"nccl\"")),
            "[parallel] transport = \"nccl\" (a.toml:17)" + what);
  EXPECT_EQ(error_of(testing::deck_with("[parallel]\ntensor = 1", {"parallel.transport=nccl"})),
            "[parallel] transport = \"nccl\" (command line)" + what);
}

TEST(Transport, WhatTheInstallationHasIsNoError) {
  for (const char* kind : {"auto", "mpi"}) {
    const deck::Deck deck = testing::deck_with(text("[parallel]\ntransport = \"", kind, "\""));
    EXPECT_NO_THROW(expect_transport(deck, true));
  }
  const deck::Deck nccl = testing::deck_with("[parallel]\ntransport = \"nccl\"");
  EXPECT_NO_THROW(expect_transport(nccl, false));
  if (lacks_nccl())
    EXPECT_THROW(expect_transport(nccl), UsageError);
  else
    EXPECT_NO_THROW(expect_transport(nccl));
}

}  // namespace
}  // namespace trireme::plan
