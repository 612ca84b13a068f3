#include <trireme/base/text.hpp>
#include <trireme/schedule/generate.hpp>
#include <trireme/schedule/lower.hpp>
#include <trireme/schedule/timeline.hpp>
#include <trireme/train/executor.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>
#include <vector>

/// Programs executed, not simulated: a thread for each rank whose stages sleep for a unit.
namespace trireme::train {
namespace {

using Clock = std::chrono::steady_clock;
using schedule::Op;

/// Messages between the ranks, by receiving stage, direction and micro-batch.
class Post {
 public:
  using Message = std::tuple<bool, Stage, Micro>;
  void send(const Message& message) {
    {
      const std::lock_guard lock(mutex_);
      sent_.insert(message);
    }
    arrived_.notify_all();
  }
  void wait(const Message& message) {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [&] { return sent_.contains(message); });
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::set<Message> sent_;
};

class SleepingStages : public Actions {
 public:
  SleepingStages(Post& post, const schedule::ProgramLayout& layout, Seconds unit)
      : post_(post), last_(layout.stages() - 1), unit_(unit / layout.chunks) {}

  Seconds asked = 0;  ///< that it was to sleep
  Seconds slept = 0;  ///< on a busy machine that is longer

  void forward(const PlacedInstr& s) override {
    if (s.instr.stage > 0) post_.wait({true, s.instr.stage, s.instr.micro});
    sleep(1);
  }
  void evaluate(const PlacedInstr& s) override { forward(s); }
  void backward(const PlacedInstr& s) override {
    wait_for_gradient(s);
    sleep(2);
  }
  void backward_input(const PlacedInstr& s) override {
    wait_for_gradient(s);
    sleep(1);
  }
  void backward_weight(const PlacedInstr&) override { sleep(1); }
  void send_activation(const PlacedInstr& s) override {
    post_.send({true, s.instr.stage + 1, s.instr.micro});
  }
  void send_gradient(const PlacedInstr& s) override {
    post_.send({false, s.instr.stage - 1, s.instr.micro});
  }
  void receive_activation(const PlacedInstr&) override {}
  void receive_gradient(const PlacedInstr&) override {}
  void reduce_gradients(const PlacedInstr&) override {}
  void reduce_tied(const PlacedInstr&) override {}
  void gradient_norm(const PlacedInstr&) override {}
  void optimizer_step(const PlacedInstr&) override {}

 private:
  void wait_for_gradient(const PlacedInstr& s) {
    if (s.instr.stage < last_) post_.wait({false, s.instr.stage, s.instr.micro});
  }
  void sleep(int units) {
    const auto begin = Clock::now();
    std::this_thread::sleep_for(std::chrono::duration<double>(units * unit_));
    slept += std::chrono::duration<double>(Clock::now() - begin).count();
    asked += units * unit_;
  }
  Post& post_;
  int last_;
  Seconds unit_;
};

struct IdleShares {
  double of_asked = 1;
  double of_slept = 1;
};

/// Of one step of p = 4 ranks and m = 8 micro-batches.
IdleShares executed_idle_shares(ScheduleKind kind, int chunks) {
  constexpr Seconds unit = 0.008;
  schedule::Program program = schedule::generate(kind, {4, 8, chunks});
  schedule::lower(program, {});
  Post post;
  std::vector<SleepingStages> stages(4, SleepingStages(post, program.layout, unit));
  std::vector<std::thread> threads;
  const auto begin = Clock::now();
  for (Rank r = 0; r < 4; ++r)
    threads.emplace_back([&, r] { Executor(program, r).run(stages[static_cast<std::size_t>(r)]); });
  for (std::thread& thread : threads) thread.join();
  const auto span = Clock::now() - begin;
  const double all = std::chrono::duration<double>(4 * span).count();
  IdleShares idle;
  for (const SleepingStages& s : stages) {
    idle.of_asked -= s.asked / all;
    idle.of_slept -= s.slept / all;
  }
  return idle;
}

TEST(UnitCost, SchedulesRankByMeasuredIdleTimeAsPredicted) {
  // The closed forms are 3/11, 3/19 and 3/27. A busy machine adds to all of them alike, or to one:
  // the least of three runs each.
  const std::tuple<ScheduleKind, int, double> schedules[] = {
      {ScheduleKind::one_forward_one_backward, 1, 3.0 / 11},
      {ScheduleKind::interleaved, 2, 3.0 / 19},
      {ScheduleKind::zb_h1, 1, 3.0 / 27}};
  double least[3] = {1, 1, 1};
  for (int round = 0; round < 3; ++round)
    for (std::size_t i = 0; i < 3; ++i) {
      const auto& [kind, chunks, closed_form] = schedules[i];
      const IdleShares idle = executed_idle_shares(kind, chunks);
      least[i] = std::min(least[i], idle.of_slept);
      // Never below it: no sleep is shorter than it was to be.
      EXPECT_GE(idle.of_asked, closed_form - 1e-9);
    }
  EXPECT_GT(least[0], least[1]);
  EXPECT_GT(least[1], least[2]);
}

}  // namespace
}  // namespace trireme::train
