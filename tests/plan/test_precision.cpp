#include <trireme/base/check.hpp>
#include <trireme/plan/offload.hpp>
#include <trireme/plan/precision.hpp>

#include <gtest/gtest.h>

#include "plan/deck_with.hpp"

namespace trireme::plan {
namespace {

TEST(Precision, SaysWhatTf32ComesToHere) {
  deck::PrecisionConfig precision;
  EXPECT_EQ(tf32_note(precision), "");
  precision.tf32 = true;
  EXPECT_EQ(tf32_note(precision).find("no effect") == std::string::npos, has_cublaslt());
}

TEST(Precision, SaysWhatAttentionComesToHere) {
  deck::PrecisionConfig precision;
  EXPECT_EQ(attention_note(precision), "");
  precision.attention = AttentionKind::cudnn;
  const std::string note = attention_note(precision);
  EXPECT_EQ(note.find("no effect") == std::string::npos, has_device()) << note;
}

TEST(Precision, CudnnThatIsNotThereIsAMistakeOfTheDeck) {
  deck::Deck deck = testing::deck_with("[precision]\ncompute = \"bf16\"\nattention = \"cudnn\"");
  EXPECT_NO_THROW(expect_attention(deck, false));
  try {
    expect_attention(deck, true);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "[precision] attention = \"cudnn\" (a.toml:18) is not possible: this installation "
                 "was built without cuDNN; choose attention = \"auto\", or configure with "
                 "-DTRIREME_CUDNN=ON");
  }
  deck.config.precision.attention = AttentionKind::automatic;
  EXPECT_NO_THROW(expect_attention(deck, true));
}

}  // namespace
}  // namespace trireme::plan
