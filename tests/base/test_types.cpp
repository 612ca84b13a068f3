#include <trireme/base/types.hpp>

#include "support/words.hpp"

#include <gtest/gtest.h>

namespace trireme {
namespace {

using testing::expect_words_read_back;

TEST(Types, WordsReadBackToTheirValues) {
  expect_words_read_back<DType>();
  expect_words_read_back<StagePlacement>();
  expect_words_read_back<Positions>();
  expect_words_read_back<AttentionKind>();
  expect_words_read_back<Axis>();
  EXPECT_EQ(name_of(StagePlacement::round_robin), "round_robin");
}

TEST(Types, SizesMatchTheCppTypes) {
  EXPECT_EQ(size_of(dtype_of<double>), 8);
  EXPECT_EQ(size_of(dtype_of<float>), 4);
  EXPECT_EQ(size_of(DType::bf16), 2);
  EXPECT_EQ(size_of(DType::fp16), 2);
  EXPECT_EQ(size_of(dtype_of<std::int64_t>), 8);
  EXPECT_EQ(size_of(dtype_of<std::uint32_t>), 4);
  EXPECT_EQ(size_of(dtype_of<std::uint16_t>), 2);
  EXPECT_EQ(size_of(dtype_of<std::uint8_t>), 1);
}

}  // namespace
}  // namespace trireme
