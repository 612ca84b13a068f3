#include <trireme/base/text.hpp>
#include <trireme/commands/report/run_log.hpp>
#include <trireme/commands/report/ticks.hpp>

#include <filesystem>
#include <sstream>

#include "training_runs.hpp"

namespace trireme::commands {
namespace {

class Report : public testing::TrainingRuns {
 protected:
  std::string page() const { return file("run/report.html"); }

  void expect_on_page(const std::string& part) const {
    EXPECT_NE(page().find(part), std::string::npos) << part;
  }
  void expect_good_page(const std::string& path) const {
    EXPECT_EQ(run("'" TRIREME_PYTHON "' -B '" TRIREME_SOURCE_DIR "/tests/commands/check_page.py' " +
                  path),
              0)
        << out() << err();
  }

  void add_validation() const {
    ASSERT_EQ(run("trireme tokenize -o data/held.h5 --document-separator '\\n' text"), 0) << err();
    ASSERT_EQ(
        run("cat deck.toml > d && echo 'validation = \"data/held.h5\"' >> d && mv d deck.toml"), 0);
  }

  /// A run's folder without training.
  void write_run(const std::string& metrics) const {
    ASSERT_EQ(run("mkdir -p run && trireme check --resolved deck.toml > run/deck.toml"), 0)
        << err();
    folder_.write("run/metrics.jsonl", metrics);
  }

  static std::string line(std::int64_t step, const std::string& loss, std::int64_t skipped = 0) {
    return text("{\"step\": ", step, ", \"loss\": ", loss,
                ", \"learning_rate\": 0.001, \"gradient_norm\": 1.5, \"skipped_steps\": ", skipped,
                ", \"global_batch\": 12, \"tokens\": ", step * 348,
                ", \"tokens_per_second\": 1000, \"step_seconds\": 0.348, "
                "\"flops_utilization\": 0.25, \"peak_bytes\": 1048576}\n");
  }
};

TEST_F(Report, ShowsTheNumbersOfARunThatWasStoppedAndWentOn) {
  add_validation();
  const std::string more =
      " checkpoint.restart=latest run.evaluate_batches=1 parallel.pipeline=2 model.layers=2"
      " batch.micro=4 run.timeline=true";
  ASSERT_EQ(run(train(2, "run.time_limit=00:00:01 run.steps=10000000" + more)), 75) << err();
  const std::int64_t stopped = last_step("run");
  const std::int64_t all = stopped + 7;
  ASSERT_EQ(run(train(2, text("run.evaluate_every=3 run.steps=", all) + more)), 0) << err();
  ASSERT_EQ(run("trireme report run/"), 0) << err();
  expect_good_page("run/report.html");

  const auto number = [&](const std::string& key) { return std::stod(metrics("run", key).back()); };
  expect_on_page(text("<dt>Steps</dt><dd>", with_commas(all), "<small>of ", with_commas(all)));
  expect_on_page("<dt>Loss</dt><dd>" + short_number(number("loss"), 5));
  expect_on_page("<dt>Tokens</dt><dd>" + with_commas(std::llround(number("tokens"))));
  expect_on_page("<dt>Restarts</dt><dd>1<");
  expect_on_page("<dt>Skipped steps</dt><dd>0<");
  double best = 1e300;
  for (const auto& value : metrics("run", "validation_loss"))
    best = std::min(best, std::stod(value));
  expect_on_page("<dt>Best validation loss</dt><dd>" + short_number(best, 5));
  expect_on_page(text("stopped early behind step ", stopped, " of 10000000"));
  expect_on_page(text("restart behind step ", with_commas(stopped)));
  for (const auto step : saved_steps("run/checkpoints")) expect_on_page(folder_name(step));
  expect_on_page(" measured, ");
  expect_on_page("directory = &quot;run&quot;");
}

TEST_F(Report, OfAFolderThatWasMovedFindsItsCheckpoints) {
  ASSERT_EQ(run(train(1, "run.steps=2")), 0) << err();
  ASSERT_EQ(run(train(1, "run.steps=3")), 0) << err();  // afresh
  ASSERT_EQ(run("mv run '<moved> & kept' && trireme report '<moved> & kept' -o page.html"), 0)
      << err();
  expect_good_page("page.html");
  const std::string page = file("page.html");
  for (const char* part : {"&lt;moved&gt; &amp; kept", "step_00000003", "metrics.previous-1.jsonl",
                           "earlier runs", "<dt>Restarts</dt><dd>0<"})
    EXPECT_NE(page.find(part), std::string::npos) << part;
  const auto losses = metrics("<moved> & kept", "loss");
  ASSERT_EQ(losses.size(), 3u);
  for (std::size_t i = 0; i < losses.size(); ++i) {
    const std::string title =
        text("<title>step ", i + 1, "\ntraining ", short_number(std::stod(losses[i])));
    EXPECT_NE(page.find(title), std::string::npos) << title;
  }
}

TEST_F(Report, OfFewOrDamagedNumbersIsAPageToo) {
  write_run("");
  ASSERT_EQ(run("trireme report run"), 0) << err();
  expect_good_page("run/report.html");
  expect_on_page("No step has been logged");
  write_run(line(1, "5.5"));
  ASSERT_EQ(run("trireme report run"), 0) << err();
  expect_good_page("run/report.html");
  expect_on_page("There is no log.txt");
  expect_on_page("<dt>Restarts</dt><dd>not known<");
  write_run(line(2, "5.5") + line(4, "null", 2) + line(6, "1e300", 2) + "{\"step\": 8, \"lo");
  ASSERT_EQ(run("trireme report run"), 0) << err();
  expect_good_page("run/report.html");
  expect_on_page("The last line of metrics.jsonl has no end");
  expect_on_page("2 steps skipped of steps 3 to 4");
  std::filesystem::remove(folder_.file("run/metrics.jsonl"));
  ASSERT_EQ(run("trireme report run"), 0) << err();
  expect_on_page("There is no metrics.jsonl");
}

TEST_F(Report, OfManyStepsStaysBelowAMegabyte) {
  std::string lines;
  for (int i = 1; i <= 100000; ++i) lines += line(i, text(2 + 100.0 / i + 0.1 * std::sin(i * i)));
  write_run(lines);
  ASSERT_EQ(run("trireme report run"), 0) << err();
  expect_good_page("run/report.html");
  EXPECT_LT(page().size(), 1u << 20);
  expect_on_page("<dt>Steps</dt><dd>100,000<");
}

TEST_F(Report, MistakesAreNamedOnce) {
  const auto refused = [&](const std::string& line, const std::vector<std::string>& parts) {
    SCOPED_TRACE(line);
    EXPECT_EQ(run(line), 2);
    expect_one_error(parts);
  };
  refused("trireme report none", {"none: no such folder"});
  refused("trireme report deck.toml", {"deck.toml is a file"});
  refused("trireme report data", {"data is not the folder of a run", "deck.toml"});
  write_run(line(1, "5") + "{\"step\": 2, \"lo\n" + line(3, "4"));
  refused("trireme report run",
          {"run/metrics.jsonl:2: `{\"step\": 2, \"lo` is no JSON object", "remove the line"});
  write_run(line(1, "5") + line(1, "4"));
  refused("trireme report run",
          {"metrics.jsonl:2: \"step\" is 1, expected more than the 1 before"});
  write_run(line(1, "\"<b>\""));
  refused("trireme report run", {"metrics.jsonl:1: \"loss\" is \"<b>\", expected a number"});
  write_run(line(1, "5"));
  refused("trireme report run -o no/such/page.html", {"no/such/page.html: cannot be written"});
  folder_.write("run/deck.toml", "[run]\nstepps = 3\n");
  refused("trireme report run", {"run/deck.toml:2", "did you mean steps?"});
}

TEST(RunLog, TellsJobsRestartsAndWhatARestartHasUndone) {
  std::istringstream in(R"(trireme: 2 ranks, Kokkos 4.7.1 Serial, MPICH
matrix-product peak of all ranks, measured: 9 GFLOP/s (x)
step 50/100  loss 3
peak memory of a rank: 1 MiB resident, 1 bytes
trireme: 2 ranks, Kokkos 4.7.1 Serial, MPICH
matrix-product peak of all ranks, measured: 10 GFLOP/s (y)
step  7 was skipped: its loss or gradient is not finite
step  10/100  loss 3
checkpoint runs/a/checkpoints/step_00000010 (0.3 s in the background, the run waited 0.00 s)
step 12 was skipped: its loss or gradient is not finite
step  20/100  loss 3
checkpoint runs/a/checkpoints/step_00000020 (0.3 s)
trireme: 2 ranks, Kokkos 4.7.1 Serial, MPICH
trireme: error: the deck contradicts the checkpoint
trireme: 4 ranks, Kokkos 4.7.1 Serial, MPICH
trireme: warning: checkpoint runs/a/checkpoints/step_00000020 is passed over: damaged
restarted from runs/a/checkpoints/step_00000010 behind step 10, 160 samples
matrix-product peak of all ranks, measured: 11 GFLOP/s (z)
step  30/100  loss 3
stopped early behind step 30 of 100; start the same command)");
  const RunLog log = read_run_log(in);
  EXPECT_EQ(log.earlier_runs, 1);
  ASSERT_EQ(log.parts.size(), 3u);
  EXPECT_EQ(log.parts[0].peak, "10 GFLOP/s (y)");
  EXPECT_EQ(log.parts[0].last_step, 20);
  EXPECT_EQ(log.parts[0].end, "");
  EXPECT_EQ(log.parts[1].peak, "");
  EXPECT_EQ(log.parts[1].end, "error: the deck contradicts the checkpoint");
  EXPECT_EQ(log.parts[2].restored, 10);
  EXPECT_EQ(log.parts[2].from, "runs/a/checkpoints/step_00000010");
  EXPECT_EQ(log.parts[2].end, "stopped early behind step 30 of 100");
  EXPECT_EQ(log.restarts(), 1);
  ASSERT_EQ(log.skipped.size(), 1u);
  EXPECT_EQ(log.skipped[0].step, 7);
  ASSERT_EQ(log.checkpoints.size(), 1u);
  EXPECT_EQ(log.checkpoints[0].step, 10);
  EXPECT_EQ(log.messages.size(), 2u);
}

}  // namespace
}  // namespace trireme::commands
