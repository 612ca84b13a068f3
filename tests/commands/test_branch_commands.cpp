#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "commands/engine_commands.hpp"

namespace trireme::commands {
namespace {

namespace fs = std::filesystem;

/// Runs that go back to an earlier checkpoint of their directory, or find others in it.
class BranchCommands : public EngineCommands {
 protected:
  int train(const std::string& arguments) {
    return run("trireme train deck.toml run.log_every=2 checkpoint.every=2 " + arguments);
  }
  int resume(const std::string& arguments) {
    return train("checkpoint.restart=latest " + arguments);
  }
  /// Names of checkpoints and folders of earlier runs.
  std::vector<std::string> folders(const std::string& directory = "run/checkpoints") const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_.file(directory)))
      if (entry.is_directory()) names.push_back(entry.path().filename().string());
    std::ranges::sort(names);
    return names;
  }
  using Names = std::vector<std::string>;
};

TEST_F(BranchCommands, RollBackThroughLatestMovesTheLaterBranchAside) {
  ASSERT_EQ(train("run.steps=10"), 0) << err();
  ASSERT_EQ(run("echo step_00000004 > run/checkpoints/latest"), 0);
  ASSERT_EQ(resume("run.steps=8 checkpoint.keep=2 optimizer.learning_rate=1e-4"), 0) << err();
  EXPECT_EQ(last_job().restored, 4);
  expect_output(folder_,
                "were moved to run/checkpoints/previous-1: step_00000010, step_00000008, "
                "step_00000006");
  EXPECT_EQ(folders(), (Names{"previous-1", "step_00000006", "step_00000008"}));
  EXPECT_EQ(folders("run/checkpoints/previous-1"),
            (Names{"step_00000006", "step_00000008", "step_00000010"}));

  ASSERT_EQ(run("truncate -s 100 run/checkpoints/step_00000008/shard_000000.h5"), 0);
  ASSERT_EQ(resume("run.steps=12 checkpoint.keep=2"), 0) << err();
  EXPECT_EQ(last_job().restored, 6);
  EXPECT_EQ(folders("run/checkpoints/previous-2"), Names{"step_00000008"}) << "nothing is removed";
  EXPECT_EQ(folders(), (Names{"previous-1", "previous-2", "step_00000010", "step_00000012"}));
}

TEST_F(BranchCommands, RollsBackByOneCheckpoint) {
  ASSERT_EQ(train("run.steps=6"), 0) << err();
  ASSERT_EQ(run("echo step_00000004 > run/checkpoints/latest"), 0);
  ASSERT_EQ(resume("run.steps=4"), 0) << err();
  EXPECT_EQ(last_job().restored, 4);
  EXPECT_EQ(folders(), (Names{"previous-1", "step_00000002", "step_00000004"}));
}

TEST_F(BranchCommands, WarnsIfTheNewestCheckpointIsRemoved) {
  ASSERT_EQ(train("run.steps=6"), 0) << err();
  ASSERT_EQ(run("rm -r run/checkpoints/step_00000006"), 0);
  ASSERT_EQ(resume("run.steps=6"), 0) << err();
  EXPECT_EQ(last_job().restored, 4);
  const auto warnings = recorded_warnings(folder_, "run");
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("names 'step_00000006', which is not a checkpoint"),
            std::string::npos);
  EXPECT_EQ(folders(), (Names{"step_00000002", "step_00000004", "step_00000006"}));
}

TEST_F(BranchCommands, IgnoresCheckpointsOfAnotherRun) {
  ASSERT_EQ(train("run.steps=8"), 0) << err();
  ASSERT_EQ(train("run.steps=10 run.seed=7 run.directory=other"), 0) << err();
  ASSERT_EQ(run("cp -r other/checkpoints/step_00000010 run/checkpoints; "
                "rm -r run/checkpoints/latest run/checkpoints/step_00000008; "
                "cp -r other/checkpoints/step_00000006 elsewhere"),
            0);
  ASSERT_EQ(run("echo step_00000006 > run/checkpoints/latest"), 0);
  ASSERT_EQ(resume("run.steps=8 checkpoint.keep=2"), 0) << err();
  EXPECT_EQ(last_job().restored, 6);
  EXPECT_EQ(folders(), (Names{"previous-1", "step_00000006", "step_00000008"}));
  EXPECT_EQ(folders("run/checkpoints/previous-1"), Names{"step_00000010"});

  // A copy of its own checkpoint continues the branch.
  ASSERT_EQ(run("cp -r run/checkpoints/step_00000006 copy"), 0);
  ASSERT_EQ(train("run.steps=6 checkpoint.restart=copy"), 0) << err();
  EXPECT_EQ(folders(), (Names{"previous-1", "previous-2", "step_00000006"}));
}

TEST_F(BranchCommands, ReplacesASymbolicLinkLatestAtTheStart) {
  ASSERT_EQ(train("run.steps=4"), 0) << err();
  ASSERT_EQ(run("cd run/checkpoints && rm latest && ln -s step_00000002 latest"), 0);
  ASSERT_EQ(resume("run.steps=6"), 0) << err();
  EXPECT_EQ(last_job().restored, 2);
  EXPECT_FALSE(fs::is_symlink(folder_.file("run/checkpoints/latest")));
  EXPECT_EQ(file("run/checkpoints/latest"), "step_00000006\n");

  ASSERT_EQ(run("cd run/checkpoints && rm latest && mkdir latest"), 0);
  EXPECT_EQ(resume("run.steps=8"), 2);
  expect_error(folder_, "run/checkpoints/latest: is a folder, expected a file");
}

TEST_F(BranchCommands, FilesFollowTheUmask) {
  ASSERT_EQ(run("umask 002; trireme train deck.toml run.steps=2 checkpoint.every=1"), 0) << err();
  EXPECT_EQ(run("find run data/tokens.h5 -type f ! -perm 664"), 0);
  EXPECT_EQ(run("umask 002; mkdir open && trireme tokenize -o open/x.h5 text && trireme export run "
                "open/model && trireme report run -o open/page.html"),
            0)
      << err();
  EXPECT_EQ(run("find run open -type f ! -perm 664; find run open -type d ! -perm 775"), 0);
  EXPECT_EQ(out(), "");
  EXPECT_EQ(run("umask 077; trireme train deck.toml run.steps=2 run.directory=closed"), 0) << err();
  EXPECT_EQ(run("find closed -type f ! -perm 600; find closed -type d ! -perm 700"), 0);
  EXPECT_EQ(out(), "");
}

TEST_F(BranchCommands, CheckReportsRestartsAndBlendsAsTrainDoes) {
  ASSERT_EQ(train("run.steps=2"), 0) << err();
  ASSERT_EQ(run("cp data/tokens.h5 t.h5"), 0);
  for (const auto& [arguments, words] : std::vector<std::pair<std::string, std::string>>{
           {"checkpoint.restart=Latest", "did you mean latest?"},
           {"checkpoint.restart=run/checkpoints/step_00000009", "no such checkpoint folder"},
           {"checkpoint.restart=data", "has no manifest.json"},
           {"\"data.train=-1 t.h5, 2 t.h5\"", "weight -1 in a blend"},
           {"\"data.train=0 t.h5, 1 t.h5\"", "weight 0 in a blend"},
           {"\"data.train=1 t.h5, inf t.h5\"", "in a blend"},
           {"\"data.train=1e-40 t.h5, 1 t.h5\"", "in a blend"},
           {"\"data.train=0.5 t.h5, 0.5 missing.h5\"", "no such file missing.h5"}}) {
    EXPECT_EQ(run("trireme check deck.toml run.directory=new " + arguments), 2) << arguments;
    expect_error(folder_, words);
    const std::string said = err();
    EXPECT_EQ(run("trireme train deck.toml run.directory=new " + arguments), 2) << arguments;
    EXPECT_EQ(err().substr(0, err().find('\n')), said.substr(0, said.find('\n')));
    EXPECT_FALSE(fs::exists(folder_.file("new/checkpoints/step_00000012")));
  }
}

TEST_F(BranchCommands, RejectsUnexpandedShellPaths) {
  for (const std::string argument :
       {"'run.directory=~/x'", "'run.directory=~'", "'run.directory=~someone/x'",
        "'run.directory=$HOME/x'", "'checkpoint.directory=a/${USER}/x'", "'data.train=~/t.h5'",
        "'data.train=0.5 ~/t.h5, 0.5 data/tokens.h5'", "'data.validation=$SCRATCH/v.h5'",
        "'data.tokenizer=~/tokenizer.json'", "'checkpoint.restart=~/c'",
        "'checkpoint.local=/tmp/$USER' checkpoint.local_every=1"}) {
    EXPECT_EQ(run("trireme check deck.toml " + argument), 2) << argument;
    expect_error(folder_, "is not expanded; write ");
  }
  EXPECT_EQ(run("HOME=/home/me trireme check deck.toml 'run.directory=~/x'"), 2);
  expect_error(folder_, "run.directory=~/x: ~ in \"~/x\" is not expanded; write /home/me/x");
  ASSERT_EQ(run("sed 's:\"run\":\"~/r\":' deck.toml > home.toml"), 0);
  EXPECT_EQ(run("trireme train home.toml"), 2);
  expect_error(folder_, "home.toml:2:");
  for (const std::string line :
       {"tokenize text -o '~/x.h5'", "tokenize '~/text' -o x.h5", "export run '~/model'",
        "report run --output='~/page.html'", "eval deck.toml --data='~/t.h5'",
        "check deck.toml --machine='$HOME/m.toml'", "generate deck.toml --checkpoint='~/c'",
        "inspect '~/run'"}) {
    EXPECT_EQ(run("trireme " + line), 2) << line;
    expect_error(folder_, "is not expanded; write ");
  }
  ASSERT_EQ(run("trireme generate --help > help; ls -A"), 0);
  EXPECT_EQ(count(out(), "~") + count(out(), "$"), 0) << "a folder was made: " << out();
  EXPECT_EQ(run("trireme check deck.toml run.directory=a~b data.validation= "), 0) << err();
}

}  // namespace
}  // namespace trireme::commands
