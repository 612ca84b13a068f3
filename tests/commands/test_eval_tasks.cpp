#include <trireme/data/token_file_writer.hpp>

#include <support/shell.hpp>
#include <support/source_folder.hpp>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <sstream>
#include <string>
#include <vector>

/// `trireme eval --tasks` against lm-evaluation-harness (tests/golden/task_scores), and training on
/// tokens that count in part against PyTorch (tests/golden/masked_training).
namespace trireme::commands {
namespace {

using namespace trireme::testing;
using Json = nlohmann::json;

constexpr const char* files = "choices.jsonl --tasks continuations.jsonl --tasks texts.jsonl";

class EvalTasks : public ::testing::Test {
 protected:
  EvalTasks() {
    folder_.write("deck.toml", R"([run]
directory = "run"
steps = 4
log_every = 1
[model]
family = "llama"
layers = 2
hidden = 16
heads = 4
key_value_heads = 2
feed_forward = 24
sequence = 48
vocabulary = 700
tied_embeddings = true
norm_epsilon = 1e-5
[batch]
global = 8
micro = 2
[precision]
compute = "fp64"
[optimizer]
kind = "sgd"
momentum = 0
learning_rate = 2e-2
minimum_learning_rate = 2e-2
schedule = "constant"
weight_decay = 0
clip_norm = 0
[data]
train = "counted.h5"
tokenizer = "model/tokenizer.json"
)");
    const std::string golden = source_folder() + "/tests/golden/task_scores/";
    EXPECT_EQ(run("cp -r '" + golden + "model' . && cp '" + golden +
                  "../bpe/gpt2.json' model/tokenizer.json && cp '" + golden +
                  "'*.jsonl . && "
                  "trireme import model deck.toml"),
              0)
        << err();
    scores_ = Json::parse(read_file(golden + "scores.json"));
  }

  int run(const std::string& line) const { return shell(folder_, line); }
  int eval(int ranks, const std::string& arguments) const {
    const std::string launcher =
        ranks == 1 ? "" : std::string(TRIREME_MPIEXEC) + " -n " + std::to_string(ranks) + " ";
    return run(launcher + "trireme eval deck.toml " + arguments);
  }
  std::string err() const { return read_file(folder_.file("err")); }
  std::vector<Json> lines(const std::string& name) const {
    std::vector<Json> found;
    std::istringstream in(read_file(folder_.file(name)));
    for (std::string line; std::getline(in, line);) found.push_back(Json::parse(line));
    return found;
  }

  TemporaryFolder folder_;
  Json scores_;
};

/// In fp64, of sums of some 50 terms of size 10: 1e-10 is what the layouts promise.
void expect_near(double found, double expected) {
  EXPECT_NEAR(found, expected, 1e-10 * std::max(1.0, std::abs(expected)));
}

TEST_F(EvalTasks, ScoresMatchTheHarnessOnEveryLayout) {
  struct Layout {
    int ranks;
    const char* overrides;
  };
  for (const auto& [ranks, overrides] :
       {Layout{1, ""}, Layout{1, "batch.micro=4"},
        Layout{4, "parallel.tensor=2 parallel.pipeline=2 batch.micro=1"},
        Layout{4, "parallel.context=2 parallel.pipeline=2"},
        Layout{4, "parallel.tensor=2 parallel.pipeline=2 parallel.vocabulary=pipeline"},
        Layout{3, "batch.micro=2"}}) {
    SCOPED_TRACE(overrides);
    ASSERT_EQ(eval(ranks, std::string(overrides) + " --tasks " + files +
                              " -o results.json --log-likelihoods all.jsonl"),
              0)
        << err();
    const Json results = Json::parse(read_file(folder_.file("results.json")))["results"];
    for (const char* name : {"choices", "continuations", "texts"})
      for (const auto& [measure, value] : scores_[name]["measures"].items()) {
        SCOPED_TRACE(measure);
        const Json& found = results[std::string(name) + ".jsonl"][measure];
        ASSERT_TRUE(found.is_number());
        expect_near(found.get<double>(), value.get<double>());
      }
    const std::vector<Json> all = lines("all.jsonl");
    std::size_t next = 0;
    for (const char* name : {"choices", "continuations", "texts"})
      for (std::size_t item = 0; item < scores_[name]["log_likelihoods"].size(); ++item) {
        const Json& of_item = scores_[name]["log_likelihoods"][item];
        if (std::string(name) == "texts") {  // the sum of its windows
          double sum = 0;
          while (next < all.size() && all[next]["task"] == "texts.jsonl" &&
                 all[next]["line"] == item + 1)
            sum += all[next++]["log_likelihood"].get<double>();
          expect_near(sum, of_item[0].get<double>());
          continue;
        }
        for (std::size_t request = 0; request < of_item.size(); ++request, ++next) {
          ASSERT_LT(next, all.size());
          expect_near(all[next]["log_likelihood"].get<double>(), of_item[request].get<double>());
          EXPECT_EQ(all[next]["greedy"], scores_[name]["greedy"][item][request]);
        }
      }
    EXPECT_EQ(next, all.size());
  }
}

TEST_F(EvalTasks, RejectMistakesBeforeTheModelRuns) {
  folder_.write("empty.jsonl", "\n");
  folder_.write("wrong.jsonl", R"({"context": "a", "choices": ["b"], "gold": 7})");
  EXPECT_EQ(eval(1, "--tasks empty.jsonl"), 2);
  expect_error(folder_, "empty.jsonl: has no lines");
  EXPECT_EQ(eval(1, "--tasks texts.jsonl --tasks wrong.jsonl"), 2);
  expect_error(folder_, "wrong.jsonl:1: \"gold\" is 7");
  EXPECT_EQ(eval(1, "--tasks none.jsonl"), 2);
  EXPECT_EQ(eval(1, "--tasks texts.jsonl --tasks texts.jsonl"), 2);
  expect_error(folder_, "twice");
  EXPECT_EQ(eval(1, "--tasks texts.jsonl --prefix '<bos>'"), 2);
  expect_error(folder_, "no such special token");
  EXPECT_EQ(eval(1, "--tasks texts.jsonl -o missing/results.json"), 2);
}

/// tests/data and tests/train compare the requests of pairs and their scores.
TEST(EvalTasksOfSources, AreScoredOnEveryLayout) {
  const TemporaryFolder folder;
  const std::string deck = "'" + source_folder() + "/inputs/tiny_t5.toml' model.objective=" +
                           "sequence_to_sequence data.train=pairs.h5 run.directory=run " +
                           "data.packing=documents precision.compute=fp64 ";
  const auto run = [&](const std::string& line) { return shell(folder, line); };
  const auto err = [&] { return read_file(folder.file("err")); };
  folder.write(
      "pairs.jsonl",
      "{\"source\": \"abc\", \"target\": \"cba\"}\n{\"source\": \"de\", \"target\": \"ed\"}\n");
  folder.write("choices.jsonl",
               "{\"context\": \"abc\", \"choices\": [\"cba\", \"ab\"], \"gold\": 0}\n"
               "{\"context\": \"\", \"choices\": [\"x\", \"yz\"], \"gold\": 1}\n");
  folder.write("texts.jsonl", R"({"text": "abc"})");
  ASSERT_EQ(run("trireme tokenize pairs.jsonl -o pairs.h5 && trireme train " + deck +
                "batch.global=2 run.steps=3 optimizer.warmup_steps=1"),
            0)
      << err();
  std::vector<double> alone;
  for (const std::string layout : {"", "parallel.pipeline=2", "parallel.tensor=2"}) {
    SCOPED_TRACE(layout);
    const std::string launcher = layout.empty() ? "" : std::string(TRIREME_MPIEXEC) + " -n 2 ";
    ASSERT_EQ(run(launcher + "trireme eval " + deck + layout +
                  " --tasks choices.jsonl --log-likelihoods all.jsonl"),
              0)
        << err();
    std::vector<double> found;
    std::istringstream lines(read_file(folder.file("all.jsonl")));
    for (std::string line; std::getline(lines, line);)
      found.push_back(Json::parse(line)["log_likelihood"].get<double>());
    ASSERT_EQ(found.size(), 4u);
    if (alone.empty()) alone = found;
    for (std::size_t i = 0; i < found.size(); ++i) expect_near(found[i], alone[i]);
  }
  EXPECT_NE(alone[0], alone[1]);
  EXPECT_EQ(run("trireme eval " + deck + "--tasks texts.jsonl"), 2);
  expect_error(folder, "texts.jsonl:1: has a \"text\", but a model with an encoder needs");
  EXPECT_EQ(run("trireme eval " + deck + "--tasks choices.jsonl --prefix '<s>'"), 2);
  expect_error(folder, "--prefix <s> has no effect with an encoder");
}

TEST_F(EvalTasks, TrainingOnCountedTokensMatchesPyTorch) {
  {
    data::TokenFileWriter writer(folder_.file("counted.h5"),
                                 data::make_tokenizer(folder_.file("model/tokenizer.json"))->name(),
                                 700, {folder_.file("model/tokenizer.json"), ""});
    for (std::int32_t i = 0; i <= 128; ++i)
      writer.append(std::vector<std::int32_t>{(7 * i * i + 3 * i) % 700},
                    5 * i % 11 < 4 && (i < 40 || i >= 76));
    writer.end_document(100);
    writer.commit("test");
  }
  std::istringstream golden(
      read_file(source_folder() + "/tests/golden/masked_training/losses.txt"));
  std::vector<double> expected;
  for (double loss = 0; golden >> loss;) expected.push_back(loss);
  ASSERT_EQ(expected.size(), 4u);
  for (const std::string layout : {"", "parallel.tensor=2", "batch.micro=1 parallel.pipeline=2"}) {
    SCOPED_TRACE(layout);
    const std::string launcher = layout.empty() ? "" : std::string(TRIREME_MPIEXEC) + " -n 4 ";
    ASSERT_EQ(run("rm -rf trained; trireme import model deck.toml model.sequence=16 "
                  "run.directory=trained && " +
                  launcher +
                  "trireme train deck.toml model.sequence=16 run.directory=trained "
                  "checkpoint.restart=latest " +
                  layout),
              0)
        << err();
    const std::vector<Json> found = lines("trained/metrics.jsonl");
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(found[i]["loss"].get<double>(), expected[i], 1e-10 * expected[i]) << i;
  }
  // All 8 windows again, with the first weights.
  ASSERT_EQ(eval(1,
                 "model.sequence=16 run.directory=trained --checkpoint "
                 "trained/checkpoints/step_00000000 --data counted.h5"),
            0)
      << err();
  std::ostringstream line;
  line.precision(6);
  line << std::fixed << "loss " << expected[0] << " nats per token";
  expect_output(folder_, line.str());
  ASSERT_EQ(run("trireme inspect --verify counted.h5"), 0) << err();
  expect_output(folder_, "tokens count in the loss");
}

}  // namespace
}  // namespace trireme::commands
