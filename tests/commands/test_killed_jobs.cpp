#include <commands/training_runs.hpp>
#include <support/watch.hpp>

#include <gtest/gtest.h>

#include <optional>
#include <random>

/// All processes of a job die at once, at any moment: a node that loses its power, a batch system
/// that has waited long enough.
namespace trireme::commands {
namespace {

using namespace commands::testing;

struct Form {
  int ranks;
  const char* layout;
  bool asynchronous;
  int keep;
  int kills;
};

class KilledJobs : public TrainingRuns {
 protected:
  static constexpr std::int64_t every = 2;

  KilledJobs() { write_deck(2, 36, 3, 29); }

  static std::string command(const Form& form, const std::string& more) {
    return train(form.ranks,
                 std::string(form.layout) + " checkpoint.every=" + std::to_string(every) +
                     " checkpoint.asynchronous=" + (form.asynchronous ? "true" : "false") +
                     " checkpoint.keep=" + std::to_string(form.keep) + more);
  }

  double uniform(double below) { return std::uniform_real_distribution<double>(0, below)(random_); }

  /// Waits for a write to begin, and then some time of the order that one takes, true; or for any
  /// time.
  bool wait_for_a_moment(Job& job, const Watch& watch, bool in_a_write) {
    double milliseconds = uniform(1500);
    if (in_a_write) {
      const auto skip = static_cast<int>(uniform(3));
      int begun = 0;
      for (int i = 0; i < 6000 && begun <= skip && job.runs(); ++i)
        begun += watch.made(".partial", 10);
      EXPECT_GT(begun, skip) << "no write began\n" << out() << err();
      milliseconds = uniform(skip == 0 ? 20 : 150);
    }
    std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(milliseconds));
    return in_a_write;
  }

  bool is_partly_written() const {
    const auto left = names("run/checkpoints", ".partial");
    return std::any_of(left.begin(), left.end(), [](const std::string& name) {
      return name.size() == folder_name(0).size() + 8;  // not one on its way out
    });
  }

  /// The step from which job number `started` restarted, 0 for a fresh start; nothing if it was
  /// killed before it trained.
  std::optional<std::int64_t> begun_after(int started) const {
    int starts = 0;
    std::optional<std::int64_t> step;
    for (const RunEvent& entry : recorded_events(folder_, "run")) {
      if (std::holds_alternative<events::Start>(entry.event) && ++starts == started) step.reset();
      if (std::holds_alternative<events::Training>(entry.event) && starts == started)
        step = entry.step;
    }
    return step;
  }
  int starts() const {
    return static_cast<int>(std::ranges::count_if(
        recorded_events(folder_, "run"),
        [](const RunEvent& entry) { return std::holds_alternative<events::Start>(entry.event); }));
  }

  /// What must hold of the folders that dead processes have left.
  void expect_nothing_lost(const Form& form, std::int64_t before) const {
    const auto newest = newest_step("run/checkpoints");
    EXPECT_GE(newest, before) << "a complete checkpoint went away without a newer one";
    // Behind a step that is logged the last due write has at least begun, the one before has ended.
    const std::int64_t logged = last_step("run");
    const std::int64_t being_written = form.asynchronous ? every : 0;
    EXPECT_GE(newest, (logged - 1) / every * every - being_written) << "after step " << logged;
    expect_all_verified("run/checkpoints");
  }

  void kill_and_restart(const Form& form) {
    SCOPED_TRACE(std::string(form.layout) + (form.asynchronous ? " asynchronous" : ""));
    ASSERT_EQ(run("rm -rf run whole; mkdir -p run/checkpoints"), 0);
    const std::string again = " checkpoint.restart=latest run.steps=";
    for (int k = 0; k < form.kills; ++k) {
      const std::int64_t before = newest_step("run/checkpoints");
      const int started = starts() + 1;
      const bool in_a_write = k % 3 != 2;
      {
        const Watch watch(folder_.file("run/checkpoints"));
        Job job(folder_, command(form, again + "1000000"));
        const bool wrote = wait_for_a_moment(job, watch, in_a_write);
        EXPECT_TRUE(job.runs()) << out() << err();
        job.kill_all();
        ++kills_;
        // A run's first write removes what was left: behind one, what is left is its own.
        if ((wrote || watch.made(".partial", 0) > 0) && is_partly_written()) ++in_writes_;
      }
      if (const auto after = begun_after(started)) {
        EXPECT_EQ(*after, before) << "kill " << k << "\n" << out() << err();
        ++restarts_;
      }
      expect_nothing_lost(form, before);
      if (HasFailure()) return;
    }
    const std::int64_t newest = newest_step("run/checkpoints");
    const auto end = std::to_string(newest + 5);
    ASSERT_EQ(run(command(form, again + end)), 0) << err();
    EXPECT_EQ(last_job().restored, newest);
    EXPECT_TRUE(last_job().end);
    EXPECT_EQ(names("run/checkpoints", ".partial"), std::vector<std::string>());
    EXPECT_EQ(names("run/checkpoints", "").size(), saved_steps("run/checkpoints").size() + 1)
        << "beside the checkpoints only `latest` is left";
    EXPECT_TRUE(form.keep == 0 || std::ssize(saved_steps("run/checkpoints")) <= form.keep);

    ASSERT_EQ(
        run(train(form.ranks, std::string(form.layout) + " run.directory=whole run.steps=" + end)),
        0)
        << err();
    EXPECT_EQ(metrics("run", "loss"), metrics("whole", "loss"));
    expect_equal_checkpoints("run/checkpoints", "whole/checkpoints");
  }

  std::mt19937_64 random_{std::random_device()()};
  int kills_ = 0;
  int in_writes_ = 0;
  int restarts_ = 0;
};

TEST_F(KilledJobs, GoOnFromTheNewestCompleteCheckpointAndLoseNothing) {
  const char* given = std::getenv("TRIREME_SEED");
  const auto seed = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
  random_.seed(seed);
  std::printf("TRIREME_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::vector<Form> forms{{2, "parallel.pipeline=2", true, 0, 2}, {2, "", false, 2, 2}};
  const int rounds = soak() ? 100 : 1;
  if (soak()) {
    for (auto& form : forms) form.kills = 6;
    forms.push_back({3, "", true, 1, 6});
    forms.push_back({3, "parallel.pipeline=3 parallel.schedule=zb-h1", false, 1, 6});
  }
  for (int round = 0; round < rounds && !HasFailure(); ++round) {
    for (const auto& form : forms)
      if (!HasFailure()) kill_and_restart(form);
    if (kills_ >= 50 && in_writes_ >= 20) break;
  }
  std::printf("%d kills, %d of them during a write; %d restarts said where they began\n", kills_,
              in_writes_, restarts_);
  if (!soak()) return;
  EXPECT_GE(kills_, 50);
  EXPECT_GE(in_writes_, 20);
}

}  // namespace
}  // namespace trireme::commands
