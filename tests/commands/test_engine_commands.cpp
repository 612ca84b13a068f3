#include <trireme/base/text.hpp>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "commands/engine_commands.hpp"

#include <cmath>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace trireme::commands {
namespace {

TEST_F(EngineCommands, TrainWritesDeckMetricsLogAndCheckpoint) {
  ASSERT_EQ(run(mpiexec(2) + "trireme train deck.toml"), 0) << err();
  ASSERT_EQ(recorded().jobs.size(), 1u) << "one rank writes";
  ASSERT_TRUE(last_job().end);
  EXPECT_EQ(last_job().end->steps, 12);
  EXPECT_EQ(count(file("run/metrics.jsonl"), "\n"), 12) << "every step";
  EXPECT_EQ(count(file("run/metrics.jsonl"), "\"learning_rate\""), 3) << "logged steps";
  EXPECT_EQ(count(file("run/metrics.jsonl"), "\"bits_per_byte\""), 1);
  EXPECT_NE(file("run/deck.toml").find("vocabulary = 257"), std::string::npos);
  EXPECT_EQ(file("run/log.txt"), out()) << "the log is what people have seen";
  EXPECT_EQ(run("trireme inspect --verify run/checkpoints/step_00000012"), 0) << err();
  EXPECT_EQ(run("trireme check run/deck.toml"), 0) << "the resolved deck is a deck";
}

TEST_F(EngineCommands, AcceptARunOrCheckpointInPlaceOfADeck) {
  ASSERT_EQ(run("trireme train deck.toml"), 0) << err();
  for (const char* command :
       {"check run", "check run/ run.steps=20", "check run/checkpoints/step_00000012",
        "plan run --ranks 2", "eval run", "generate run/ --tokens 3", "export run exported",
        "train run checkpoint.restart=latest run.steps=13", "report run", "draw run -o d.svg"})
    EXPECT_EQ(run(std::string("trireme ") + command), 0) << command << "\n" << err();
  EXPECT_EQ(last_job().restored, 12);
  EXPECT_EQ(run("mkdir data/a; trireme check data/a"), 2);
  EXPECT_NE(err().find("data/a is a folder without deck.toml; give "), std::string::npos) << err();
  // A run that was moved is read and continued where it is.
  ASSERT_EQ(run("mv run moved; trireme eval moved"), 0) << err();
  ASSERT_EQ(run("trireme train moved checkpoint.restart=latest run.steps=14"), 0) << err();
  EXPECT_FALSE(std::filesystem::exists(folder_.file("run")));
  EXPECT_EQ(last_job("moved").restored, 13);
  ASSERT_EQ(run("trireme check moved --resolved run.directory=new"), 0) << err();
  EXPECT_NE(out().find("directory = \"new/checkpoints\""), std::string::npos) << out();
}

TEST_F(EngineCommands, PlanningForAnotherMachineIgnoresTheData) {
  const std::string machine = " --machine " TRIREME_SOURCE_DIR "/inputs/machines/h100.toml";
  for (const std::string mistake :
       {"model.vocabulary=100", "data.tokenizer=nowhere model.vocabulary=300",
        "\"data.train=0.5 data/tokens.h5, 0.5 data/none.h5\" model.vocabulary=300"})
    for (const std::string_view command : {"check", "check --layer", "plan --ranks 2"}) {
      const std::string line = text("trireme ", command, " deck.toml ", mistake);
      if (!command.starts_with("plan")) {
        EXPECT_EQ(run(line), 2) << line;
      }
      EXPECT_EQ(run(line + machine), 0) << line << err();
      EXPECT_EQ(count(err(), "trireme: warning: "), 1) << line << err();
      EXPECT_NE(err().find("The plan for another machine does not use these files."),
                std::string::npos)
          << err();
      EXPECT_FALSE(out().empty());
    }
}

TEST_F(EngineCommands, EvalAndGenerateDoNotDependOnTheRanks) {
  ASSERT_EQ(run("trireme train deck.toml"), 0) << err();
  std::string loss;
  std::string texts;
  for (const int ranks : {1, 2, 3}) {
    ASSERT_EQ(run(mpiexec(ranks) + "trireme eval deck.toml"), 0) << err();
    if (loss.empty()) loss = line_of("bits per byte");
    EXPECT_EQ(line_of("bits per byte"), loss) << ranks;
    ASSERT_EQ(
        run(mpiexec(ranks) + "trireme generate deck.toml --prompt 'the ' --tokens 90 --samples 4"),
        0)
        << err();
    if (texts.empty()) texts = out();
    EXPECT_EQ(out(), texts) << ranks;
  }
  EXPECT_FALSE(loss.empty());
  ASSERT_EQ(run(mpiexec(2) + "trireme eval deck.toml --json -"), 0) << err();
  const auto json = nlohmann::json::parse(out());
  EXPECT_EQ("bits per byte " + fixed(json.at("bits_per_byte").get<double>(), 4), loss);
  EXPECT_EQ(json.at("step"), 12);
  EXPECT_EQ(json.at("losses").at(0).at("of"), "token");
  ASSERT_EQ(run("trireme inspect --json - run/checkpoints"), 0) << err();
  const auto facts = nlohmann::json::parse(out());
  EXPECT_EQ(facts.at("kind"), "checkpoint");
  EXPECT_EQ(facts.at("step"), 12);
  EXPECT_FALSE(facts.at("arrays").empty());
  const std::string checkpoint = " run/checkpoints/step_00000012";
  ASSERT_EQ(run("trireme inspect --diff --json -" + checkpoint + checkpoint), 0) << err();
  const auto difference = nlohmann::json::parse(out());
  EXPECT_EQ(difference.at("equal"), difference.at("arrays").size());
  EXPECT_EQ(count(texts, "---- sample"), 4);
}

TEST_F(EngineCommands, BertRestartsBitForBitAndCannotGenerate) {
  const std::string bert = " model.family=bert model.dropout=0.1 optimizer.decay_steps=12";
  const auto train = [&](const std::string& overrides) {
    return run(mpiexec(2) + "trireme train deck.toml parallel.pipeline=2" + bert + overrides);
  };
  ASSERT_EQ(train(" run.directory=whole"), 0) << err();
  EXPECT_NE(file("whole/deck.toml").find("vocabulary = 260"), std::string::npos)
      << "three more than bytes have";
  EXPECT_EQ(count(file("whole/metrics.jsonl"), "\"pair_loss\""), 12);
  EXPECT_EQ(count(file("whole/metrics.jsonl"), "\"validation_pair_loss\""), 1);
  EXPECT_EQ(count(file("whole/metrics.jsonl"), "\"bits_per_byte\""), 0);
  ASSERT_EQ(train(" run.steps=5"), 0) << err();
  ASSERT_EQ(train(" checkpoint.restart=latest"), 0) << err();
  ASSERT_EQ(run("trireme inspect --diff whole/checkpoints/step_00000012 "
                "run/checkpoints/step_00000012"),
            0);
  std::istringstream words(out().substr(out().rfind("equal")));
  std::string word, of;
  int equal = 0, all = -1;
  words >> word >> equal >> of >> all;
  EXPECT_EQ(equal, all) << out();

  std::string losses;
  for (const int ranks : {1, 2, 3}) {
    ASSERT_EQ(run(mpiexec(ranks) + "trireme eval deck.toml" + bert), 0) << err();
    const std::string found = line_of("loss ") + line_of("pair_loss ");
    if (losses.empty()) losses = found;
    EXPECT_EQ(found, losses) << ranks;
    EXPECT_NE(found.find("nats per masked token"), std::string::npos) << found;
  }
  EXPECT_EQ(run("trireme check deck.toml data.class_token=258" + bert), 2)
      << "its vocabulary is 259";
  expect_error(folder_, "class_token = 258, separator_token = 257 and mask_token = 258 are not");
  EXPECT_EQ(run(mpiexec(2) + "trireme generate deck.toml" + bert), 2);
  EXPECT_EQ(count(err(), "trireme: error:"), 1) << err();
  expect_error(folder_, "cannot generate text");
}

TEST_F(EngineCommands, MistakesAreReportedOnceWithExitCodeTwo) {
  EXPECT_EQ(run(mpiexec(3) + "trireme train deck.toml"), 2) << "3 ranks do not divide a batch of 4";
  EXPECT_EQ(count(err(), "trireme: error:"), 1) << err();
  EXPECT_EQ(run(mpiexec(2) + "trireme train deck.toml model.heds=2 model.hidden=17"), 2);
  EXPECT_EQ(count(err(), "trireme: error:"), 1) << err();
  expect_error(folder_, "heads");
  EXPECT_EQ(run(mpiexec(2) + "trireme train missing.toml"), 2);
  EXPECT_EQ(count(err(), "missing.toml"), 1) << err();
  EXPECT_EQ(run(mpiexec(2) + "trireme train deck.toml data.train=elsewhere.h5"), 2);
  expect_error(folder_, "elsewhere.h5");
  EXPECT_EQ(run(mpiexec(2) + "trireme eval deck.toml"), 2) << "nothing was trained";
  expect_error(folder_, "no complete checkpoint");
  EXPECT_EQ(run("trireme train deck.toml model.sequence=100000"), 2) << "more than the file has";
  EXPECT_EQ(run("trireme train --no-such-option deck.toml"), 2);
  EXPECT_EQ(run("trireme train deck.toml parallel.tensor=2"), 2);
  expect_error(folder_, "[parallel] tensor = 2");
}

TEST_F(EngineCommands, RestartAfterTimeLimitOrSignalReadsAsOneRun) {
  ASSERT_EQ(run("trireme train deck.toml run.directory=whole run.log_every=1"), 0) << err();
  const std::string restart = " checkpoint.restart=latest run.log_every=1";
  EXPECT_EQ(run("trireme train deck.toml run.time_limit=00:00:01 run.steps=10000000" + restart), 75)
      << err();
  ASSERT_TRUE(last_job().stop);
  EXPECT_EQ(last_job().stop->cause, events::StopCause::time_limit);

  // Signals, once the handlers are surely there. A rank ends with 75; what a launcher makes of it
  // when it passed the signal on is its own (MPICH 4.0: sometimes 0), so there the events count.
  const auto signalled = [&](const std::string& launcher, const std::string& signal) {
    const std::string folder = signal + std::to_string(launcher.size());
    const auto until = [](const std::string& condition) {
      return "for i in $(seq 300); do if " + condition + "; then break; fi; sleep 0.1; done; ";
    };
    return run(launcher + "trireme train deck.toml run.directory=" + folder +
               " run.steps=10000000" + restart + " & " +
               until("test -s " + folder + "/metrics.jsonl") + "kill -" + signal +
               " $!; wait $!; code=$?; " +
               until("grep -q '\"cause\":\"signal\"' " + folder + "/events.jsonl") +
               "trireme inspect --verify " + folder + "/checkpoints || exit 99; exit $code");
  };
  EXPECT_EQ(signalled("", "USR1"), 75) << out() << err();
  EXPECT_EQ(signalled("", "TERM"), 75) << out() << err();
  EXPECT_NE(signalled(mpiexec(2), "USR1"), 99) << out() << err();

  // Six steps and then the other six: the same losses as twelve.
  EXPECT_EQ(run("trireme train deck.toml run.directory=parts run.steps=6 optimizer.decay_steps=12" +
                restart),
            0);
  EXPECT_EQ(run("trireme train deck.toml run.directory=parts" + restart), 0) << err();
  EXPECT_EQ(last_job("parts").restored, 6);
  const auto losses = [&](const std::string& run_folder) {
    std::string all = file(run_folder + "/metrics.jsonl");
    std::string found;
    for (auto at = all.find("\"loss\":"); at != std::string::npos;
         at = all.find("\"loss\":", at + 1))
      found += all.substr(at, all.find(',', at) - at) + "\n";
    return found;
  };
  EXPECT_EQ(losses("parts"), losses("whole"));
  EXPECT_EQ(count(losses("whole"), "\n"), 12);
}

/// The steps in between have the losses and norms of a run that logs every step, in single
/// precision, on every layout, and the training is the same bit for bit.
TEST_F(EngineCommands, RecordUnloggedStepsAcrossARestart) {
  const auto numbers = [&](const std::string& run_folder, const std::string& key) {
    std::istringstream lines(file(run_folder + "/metrics.jsonl"));
    std::vector<double> found;
    std::int64_t step = 0;
    for (std::string line; std::getline(lines, line);) {
      const auto json = nlohmann::json::parse(line);
      EXPECT_EQ(json["step"], ++step) << line;
      EXPECT_EQ(json.contains("time"), json.contains("tokens_per_second")) << line;
      found.push_back(json.value(key, 0.0));
    }
    return found;
  };
  for (const auto& [ranks, layout] :
       {std::pair{2, "parallel.pipeline=2 model.layers=2 parallel.schedule=2bw batch.global=8"},
        std::pair{4, "parallel.tensor=2 model.heads=2 parallel.data=2"},
        std::pair{2, "local.workers=2 local.inner_steps=4 batch.global=8"},
        std::pair{3, "parallel.strategy=server model.layers=2"}}) {
    SCOPED_TRACE(layout);
    const std::string train =
        mpiexec(ranks) + "trireme train deck.toml " + layout +
        " checkpoint.restart=latest checkpoint.every=7 optimizer.decay_steps=12 ";
    ASSERT_EQ(run("rm -rf run each && " + train + "run.directory=each run.log_every=1"), 0)
        << err();
    ASSERT_EQ(run(train + "run.log_every=5 run.steps=7"), 0) << err();
    EXPECT_EQ(count(file("run/metrics.jsonl"), "\n"), 7);
    ASSERT_EQ(run(train + "run.log_every=100"), 0) << err();
    for (const std::string key : {"loss", "gradient_norm"}) {
      if (key == "gradient_norm" && ranks == 3) continue;  // servers have it
      const auto found = numbers("run", key);
      const auto expected = numbers("each", key);
      ASSERT_EQ(found.size(), 12u);
      ASSERT_EQ(expected.size(), 12u);
      for (std::size_t i = 0; i < 12; ++i)
        EXPECT_NEAR(found[i], expected[i], 2e-7 * expected[i]) << key << " of step " << i + 1;
    }
    EXPECT_EQ(count(file("run/metrics.jsonl"), "\"learning_rate\""), 3) << "steps 5, 7 and 12";
    ASSERT_EQ(run("trireme inspect --diff each/checkpoints/step_00000012 "
                  "run/checkpoints/step_00000012"),
              0);
    std::istringstream words(out().substr(out().rfind("equal")));
    std::string word, of;
    int equal = 0, all = 0;
    words >> word >> equal >> of >> all;
    EXPECT_EQ(equal, all) << out();
  }
}

TEST_F(EngineCommands, ReportShowsGeneratedTextsByStep) {
  const std::string generate =
      "trireme generate deck.toml --prompt 'the ' --tokens 5 --samples 2 -o run/texts_";
  ASSERT_EQ(run("trireme train deck.toml run.steps=3 optimizer.decay_steps=12"), 0) << err();
  ASSERT_EQ(run(generate + "a.jsonl"), 0) << err();
  ASSERT_EQ(run("trireme train deck.toml run.steps=6 checkpoint.restart=latest "
                "optimizer.decay_steps=12"),
            0)
      << err();
  ASSERT_EQ(run(mpiexec(2) + generate + "b.jsonl"), 0) << err();
  std::istringstream lines(file("run/texts_a.jsonl") + file("run/texts_b.jsonl"));
  std::vector<std::int64_t> steps;
  for (std::string line; std::getline(lines, line);)
    steps.push_back(nlohmann::json::parse(line)["step"]);
  EXPECT_EQ(steps, (std::vector<std::int64_t>{3, 3, 6, 6}));
  ASSERT_EQ(run("trireme report run"), 0) << err();
  EXPECT_NE(file("run/report.html").find("Generated texts"), std::string::npos);
}

TEST_F(EngineCommands, RejectAModelOrBatchOtherThanTheSaved) {
  ASSERT_EQ(run("trireme train deck.toml run.steps=2 model.layers=2"), 0) << err();
  EXPECT_EQ(run(mpiexec(2) + "trireme eval deck.toml"), 2) << "one layer of two";
  EXPECT_EQ(count(err(), "trireme: error:"), 1) << err();
  expect_error(folder_, "layers = 1 (deck.toml:6), but 2 in run/checkpoints/step_00000002/deck");
  EXPECT_EQ(run("trireme generate deck.toml model.layers=3"), 2);
  expect_error(folder_, "layers = 3 (command line), but 2 in");
  EXPECT_EQ(run("trireme train deck.toml model.layers=2 batch.global=8 checkpoint.restart=latest"),
            2)
      << "its samples would not be those of a run without a stop";
  expect_error(folder_, "global = 8");
  EXPECT_EQ(run("trireme train deck.toml data.tokenizer=words"), 2);
  expect_error(folder_, "words");
}

TEST_F(EngineCommands, NonFiniteWeightsReplaceNoCheckpoint) {
  ASSERT_EQ(run("trireme train deck.toml run.steps=1 optimizer.decay_steps=12"), 0) << err();
  const std::string overrides = " run.log_every=100 checkpoint.every=3 checkpoint.keep=1";
  EXPECT_EQ(run("trireme train deck.toml checkpoint.restart=latest optimizer.learning_rate=1e30" +
                overrides),
            1);
  expect_error(folder_, "not finite");
  EXPECT_EQ(run("test -d run/checkpoints/step_00000001"), 0);
  // Step 2 leaves weights of 1e30, from which no step can be taken.
  EXPECT_EQ(run("trireme train deck.toml checkpoint.restart=latest optimizer.learning_rate=1e30 "
                "optimizer.maximum_skips=4" +
                overrides),
            1);
  const RunJob job = last_job();
  ASSERT_TRUE(job.stop && job.stop->message);
  EXPECT_EQ(job.stop->cause, events::StopCause::not_finite);
  EXPECT_EQ(job.stop->exit_code, 1);
  const auto skipped = recorded().skipped;
  ASSERT_EQ(skipped.size(), 4u) << "each is logged, since the checkpoint of step 3 is due";
  EXPECT_EQ(skipped.back().step, 6);
  EXPECT_EQ(skipped.back().event.in_row, 4);
  expect_error(folder_, "the last 4 steps were skipped");
  expect_error(folder_, "step 6: loss");
  EXPECT_EQ(run("test -d run/checkpoints/step_00000001"), 0);
  EXPECT_EQ(count(file("run/metrics.jsonl"), "\"loss\":null"), 3) << "steps 3 to 5";
}

TEST_F(EngineCommands, SkippedStepsReportTheLossScale) {
  ASSERT_EQ(run("trireme train deck.toml run.steps=4 run.log_every=1 precision.compute=fp16 "
                "precision.loss_scale=16777216"),
            0)
      << err();
  const auto skipped = recorded().skipped;
  ASSERT_GE(skipped.size(), 1u) << "2^24 / 128 tokens is more than fp16 has";
  std::optional<double> before;
  for (std::size_t i = 0; i < skipped.size(); ++i) {
    EXPECT_EQ(skipped[i].step, static_cast<std::int64_t>(i) + 1);
    EXPECT_EQ(skipped[i].event.loss_scale_before, before);
    EXPECT_EQ(skipped[i].event.loss_scale_after, std::ldexp(1.0, 23 - static_cast<int>(i)));
    before = skipped[i].event.loss_scale_after;
  }
}

TEST_F(EngineCommands, DetectAnUnwritableCheckpointFolderBeforeTheFirstStep) {
  folder_.write("file", "");
  EXPECT_EQ(run(mpiexec(2) + "trireme train deck.toml checkpoint.directory=file/checkpoints"), 2);
  EXPECT_EQ(count(err(), "[checkpoint] directory"), 1) << err();
  EXPECT_FALSE(last_job().training);
}

TEST_F(EngineCommands, AcceptPromptsThatLookLikeOptions) {
  ASSERT_EQ(run("trireme train deck.toml run.steps=2 model.vocabulary=5000"), 0) << err();
  EXPECT_EQ(run("trireme generate deck.toml model.vocabulary=5000 --tokens 20 --prompt --help"), 0)
      << err();
  EXPECT_EQ(out().substr(0, 6), "--help");
}

TEST_F(EngineCommands, NameDamagedFiles) {
  ASSERT_EQ(run("trireme train deck.toml run.steps=2"), 0) << err();
  EXPECT_EQ(run("printf x | dd of=run/checkpoints/step_00000002/shard_000000.h5 bs=1 seek=5000 "
                "conv=notrunc"),
            0);
  EXPECT_EQ(run("trireme eval deck.toml --checkpoint run/checkpoints/step_00000002"), 1);
  expect_error(folder_, "shard_000000.h5");
  EXPECT_EQ(run("printf x | dd of=data/tokens.h5 bs=1 seek=100 conv=notrunc"), 0);
  EXPECT_EQ(run(mpiexec(2) + "trireme train deck.toml"), 1);
  EXPECT_EQ(count(err(), "data/tokens.h5"), 1) << err();
}

TEST_F(EngineCommands, EvalVerifiesTheWholeTokenFile) {
  ASSERT_EQ(run("trireme train deck.toml run.steps=2"), 0) << err();
  ASSERT_EQ(run("trireme eval deck.toml --data data/tokens.h5"), 0) << err();
  // 'e' and 'd' are both ids of the vocabulary: only a checksum tells them apart.
  ASSERT_EQ(run("cp data/tokens.h5 bad.h5 && at=$(grep -obaP 'q\\x00u\\x00i' bad.h5 | tail -n 1 | "
                "cut -d: -f1) && printf r | dd of=bad.h5 bs=1 conv=notrunc seek=$at 2>dd"),
            0)
      << err();
  EXPECT_EQ(run("trireme inspect bad.h5"), 0) << "its header is whole";
  for (const int ranks : {1, 2}) {
    EXPECT_EQ(run(mpiexec(ranks) + "trireme eval deck.toml --data bad.h5"), 1);
    EXPECT_NE(err().find("bad.h5: dataset 'tokens' is damaged: checksum"), std::string::npos)
        << err();
  }
}

}  // namespace
}  // namespace trireme::commands
