#include <commands/training_runs.hpp>
#include <trireme/checkpoint/writer.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

/// Checkpoints that cannot be read although they are intact, and names that a terminal must not
/// obey.
namespace trireme::commands {
namespace {

using namespace commands::testing;

class FailingReads : public TrainingRuns {
 protected:
  FailingReads() {
    EXPECT_EQ(run(train(1, "run.steps=6 checkpoint.every=2") + " && cp -a run whole"), 0) << err();
  }

  /// Continues the run while calls for the newest checkpoint fail after the first `after` ones.
  int restart(int ranks, const std::string& call, int after, int error) const {
    return run(
        "rm -rf run; cp -a whole run; export LD_PRELOAD=" TRIREME_FAILING_CALLS " FAULT_CALL=" +
        call + " FAULT_PATH=step_00000006/ FAULT_TIMES=0 FAULT_AT=" + std::to_string(after + 1) +
        " FAULT_ERRNO=" + std::to_string(error) + "; " +
        train(ranks, "run.steps=8 checkpoint.restart=latest"));
  }
};

/// Whichever call fails, the run continues from that checkpoint or says why it takes the one
/// before.
TEST_F(FailingReads, FallBackToThePreviousCheckpointWithAReason) {
  for (const auto& [call, error] :
       std::vector<std::pair<std::string, int>>{{"open", EIO}, {"open", EACCES}, {"pread", EIO}}) {
    int fell_back = 0;
    std::int64_t restored = 0;
    if (error == EACCES && !soak()) continue;
    for (int after = 0; after < 1000 && restored != 6; after += 1 + after / (soak() ? 16 : 3)) {
      SCOPED_TRACE(call + " fails after " + std::to_string(after) + " calls");
      ASSERT_EQ(restart(after % 4 == 3 ? 2 : 1, call, after, error), 0) << err();
      restored = last_job().restored;
      ASSERT_TRUE(restored == 4 || restored == 6) << restored;
      if (restored == 6) continue;
      ++fell_back;
      const auto warnings = recorded_warnings(folder_, "run");
      EXPECT_TRUE(std::ranges::any_of(warnings, [](const std::string& w) {
        return w.find("step_00000006 is skipped") != std::string::npos &&
               w.find(": cannot ") != std::string::npos;
      })) << err();
      EXPECT_EQ(metrics("run", "loss").size(), 8u);
    }
    EXPECT_EQ(restored, 6) << "more calls are made than were tried";
    EXPECT_GT(fell_back, 2);
  }
}

TEST_F(FailingReads, UnreadableLatestMeansTheNewestCheckpoint) {
  ASSERT_EQ(run("export LD_PRELOAD=" TRIREME_FAILING_CALLS
                " FAULT_CALL=open FAULT_PATH=checkpoints/latest FAULT_TIMES=0 FAULT_ERRNO=5; " +
                train(1, "run.steps=8 checkpoint.restart=latest checkpoint.every=100")),
            1)
      << "`latest` cannot be written either";
  EXPECT_EQ(last_job().restored, 6) << err();
}

TEST_F(FailingReads, UnreadableNamedCheckpointEndsTheRun) {
  ASSERT_EQ(run("export LD_PRELOAD=" TRIREME_FAILING_CALLS
                " FAULT_CALL=pread FAULT_PATH=step_00000006/ FAULT_TIMES=0 FAULT_ERRNO=5; " +
                train(1, "run.steps=8 checkpoint.restart=run/checkpoints/step_00000006")),
            1);
  expect_one_error({"step_00000006/", "Input/output error"});
}

TEST_F(FailingReads, InspectEscapesControlCharacters) {
  checkpoint::RunState state{1, 2, "deck", "data 1\x1b[2J", {{"a\x07", "b\nstep 9"}}};
  const std::vector<float> numbers(4, 1);
  const std::vector<checkpoint::ArrayView> arrays{{"x\x1b]0;", DType::fp32, {4}, numbers.data()}};
  checkpoint::write(folder_.file("odd"), state, arrays, 0);
  ASSERT_EQ(run("trireme inspect odd"), 0) << err();
  for (const char* part : {"data 1\\x1B[2J", "a\\x07 = b\\x0Astep 9", "x\\x1B]0;"})
    expect_output(folder_, part);
  EXPECT_TRUE(std::ranges::all_of(out(), [](char c) {
    return c == '\n' || static_cast<unsigned char>(c) >= 0x20;
  })) << out();
}

}  // namespace
}  // namespace trireme::commands
