#include "support/runtime.hpp"

#include <gtest/gtest.h>

#include <cstdio>

namespace trireme::testing {
namespace {
grid::Runtime* current = nullptr;

/// What fails on another rank than the first: its report is silent, and the others may wait for it.
class Failures : public ::testing::EmptyTestEventListener {
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::fprintf(stderr, "rank %d: %s:%d: %s\n", current->rank(),
                 result.file_name() != nullptr ? result.file_name() : "", result.line_number(),
                 result.message());
    std::fflush(stderr);
  }
};

}  // namespace

grid::Runtime& runtime() {
  return *current;
}
}  // namespace trireme::testing

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  trireme::grid::Runtime runtime(argc, argv);
  trireme::testing::current = &runtime;
  if (runtime.rank() > 0) {  // one report is enough, with the failures of the others
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new trireme::testing::Failures);
  }
  const std::int64_t failed = runtime.world().all_reduce<std::int64_t>(
      RUN_ALL_TESTS(), trireme::grid::Reduction::maximum, "test result");
  using trireme::ExitCode;
  return static_cast<int>(runtime.ends_with(failed == 0 ? ExitCode::finished : ExitCode::failed));
}
