#include <trireme/base/text.hpp>
#include <trireme/schedule/generate.hpp>
#include <trireme/schedule/lower.hpp>
#include <trireme/schedule/needs.hpp>
#include <trireme/train/executor.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace trireme::train {
namespace {

using schedule::Instr;

/// Records what ran, and checks that a slot and a receive buffer hold one micro-batch at a time.
class Recorder : public Actions {
 public:
  explicit Recorder(int stages) : last_(stages - 1) {}

  std::vector<std::string> ran;
  std::set<int> slots;
  std::map<bool, std::map<int, Instr>> buffers;  ///< by direction: posted for what

  void forward(const Step& s) override {
    EXPECT_TRUE(slots.insert(s.slot).second) << "slot " << s.slot << " is taken";
    evaluate(s);
  }
  void evaluate(const Step& s) override {
    if (s.instr.stage > 0) read(true, s);
    note(s);
  }
  void backward(const Step& s) override {
    if (s.instr.stage < last_) read(false, s);
    give_back(s);
  }
  void backward_input(const Step& s) override {
    EXPECT_TRUE(slots.contains(s.slot));
    if (s.instr.stage < last_) read(false, s);
    note(s);
  }
  void backward_weight(const Step& s) override { give_back(s); }
  void receive_activation(const Step& s) override { post(true, s); }
  void receive_gradient(const Step& s) override { post(false, s); }
  void send_activation(const Step& s) override { note(s); }
  void send_gradient(const Step& s) override { note(s); }
  void reduce_gradients(const Step& s) override { note(s); }
  void reduce_tied(const Step& s) override { note(s); }
  void gradient_norm(const Step& s) override { note(s); }
  void optimizer_step(const Step& s) override { note(s); }

 private:
  void note(const Step& s) { ran.push_back(schedule::to_string(s.instr)); }
  void give_back(const Step& s) {
    EXPECT_EQ(slots.erase(s.slot), 1u);
    note(s);
  }
  void post(bool activation, const Step& s) {
    EXPECT_TRUE(buffers[activation].emplace(s.buffer, s.instr).second) << s.instr;
    note(s);
  }
  void read(bool activation, const Step& s) {
    const auto posted = buffers[activation].find(s.buffer);
    ASSERT_NE(posted, buffers[activation].end()) << s.instr;
    EXPECT_EQ(posted->second.stage, s.instr.stage);
    EXPECT_EQ(posted->second.micro, s.instr.micro);
    buffers[activation].erase(posted);
  }
  int last_;
};

void expect_row(const schedule::Program& program, Rank rank) {
  const Executor executor(program, rank);
  Recorder recorder(program.layout.stages());
  executor.run(recorder);
  executor.run(recorder);  // a second step
  const auto& row = program.ranks[static_cast<std::size_t>(rank)];
  ASSERT_EQ(recorder.ran.size(), 2 * row.size());
  for (std::size_t i = 0; i < recorder.ran.size(); ++i)
    EXPECT_EQ(recorder.ran[i], schedule::to_string(row[i % row.size()]));
  EXPECT_TRUE(recorder.slots.empty());
  EXPECT_TRUE(recorder.buffers[true].empty());
  EXPECT_TRUE(recorder.buffers[false].empty());
  const schedule::Needs needs = schedule::needs(program, rank);
  EXPECT_EQ(executor.slots(), std::max(1, needs.slots));
  EXPECT_EQ(executor.activation_buffers(), needs.received_activations);
  EXPECT_EQ(executor.gradient_buffers(), needs.received_gradients);
  EXPECT_EQ(executor.splits_backward(), needs.split_backward);
}

TEST(Executor, RunsEachRowInOrderAndReusesSlotsAndBuffers) {
  for (const auto& [kind, chunks] : {std::pair{ScheduleKind::gpipe, 1},
                                     {ScheduleKind::one_forward_one_backward, 1},
                                     {ScheduleKind::interleaved, 2},
                                     {ScheduleKind::zb_h1, 1}})
    for (const int ranks : {1, 3})
      for (Rank rank = 0; rank < ranks; ++rank) {
        SCOPED_TRACE(text(name_of(kind), ", rank ", rank, " of ", ranks));
        schedule::Program program = schedule::generate(kind, {ranks, 5, chunks});
        schedule::lower(program, {true});
        expect_row(program, rank);
      }
}

/// Writes brackets around groups.
class Groups : public Recorder {
 public:
  using Recorder::Recorder;
  void begin_group() override { ran.push_back("["); }
  void end_group() override { ran.push_back("]"); }
};

TEST(Executor, TransfersBetweenTwoComputationsAreOneGroup) {
  schedule::Program program = schedule::generate(ScheduleKind::one_forward_one_backward, {4, 8, 1});
  schedule::lower(program, {true, schedule::Transport::ordered_groups});
  for (Rank rank = 0; rank < 4; ++rank) {
    Groups recorder(4);
    Executor(program, rank).run(recorder);
    std::vector<std::string> expected;
    bool open = false;
    for (const Instr& instr : program.ranks[static_cast<std::size_t>(rank)]) {
      if (schedule::is_transfer(instr.op) != open) expected.push_back(open ? "]" : "[");
      open = schedule::is_transfer(instr.op);
      expected.push_back(schedule::to_string(instr));
    }
    EXPECT_EQ(recorder.ran, expected);
    EXPECT_GT(std::ranges::count(expected, "["), 2);
  }
  schedule::Program channels =
      schedule::generate(ScheduleKind::one_forward_one_backward, {4, 8, 1});
  schedule::lower(channels, {true});
  Groups recorder(4);
  Executor(channels, 1).run(recorder);
  EXPECT_EQ(std::ranges::count(recorder.ran, "["), 0) << "channels have none";
}

TEST(Executor, EvaluationKeepsNoSlots) {
  schedule::Program program = schedule::generate_evaluation({3, 7, 2});
  schedule::lower(program, {});
  for (Rank rank = 0; rank < 3; ++rank) expect_row(program, rank);
}

}  // namespace
}  // namespace trireme::train
