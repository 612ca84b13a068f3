#include <trireme/schedule/generate.hpp>
#include <trireme/schedule/needs.hpp>
#include <trireme/train/executor.hpp>

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace trireme::train {
namespace {

using schedule::Instr;

/// Records what ran, and checks that a slot holds one micro-batch at a time.
class Recorder : public Actions {
 public:
  std::vector<std::string> ran;
  std::set<int> held;

  void forward(Instr i, int slot) override {
    EXPECT_TRUE(held.insert(slot).second) << "slot " << slot << " is taken";
    ran.push_back(schedule::to_string(i));
  }
  void backward(Instr i, int slot) override {
    EXPECT_EQ(held.erase(slot), 1u);
    ran.push_back(schedule::to_string(i));
  }
  void backward_input(Instr i, int slot) override {
    EXPECT_TRUE(held.contains(slot));
    ran.push_back(schedule::to_string(i));
  }
  void backward_weight(Instr i, int slot) override { backward(i, slot); }
  void reduce_gradients(Instr i) override { ran.push_back(schedule::to_string(i)); }
  void optimizer_step(Instr i) override { ran.push_back(schedule::to_string(i)); }
};

TEST(Executor, RunsEachRowInOrderAndReusesSlots) {
  for (const auto kind : {ScheduleKind::gpipe, ScheduleKind::one_forward_one_backward})
    for (Rank rank = 0; rank < 3; ++rank) {
      const schedule::Program program = schedule::generate(kind, {3, 5});
      const Executor executor(program, rank);
      EXPECT_EQ(executor.slots(), schedule::slots_needed(program, rank));
      Recorder recorder;
      executor.run(recorder);
      executor.run(recorder);  // a second step
      const auto& row = program.ranks[static_cast<std::size_t>(rank)];
      ASSERT_EQ(recorder.ran.size(), 2 * row.size());
      for (std::size_t i = 0; i < recorder.ran.size(); ++i)
        EXPECT_EQ(recorder.ran[i], schedule::to_string(row[i % row.size()]));
      EXPECT_TRUE(recorder.held.empty());
    }
}

}  // namespace
}  // namespace trireme::train
