#include <trireme/deck/enums.hpp>

#include "support/words.hpp"

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(Enums, WordsReadBackToTheirValues) {
  testing::expect_words_read_back<RotaryScalingKind>();
  testing::expect_words_read_back<AdapterKind>();
  testing::expect_words_read_back<AdapterScaling>();
  testing::expect_words_read_back<AuditAction>();
  testing::expect_words_read_back<DataStrategy>();
  testing::expect_words_read_back<ServerUpdates>();
}

}  // namespace
}  // namespace trireme
