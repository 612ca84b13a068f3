#include "support/runtime.hpp"

#include <gtest/gtest.h>

#include <memory>

namespace trireme::testing {
namespace {
grid::Runtime* current = nullptr;
}
grid::Runtime& runtime() {
  return *current;
}
}  // namespace trireme::testing

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  trireme::grid::Runtime runtime(argc, argv);
  trireme::testing::current = &runtime;
  if (runtime.rank() > 0)  // one report is enough; a failure elsewhere still shows in the exit code
    delete testing::UnitTest::GetInstance()->listeners().Release(
        testing::UnitTest::GetInstance()->listeners().default_result_printer());
  const std::int64_t failed = RUN_ALL_TESTS();
  return static_cast<int>(runtime.world().all_reduce<std::int64_t>(
      failed, trireme::grid::Reduction::maximum, "test result"));
}
