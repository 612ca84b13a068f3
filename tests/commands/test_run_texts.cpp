#include <commands/training_runs.hpp>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <set>
#include <sstream>
#include <string>
#include <vector>

/// Texts that the evaluations of a run generate: [run] prompts.
namespace trireme::commands {
namespace {

using namespace commands::testing;
using Json = nlohmann::json;

class RunTexts : public TrainingRuns {
 protected:
  RunTexts() {
    std::string prompts = "the quick\n\nbrown fox 1\n";
    for (int word = 0; word < 9; ++word) prompts += "fox jumps ";  // longer than a sample
    folder_.write("prompts.txt", prompts + "the quick\n");
  }

  /// The step of the last texts of a run that learns the text.
  static constexpr int learned = 60;
  static std::string with(const std::string& arguments) {
    return "model.layers=4 model.hidden=24 batch.micro=3 optimizer.learning_rate=2e-2 "
           "precision.compute=fp64 run.prompts=prompts.txt run.prompt_tokens=40 " +
           arguments + " ";
  }
  static std::string learning(const std::string& arguments) {
    return with("run.steps=60 run.log_every=15 run.evaluate_every=45 " + arguments);
  }
  static std::string short_run(const std::string& arguments) {
    return with("run.evaluate_every=9 checkpoint.every=5 checkpoint.asynchronous=false " +
                arguments);
  }
  /// Expects that the last texts of the run are those of its last checkpoint.
  void expect_generated(const std::string& texts, const std::string& arguments) const {
    ASSERT_EQ(run("trireme generate deck.toml " + arguments +
                  "--prompts prompts.txt --tokens 40 --temperature 0 -o generated.jsonl"),
              0)
        << err();
    EXPECT_EQ(texts.substr(texts.find("{\"step\":" + std::to_string(learned))),
              file("generated.jsonl"));
  }
  std::vector<Json> lines(const std::string& name) const {
    std::vector<Json> found;
    std::istringstream in(file(name));
    for (std::string line; std::getline(in, line);) found.push_back(Json::parse(line));
    return found;
  }
  std::vector<std::int64_t> steps(const std::string& name) const {
    std::vector<std::int64_t> found;
    for (const Json& line : lines(name)) found.push_back(line["step"]);
    return found;
  }
};

TEST_F(RunTexts, EqualTextsOfGenerateOnEveryLayout) {
  ASSERT_EQ(run(train(1, learning(""))), 0) << err();
  EXPECT_NE(out().find("texts 4 prompts of prompts.txt, continued at each evaluation by at most 40 "
                       "tokens"),
            std::string::npos)
      << out();
  const std::string texts = file("run/texts.jsonl");
  EXPECT_EQ(steps("run/texts.jsonl"), (std::vector<std::int64_t>{45, 45, 45, 45, 60, 60, 60, 60}));
  EXPECT_EQ(lines("run/texts.jsonl").at(3)["prompt_tokens_left_out"], 99 - 29);
  std::set<std::string> different;
  for (const Json& line : lines("run/texts.jsonl")) different.insert(line["text"]);
  EXPECT_GE(different.size(), 4u);
  expect_generated(texts, learning(""));
  for (const auto& [ranks, keys] : std::vector<std::pair<int, std::string>>{
           {4, "parallel.tensor=2 parallel.pipeline=2 parallel.sequence_parallel=true"},
           {2, "parallel.context=2"},
           {2, "parallel.shard=weights batch.micro=2"},
           {2, "parallel.pipeline=2 parallel.vocabulary=pipeline"},
           {2, "parallel.pipeline=2 parallel.chunks=2 parallel.schedule=interleaved"}}) {
    SCOPED_TRACE(keys);
    ASSERT_EQ(run(train(ranks, learning("run.directory=other " + keys))), 0) << err();
    EXPECT_EQ(file("other/texts.jsonl"), texts);
  }
}

/// A run with workers evaluates the weights that they share, and overlapping steps have two
/// versions.
TEST_F(RunTexts, UseTheEvaluatedWeights) {
  for (const auto& [ranks, keys] :
       std::vector<std::pair<int, std::string>>{{2, "local.workers=2 local.inner_steps=7"},
                                                {2, "parallel.pipeline=2 parallel.schedule=2bw"}}) {
    SCOPED_TRACE(keys);
    ASSERT_EQ(run(train(ranks, learning(keys))), 0) << err();
    expect_generated(file("run/texts.jsonl"), learning(""));
  }
}

TEST_F(RunTexts, LeaveTheBitsOfTheRunAsTheyAre) {
  const std::string more = "precision.compute=fp32 run.directory=";
  ASSERT_EQ(run(train(2, short_run(more + "with"))), 0) << err();
  ASSERT_EQ(run(train(2, short_run(more + "without run.prompts="))), 0) << err();
  EXPECT_EQ(file("without/texts.jsonl"), "");
  EXPECT_EQ(lines("with/texts.jsonl").size(), 8u);
  for (const char* name : {"step", "loss", "gradient_norm"})
    EXPECT_EQ(metrics("with", name), metrics("without", name)) << name;
  expect_equal_checkpoints("with/checkpoints/" + folder_name(12),
                           "without/checkpoints/" + folder_name(12));
}

TEST_F(RunTexts, HaveEachStepOnceAfterRestarts) {
  ASSERT_EQ(run(train(1, short_run("run.steps=20"))), 0) << err();
  const std::string whole = file("run/texts.jsonl");
  ASSERT_EQ(run(train(1, short_run("run.steps=20"))), 0) << err();
  EXPECT_EQ(file("run/texts.previous-1.jsonl"), whole);
  ASSERT_EQ(run("printf '{\"step\":20,' >> run/texts.jsonl"), 0);  // a killed job's last line
  ASSERT_EQ(run("rm -r run/checkpoints/step_00000020"), 0);
  const std::string restarted = short_run("run.steps=20 checkpoint.restart=latest");
  ASSERT_EQ(run(train(1, restarted)), 0) << err();
  EXPECT_EQ(last_job().restored, 15);
  EXPECT_EQ(file("run/texts.jsonl"), whole);
  ASSERT_EQ(run("trireme report run"), 0) << err();
  const std::string page = file("run/report.html");
  EXPECT_NE(page.find("Generated texts"), std::string::npos);
  EXPECT_EQ(occurrences(page, ">brown fox 1</td>"), 3) << "after 9, 18 and 20 steps";
}

TEST_F(RunTexts, ReportOneErrorPerMistake) {
  folder_.write("empty.txt", "");
  folder_.write("chat.jsonl", R"({"messages": [{"role": "user", "content": "a"}]})");
  for (const auto& [keys, part] : std::vector<std::pair<std::string, std::string>>{
           {"run.prompts=absent.txt", "[run] prompts (command line): absent.txt: cannot open"},
           {"run.prompts=empty.txt", "[run] prompts (command line): empty.txt: has no prompts"},
           {"run.prompts=chat.jsonl", "choose their format with [run] chat: chatml"},
           {"run.chat=alpaca", "[run] chat = \"alpaca\" (command line) is not a chat format"},
           {"run.chat=chatml", "[run] chat chatml needs the special token <|im_start|>"},
           {"parallel.strategy=server parallel.data=1",
            "cannot be combined with [parallel] strategy"},
           {"model.family=bert model.vocabulary=260",
            "needs a model that predicts the next token, not [model] objective"}}) {
    SCOPED_TRACE(keys);
    EXPECT_EQ(run("trireme check deck.toml " + with(keys)), 2);
    expect_one_error({part});
    EXPECT_EQ(run(train(2, with(keys))), 2);
    expect_one_error({part});
  }
  ASSERT_EQ(run("trireme check deck.toml " + with("")), 0) << err();
  EXPECT_NE(out().find("texts         4 prompts of prompts.txt"), std::string::npos) << out();
}

}  // namespace
}  // namespace trireme::commands
