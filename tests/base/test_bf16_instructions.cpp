#include <trireme/base/bf16_instructions.hpp>
#include <trireme/base/check.hpp>

#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string>

namespace trireme {
namespace {

TEST(Bf16InstructionsVariable, HasThreeValues) {
  const char* given = std::getenv("TRIREME_BF16");
  const std::optional<std::string> former =
      given == nullptr ? std::nullopt : std::optional<std::string>(given);
  for (const char* valid : {"amx", "avx512", "plain"}) {
    setenv("TRIREME_BF16", valid, 1);
    EXPECT_NO_THROW(expect_valid_bf16_variable()) << valid;
  }
  for (const char* invalid : {"", "AMX", "avx2"}) {
    setenv("TRIREME_BF16", invalid, 1);
    EXPECT_THROW(expect_valid_bf16_variable(), UsageError) << invalid;
  }
  unsetenv("TRIREME_BF16");
  EXPECT_NO_THROW(expect_valid_bf16_variable());
  if (former) setenv("TRIREME_BF16", former->c_str(), 1);
}

}  // namespace
}  // namespace trireme
