#include <commands/training_runs.hpp>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>
#include <vector>

/// Folders without permission, seen by an ordinary user, and folders that go away.
namespace trireme::commands {
namespace {

using namespace commands::testing;
namespace fs = std::filesystem;

constexpr uid_t nobody = 65534;

class LostFolders : public TrainingRuns {
 protected:
  /// Files of this folder that the jobs make are an ordinary user's; root ignores modes.
  void become_ordinary() {
    if (geteuid() == 0) as_user_ = "setpriv --reuid=65534 --regid=65534 --clear-groups ";
    fs::permissions(folder_.path(), fs::perms(0755));
    if (run(as_user_ + "trireme --version") != 0)
      GTEST_SKIP() << "this is root, and no ordinary user can run the programs: " << err();
  }
  void make_folder(const std::string& name) const {
    fs::create_directory(folder_.file(name));
    ASSERT_TRUE(geteuid() != 0 || chown(folder_.file(name).c_str(), nobody, nobody) == 0);
  }
  void set_mode(const std::string& name, int mode) const {
    ASSERT_EQ(chmod(folder_.file(name).c_str(), static_cast<mode_t>(mode)), 0);
  }
  std::string as_user(const std::string& command) const { return as_user_ + command; }

  std::string as_user_;
};

TEST_F(LostFolders, ReportsUnwritableFoldersBeforeTheFirstStep) {
  become_ordinary();
  if (IsSkipped()) return;
  make_folder("run");
  make_folder("locked");
  set_mode("locked", 0555);
  for (const int ranks : {1, 2})
    for (const char* directory : {"checkpoint.directory=locked",
                                  "checkpoint.directory=locked/inner", "run.directory=locked"}) {
      SCOPED_TRACE(directory);
      EXPECT_EQ(run(as_user(train(ranks, directory))), 2) << out();
      expect_one_error({"locked", "choose a folder that can be written"});
      EXPECT_FALSE(recorded_last<events::Training>(folder_, "run"));
    }
}

TEST_F(LostFolders, ReportsALostPermissionAndKeepsCheckpoints) {
  become_ordinary();
  if (IsSkipped()) return;
  for (const char* asynchronous : {"false", "true"}) {
    SCOPED_TRACE(asynchronous);
    ASSERT_EQ(run("rm -rf run"), 0);
    make_folder("run");
    const std::string common =
        std::string("checkpoint.restart=latest checkpoint.every=2 checkpoint.asynchronous=") +
        asynchronous;
    {
      Job job(folder_, as_user(train(2, common + " run.steps=1000000")));
      ASSERT_TRUE(job.until([&] { return newest_step("run/checkpoints") >= 4; })) << err();
      set_mode("run/checkpoints", 0555);
      EXPECT_EQ(job.wait(), 1);
    }
    expect_one_error({"run/checkpoints/", "Permission denied"});
    const auto newest = newest_step("run/checkpoints");
    EXPECT_GE(newest, 4);
    expect_all_verified("run/checkpoints");
    set_mode("run/checkpoints", 0755);
    const auto end = std::to_string(newest + 2);
    EXPECT_EQ(run(as_user(train(2, common + " run.steps=" + end))), 0) << err();
    EXPECT_EQ(last_job().restored, newest);
    EXPECT_EQ(names("run/checkpoints", ".partial"), std::vector<std::string>());
  }
}

TEST_F(LostFolders, ReadOnlyFoldersServeEvalAndGenerate) {
  become_ordinary();
  if (IsSkipped()) return;
  ASSERT_EQ(run(train(1, "run.steps=2") + "; chmod -R a-w run"), 0) << err();
  for (const int ranks : {1, 2}) {
    const std::string launcher =
        std::string(TRIREME_MPIEXEC) + " -n " + std::to_string(ranks) + " trireme ";
    EXPECT_EQ(run(as_user(launcher + "eval deck.toml --data data/tokens.h5")), 0) << err();
    EXPECT_EQ(run(as_user(launcher + "generate deck.toml --prompt the --tokens 5")), 0) << err();
  }
  EXPECT_EQ(run(as_user("trireme inspect --verify run/checkpoints")), 0) << err();
  EXPECT_EQ(run("chmod -R u+w run"), 0);
}

/// A scratch file system that is cleaned while jobs run.
TEST_F(LostFolders, ReportsFoldersRemovedDuringARun) {
  for (const char* asynchronous : {"false", "true"}) {
    SCOPED_TRACE(asynchronous);
    ASSERT_EQ(run("rm -rf run gone"), 0);
    Job job(folder_, train(2, std::string("run.steps=1000000 checkpoint.every=3 "
                                          "checkpoint.asynchronous=") +
                                  asynchronous));
    ASSERT_TRUE(job.until([&] { return newest_step("run/checkpoints") >= 3; })) << err();
    fs::rename(folder_.file("run/checkpoints"), folder_.file("gone"));
    EXPECT_EQ(job.wait(), 1);
    expect_one_error({"run/checkpoints"});
    EXPECT_EQ(newest_step("run/checkpoints"), 0) << "it was made again";
    expect_all_verified("gone");
  }
}

TEST_F(LostFolders, RestartBeginsAnewWithoutCheckpoints) {
  ASSERT_EQ(run(train(2, "run.steps=2 checkpoint.restart=latest")), 0) << err();
  ASSERT_EQ(run("rm -r run/checkpoints"), 0);
  ASSERT_EQ(run(train(2, "run.steps=3 checkpoint.restart=latest")), 0) << err();
  EXPECT_FALSE(last_job().restart);
  EXPECT_EQ(metrics("run", "step"), (std::vector<std::string>{"1", "2", "3"}));
}

TEST_F(LostFolders, RestartIgnoresAnInvalidLatest) {
  ASSERT_EQ(run(train(1, "run.steps=4 checkpoint.every=2")), 0) << err();
  int steps = 4;
  for (const std::string harm :
       {"rm latest", ": > latest", "echo step_00000099 > latest", "echo ../../data > latest",
        "head -c 3000 /dev/zero > latest", "rm latest; ln -s nowhere latest"}) {
    SCOPED_TRACE(harm);
    ASSERT_EQ(run("cd run/checkpoints; " + harm), 0) << err();
    const std::string next = std::to_string(steps + 1);
    EXPECT_EQ(run("trireme inspect run/checkpoints"), 0) << err();
    EXPECT_EQ(run(train(1, "checkpoint.restart=latest run.steps=" + next)), 0) << err();
    EXPECT_EQ(last_job().restored, steps);
    EXPECT_EQ(newest_step("run/checkpoints"), ++steps);
  }
}

}  // namespace
}  // namespace trireme::commands
