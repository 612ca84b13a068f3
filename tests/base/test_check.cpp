#include <trireme/base/check.hpp>

#include <gtest/gtest.h>

#include <string>

namespace trireme {
namespace {

TEST(Check, ReportsTheMessageAndSourceLine) {
  const int rows = 2;
  const int line = __LINE__ + 2;
  try {
    check(rows == 3, "rows = ", rows, ", expected 3");
    FAIL() << "did not throw";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(message.find("rows = 2, expected 3  ["), 0u) << message;
    EXPECT_NE(message.find(text("test_check.cpp:", line, "]")), std::string::npos) << message;
    EXPECT_EQ(error.code(), ExitCode::failed);
  }
}

TEST(Check, AcceptsATrueCondition) {
  EXPECT_NO_THROW(check(true, "never said"));
  EXPECT_NO_THROW(check_usage(true, "never said"));
}

TEST(CheckUsage, GivesExitCodeTwoWithoutASourceLine) {
  try {
    check_usage(false, "steps = ", 0, "; choose at least 1");
    FAIL() << "did not throw";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "steps = 0; choose at least 1");
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_EQ(static_cast<int>(error.code()), 2);
  }
}

}  // namespace
}  // namespace trireme
