#include <trireme/plan/precision.hpp>

#include <gtest/gtest.h>

namespace trireme::plan {
namespace {

TEST(Precision, SaysWhatTf32ComesToHere) {
  deck::PrecisionConfig precision;
  EXPECT_EQ(tf32_note(precision), "");
  precision.tf32 = true;
  EXPECT_EQ(tf32_note(precision).find("no effect") == std::string::npos, has_cublaslt());
}

}  // namespace
}  // namespace trireme::plan
