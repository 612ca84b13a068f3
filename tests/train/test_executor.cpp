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
using schedule::Op;

enum class BufferKind { activation, gradient, handed_over };

/// Records what ran, and checks that a slot and a buffer hold one micro-batch at a time.
class Recorder : public Actions {
 public:
  explicit Recorder(const schedule::ProgramLayout& layout)
      : layout_(layout), last_(layout.last_stage()) {}

  std::vector<std::string> ran;
  std::set<int> slots;
  std::map<BufferKind, std::map<int, Instr>> buffers;  ///< the receives that they belong to

  void forward(const PlacedInstr& s) override {
    EXPECT_TRUE(slots.insert(s.slot).second) << "slot " << s.slot << " is taken";
    evaluate(s);
  }
  void evaluate(const PlacedInstr& s) override {
    if (s.instr.stage > 0) read({Op::receive_activation, s.instr.stage, s.instr.micro}, s);
    note(s);
  }
  void backward(const PlacedInstr& s) override {
    if (s.instr.stage < last_) read({Op::receive_gradient, s.instr.stage, s.instr.micro}, s);
    give_back(s);
  }
  void backward_input(const PlacedInstr& s) override {
    EXPECT_TRUE(slots.contains(s.slot));
    if (s.instr.stage < last_) read({Op::receive_gradient, s.instr.stage, s.instr.micro}, s);
    note(s);
  }
  void backward_weight(const PlacedInstr& s) override { give_back(s); }
  void receive_activation(const PlacedInstr& s) override { receive(s); }
  void receive_gradient(const PlacedInstr& s) override { receive(s); }
  void send_activation(const PlacedInstr& s) override { send(s); }
  void send_gradient(const PlacedInstr& s) override { send(s); }
  void reduce_gradients(const PlacedInstr& s) override { note(s); }
  void reduce_tied(const PlacedInstr& s) override { note(s); }
  void gradient_norm(const PlacedInstr& s) override { note(s); }
  void optimizer_step(const PlacedInstr& s) override { note(s); }

 private:
  void note(const PlacedInstr& s) { ran.push_back(schedule::to_string(s.instr)); }
  void give_back(const PlacedInstr& s) {
    EXPECT_EQ(slots.erase(s.slot), 1u);
    note(s);
  }
  BufferKind kind_of(const Instr& receive) const {
    if (layout_.is_local(receive)) return BufferKind::handed_over;
    return receive.op == Op::receive_activation ? BufferKind::activation : BufferKind::gradient;
  }
  void receive(const PlacedInstr& s) {
    if (layout_.is_local(s.instr))
      EXPECT_EQ(s.buffer, -1) << "the send has filled its buffer";
    else
      EXPECT_TRUE(buffers[kind_of(s.instr)].emplace(s.buffer, s.instr).second) << s.instr;
    note(s);
  }
  void send(const PlacedInstr& s) {
    const Instr receive = schedule::partner_of(s.instr);
    if (layout_.is_local(receive))
      EXPECT_TRUE(buffers[BufferKind::handed_over].emplace(s.buffer, receive).second) << s.instr;
    else
      EXPECT_EQ(s.buffer, -1);
    note(s);
  }
  void read(const Instr& receive, const PlacedInstr& s) {
    auto& filled = buffers[kind_of(receive)];
    const auto found = filled.find(s.buffer);
    ASSERT_NE(found, filled.end()) << s.instr;
    EXPECT_EQ(found->second, receive);
    filled.erase(found);
  }
  schedule::ProgramLayout layout_;
  int last_;
};

void expect_row(const schedule::Program& program, Rank rank) {
  const Executor executor(program, rank);
  Recorder recorder(program.layout);
  executor.run(recorder);
  executor.run(recorder);  // a second step
  const auto& row = program.ranks[static_cast<std::size_t>(rank)];
  ASSERT_EQ(recorder.ran.size(), 2 * row.size());
  for (std::size_t i = 0; i < recorder.ran.size(); ++i)
    EXPECT_EQ(recorder.ran[i], schedule::to_string(row[i % row.size()]));
  EXPECT_TRUE(recorder.slots.empty());
  for (const auto& [kind, filled] : recorder.buffers) EXPECT_TRUE(filled.empty());
  const schedule::Needs needs = schedule::needs(program, rank);
  EXPECT_EQ(executor.slots(), std::max(1, needs.slots));
  EXPECT_EQ(executor.activation_buffers(), needs.received_activations);
  EXPECT_EQ(executor.gradient_buffers(), needs.received_gradients);
  EXPECT_EQ(executor.handed_over_buffers(), needs.handed_over);
  EXPECT_EQ(executor.splits_backward(), needs.split_backward);
}

TEST(Executor, RunsRowsInOrderAndReusesSlotsAndBuffers) {
  for (const auto& [kind, chunks] : {std::pair{ScheduleKind::gpipe, 1},
                                     {ScheduleKind::one_forward_one_backward, 1},
                                     {ScheduleKind::interleaved, 2},
                                     {ScheduleKind::zb_h1, 1},
                                     {ScheduleKind::zb_v, 2},
                                     {ScheduleKind::v_min, 2},
                                     {ScheduleKind::dualpipe_v, 2}})
    for (const int ranks : {1, 3})
      for (Rank rank = 0; rank < ranks; ++rank) {
        SCOPED_TRACE(text(name_of(kind), ", rank ", rank, " of ", ranks));
        schedule::ProgramLayout layout{ranks, 5, chunks};
        layout.placement = schedule::schedule_of(kind).placement;
        schedule::Program program = schedule::generate(kind, layout);
        schedule::lower(program, {true});
        expect_row(program, rank);
      }
}

/// Runs of several steps of 2bw: what one step keeps for the next, and numbers beyond those that
/// the whole program needs.
TEST(Executor, OverlappingStepsKeepSlotsAndBuffers) {
  for (const int ranks : {1, 2, 4})
    for (const int micro_batches : {ranks, ranks + 1, 3 * ranks + 2})
      for (Rank rank = 0; rank < ranks; ++rank) {
        SCOPED_TRACE(text("rank ", rank, " of ", ranks, ", ", micro_batches, " micro-batches"));
        schedule::Program program =
            schedule::generate(ScheduleKind::two_bw, {ranks, micro_batches, 1});
        schedule::lower(program, {true});
        Executor executor(program, rank);
        ASSERT_TRUE(executor.overlaps_steps());
        Recorder recorder(program.layout);
        bool begun = false;
        int first = 0;  // micro-batch of the step
        for (const bool follows : {true, true, true, true, false, false, true, false}) {
          executor.prepare(begun, follows);
          executor.run([&](const PlacedInstr& placed, std::size_t) {
            PlacedInstr absolute = placed;
            absolute.instr.micro += first;
            if (is_compute(placed.instr.op) || is_transfer(placed.instr.op)) {
              EXPECT_LT(placed.slot, executor.slots());
              EXPECT_LT(placed.buffer,
                        std::max(executor.activation_buffers(), executor.gradient_buffers()));
              run(recorder, absolute);
            }
          });
          EXPECT_EQ(recorder.slots.empty(), !follows || rank + 1 == ranks);
          begun = follows;
          first += micro_batches;
        }
        EXPECT_EQ(std::ranges::count_if(
                      recorder.ran, [](const std::string& s) { return s.starts_with("forward"); }),
                  first);
        for (const auto& [kind, filled] : recorder.buffers) EXPECT_TRUE(filled.empty());
      }
}

/// Writes brackets around groups.
class Groups : public Recorder {
 public:
  using Recorder::Recorder;
  void begin_group() override { ran.push_back("["); }
  void end_group() override { ran.push_back("]"); }
};

TEST(Executor, ConcurrentTransfersFormOneGroup) {
  schedule::Program program = schedule::generate(ScheduleKind::one_forward_one_backward, {4, 8, 1});
  schedule::lower(program, {true, schedule::Transport::ordered_groups});
  int together = 0, beside = 0;
  for (Rank rank = 0; rank < 4; ++rank) {
    Groups recorder(program.layout);
    Executor(program, rank).run(recorder);
    std::vector<std::string> expected;
    bool open = false;
    for (const Instr& instr : program.ranks[static_cast<std::size_t>(rank)]) {
      const bool transfer = schedule::is_transfer(instr.op), joins = transfer && !instr.opens_group;
      if (open && joins) ++together;
      if (open && transfer && !joins) ++beside;
      if (open && !joins) expected.push_back("]");
      if (transfer && !(open && joins)) expected.push_back("[");
      open = transfer;
      expected.push_back(schedule::to_string(instr));
    }
    EXPECT_EQ(recorder.ran, expected);
    EXPECT_GT(std::ranges::count(expected, "["), 2);
  }
  EXPECT_GT(together, 2);
  EXPECT_GT(beside, 2);
  schedule::Program channels =
      schedule::generate(ScheduleKind::one_forward_one_backward, {4, 8, 1});
  schedule::lower(channels, {true});
  Groups recorder(channels.layout);
  Executor(channels, 1).run(recorder);
  EXPECT_EQ(std::ranges::count(recorder.ran, "["), 0) << "channels have none";
}

TEST(Executor, EvaluationNeedsNoSlots) {
  schedule::Program program = schedule::generate_evaluation({3, 7, 2});
  schedule::lower(program, {});
  for (Rank rank = 0; rank < 3; ++rank) expect_row(program, rank);
}

}  // namespace
}  // namespace trireme::train
