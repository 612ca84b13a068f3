#include <trireme/grid/hang_report.hpp>
#include <trireme/grid/heartbeat.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>

namespace trireme::grid {
namespace {

TEST(Heartbeat, PublishesActivitiesAndWaits) {
  SharedState shared;
  Heartbeat::listen(&shared, 7);
  Heartbeat::publish({"forward", 3, 2, 5});
  EXPECT_EQ(shared.read().rank, 7);
  EXPECT_EQ(shared.read().life, RankState::alive);
  EXPECT_EQ(describe_activity(shared.read()), "step 3, forward stage 2 micro 5");
  EXPECT_EQ(shared.read().waits, 0);
  {
    const Heartbeat::Waiting waiting({"receive", "activation", "pipeline", 4, 6});
    EXPECT_EQ(shared.read().waits, 1);
    EXPECT_EQ(describe_wait(shared.read()),
              "receive \"activation\" from rank 6, channel 4 on pipeline");
    EXPECT_EQ(describe_activity(shared.read()), "step 3, forward stage 2 micro 5");
  }
  EXPECT_EQ(shared.read().waits, 0);
  {
    const Heartbeat::Waiting waiting({"kernels", "loss", "", 0, -1});
    EXPECT_EQ(describe_wait(shared.read()), "kernels \"loss\"") << "of no communicator";
  }
  Heartbeat::end();
  EXPECT_EQ(shared.read().life, RankState::ended);
  Heartbeat::publish({"nobody listens"});
  EXPECT_EQ(describe_activity(shared.read()), "step 3, forward stage 2 micro 5");
}

TEST(Heartbeat, TruncatesLongWords) {
  SharedState shared;
  Heartbeat::listen(&shared, 0);
  Heartbeat::publish({std::string(100, 'x')});
  EXPECT_EQ(describe_activity(shared.read()), std::string(31, 'x'));
  Heartbeat::end();
}

TEST(SharedState, ReadersNeverSeeAPartialWrite) {
  SharedState shared;
  shared.write(RankState());
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    RankState state;
    for (int i = 0; !stop; ++i) {
      state.rank = state.micro = i;
      state.number = i;
      shared.write(state);
      if (i % 8 == 0) std::this_thread::yield();
    }
  });
  int torn = 0;
  for (int i = 0; i < 20'000; ++i) {
    const RankState seen = shared.read();
    torn += seen.rank != -1 && (seen.micro != seen.rank || seen.number != seen.rank);
  }
  stop = true;
  writer.join();
  EXPECT_EQ(torn, 0);
}

Sighting sighting(int rank, Sighting::Condition condition, bool waits, Seconds age) {
  Sighting s;
  s.state.life = RankState::alive;
  s.state.rank = rank;
  s.state.pid = 100 + rank;
  s.state.waits = waits;
  s.state.step = 3;
  std::strcpy(s.state.activity, "backward");
  std::strcpy(s.state.verb, "all_reduce");
  std::strcpy(s.state.what, "gradients");
  std::strcpy(s.state.communicator, "data");
  s.state.number = 17;
  s.node = "a";
  s.condition = condition;
  s.age = age;
  return s;
}

TEST(HangReport, NamesSuspectsFirstAndGroupsEqualRanks) {
  using C = Sighting::Condition;
  std::vector<Sighting> ranks;
  for (int r = 0; r < 8; ++r) ranks.push_back(sighting(r, C::runs, true, 300 + r));
  ranks[5] = sighting(5, C::runs, false, 301);
  ranks[6] = sighting(6, C::stopped, false, 302);
  ranks[7].state.life = RankState::ended;
  EXPECT_EQ(
      hang_report(ranks, 300),
      "no progress for 300.0 s ([run] watchdog); state of the ranks:\n"
      "  suspect: rank 6 (pid 106 on a) is stopped (SIGSTOP) in step 3, backward, for 302.0 s\n"
      "  suspect: rank 5 (pid 105 on a) computes: step 3, backward, for 301.0 s\n"
      "  ranks 0-4 wait in all_reduce \"gradients\", number 17 on data, during step 3, "
      "backward, for 304.0 s\n");
}

TEST(HangReport, NamesDeadRanksAndTheirLastActivity) {
  EXPECT_EQ(
      death_report(sighting(2, Sighting::Condition::dead, true, 1)),
      "rank 2 (pid 102 on a) has died waiting in all_reduce \"gradients\", number 17 on data, "
      "during step 3, backward: killed, out of memory or crashed\n");
}

}  // namespace
}  // namespace trireme::grid
