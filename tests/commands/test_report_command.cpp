#include <trireme/base/text.hpp>
#include <trireme/commands/report/run_events.hpp>
#include <trireme/commands/report/ticks.hpp>

#include <filesystem>

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
  void write_run(const std::string& metrics, const std::string& keys = "") const {
    ASSERT_EQ(
        run("mkdir -p run && trireme check --resolved deck.toml " + keys + " > run/deck.toml"), 0)
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

TEST_F(Report, ShowsAStoppedAndResumedRun) {
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
  expect_on_page(text("stopped: time limit after step ", stopped, " (exit code 75)"));
  expect_on_page(text("restart after step ", with_commas(stopped)));
  for (const auto step : saved_steps("run/checkpoints")) expect_on_page(folder_name(step));
  expect_on_page(" measured, ");
  expect_on_page("directory = &quot;run&quot;");
}

TEST_F(Report, FindsCheckpointsOfAMovedFolder) {
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

TEST_F(Report, WritesAPageForFewOrDamagedMetrics) {
  write_run("");
  ASSERT_EQ(run("trireme report run"), 0) << err();
  expect_good_page("run/report.html");
  expect_on_page("No step has been logged");
  write_run(line(1, "5.5"));
  ASSERT_EQ(run("trireme report run"), 0) << err();
  expect_good_page("run/report.html");
  expect_on_page("This run has no events.jsonl, so its jobs, restarts and warnings are not known.");
  expect_on_page("<dt>Restarts</dt><dd>not known<");
  write_run(line(2, "5.5") + line(4, "null", 2) + line(6, "1e300", 2) + "{\"step\": 8, \"lo");
  ASSERT_EQ(run("trireme report run"), 0) << err();
  expect_good_page("run/report.html");
  expect_on_page("The last line of metrics.jsonl is incomplete");
  expect_on_page("2 steps skipped of steps 3 to 4");
  std::filesystem::remove(folder_.file("run/metrics.jsonl"));
  ASSERT_EQ(run("trireme report run"), 0) << err();
  expect_on_page("There is no metrics.jsonl");
}

TEST_F(Report, ShowsTheLoadOfExperts) {
  std::string lines;
  for (const int step : {1, 2}) {
    std::string one = line(step, "5.5");
    one.insert(one.rfind('}'), text(", \"expert_loads\": [1.25, ", 2 * step, ".5]"));
    lines += one;
  }
  write_run(lines);
  ASSERT_EQ(run("trireme report run"), 0) << err();
  expect_good_page("run/report.html");
  expect_on_page("Load of experts");
  expect_on_page("<title>step 2\nvalue 4.5</title>");
  write_run(line(1, "5.5"));
  ASSERT_EQ(run("trireme report run"), 0) << err();
  EXPECT_EQ(file("run/report.html").find("Load of experts"), std::string::npos);
}

TEST_F(Report, ShowsWhichLayersUseExpertsUnevenly) {
  std::string lines;
  for (const int step : {1, 2}) {
    std::string one = line(step, "5.5");
    one.insert(one.rfind('}'), text(", \"expert_tokens\": [[4, 5, 4, 3], [", step,
                                    ", 2, 8, 0]], \"expert_loads\": [1.25, ", step, ".5]",
                                    ", \"dropped_choices\": [0, 0.", step, "]"));
    lines += one;
  }
  write_run(lines,
            "model.layers=3 experts.number=4 experts.active=1 experts.feed_forward=8 "
            "experts.first_layer=1");
  ASSERT_EQ(run("trireme report run"), 0) << err();
  expect_good_page("run/report.html");
  expect_on_page("Load of experts by layer");
  expect_on_page("From 1.25 to 2.5, the largest in layer 2.");
  expect_on_page("<title>step 2\nlayer 2 2.5\nlayer 1 1.25</title>");
  expect_on_page("Load of the experts of layer 1");
  expect_on_page("Load of the experts of layer 2");
  expect_on_page("From 0 to 2.909, the largest in expert 2.");
  expect_on_page("Dropped choices of experts");
  expect_on_page("<title>step 2\nvalue 0.2</title>");
}

TEST_F(Report, StaysBelowAMegabyteForManySteps) {
  std::string lines;
  for (int i = 1; i <= 100000; ++i) lines += line(i, text(2 + 100.0 / i + 0.1 * std::sin(i * i)));
  write_run(lines);
  ASSERT_EQ(run("trireme report run"), 0) << err();
  expect_good_page("run/report.html");
  EXPECT_LT(page().size(), 1u << 20);
  expect_on_page("<dt>Steps</dt><dd>100,000<");
}

/// Short lines, of steps between logged ones, have loss and norm.
TEST_F(Report, ShowsEveryStepAgainstStepsTokensAndTime) {
  std::string lines;
  for (int i = 1; i <= 100; ++i)
    lines += i % 10 == 0 ? line(i, text(5.0 - 0.01 * i))
                         : text("{\"step\":", i, ",\"loss\":", 5.0 - 0.01 * i,
                                ",\"gradient_norm\":", i == 55 ? "null" : "0.5", "}\n");
  write_run(lines);
  ASSERT_EQ(run("trireme report run"), 0) << err();
  expect_output(folder_, ", 10 logged steps");
  expect_good_page("run/report.html");
  expect_on_page("<title>step 55\ntraining 4.45</title>");
  expect_on_page("<title>step 55\nvalue not finite</title>");
  expect_on_page("class=\"raw first\"");
  for (const char* part : {"id=\"by-tokens\"", "id=\"by-time\"", ">seconds in steps</b>",
                           ">30,000</span>", "by by-steps by-tokens"})
    expect_on_page(part);
}

TEST_F(Report, ShowsRecordedTextsByStep) {
  write_run(line(1, "5"));
  folder_.write("run/texts_b.jsonl", R"({"step":20,"prompt":"the <b>","text":"second\nline"})"
                                     "\n");
  folder_.write("run/texts.jsonl", R"({"step":10,"prompt":"the <b>","text":"first"})"
                                   "\n");
  ASSERT_EQ(run("trireme report run"), 0) << err();
  expect_good_page("run/report.html");
  expect_on_page("the &lt;b&gt;");
  const std::string all = page();
  EXPECT_LT(all.find("second\nline"), all.find("first</td>"));
  folder_.write("run/texts.jsonl", "{\"step\":1,\"prompt\":2,\"text\":\"x\"}\n");
  EXPECT_EQ(run("trireme report run"), 2);
  expect_one_error({"run/texts.jsonl:1: \"prompt\" is 2, expected a string"});
}

TEST_F(Report, OverlaysCurvesOfSeveralRuns) {
  write_run(line(1, "5") + line(2, "4.5"));
  ASSERT_EQ(run("mv run 'first <run>'"), 0);
  write_run(line(1, "5.25") + line(3, "3.5"));
  ASSERT_EQ(run("trireme check --resolved deck.toml optimizer.learning_rate=0.5 run.steps=3 "
                "run.directory=other > "
                "run/deck.toml"),
            0)
      << err();
  ASSERT_EQ(run("trireme report 'first <run>' run/ -o both.html"), 0) << err();
  expect_output(folder_, "4 logged steps of 2 runs");
  expect_good_page("both.html");
  const std::string page = file("both.html");
  for (const char* part :
       {"Comparison of 2 runs", "<span class=\"key run-1\">first &lt;run&gt;</span>",
        "class=\"line run-2\"", "Training loss", "optimizer.learning_rate", ">0.5</td>",
        ">Finished</td>", "first &lt;run&gt;: This run has no events.jsonl",
        "steps 0 to 3. first &lt;run&gt;: from 4.5 to 5, last 4.5. run: from 3.5 to 5.25"})
    EXPECT_NE(page.find(part), std::string::npos) << part;
  for (const char* part : {"optimizer.warmup_steps", "run.directory"})
    EXPECT_EQ(page.find(part), std::string::npos) << part << " does not differ";
  EXPECT_EQ(run("trireme report 'first <run>' run"), 2);
  expect_one_error({"a page of several runs needs a file", "-o FILE"});
  EXPECT_EQ(run("trireme report run run run run run run run run run -o x.html"), 2);
  expect_one_error({"9 runs are too many for one page; give at most 8"});
}

TEST_F(Report, ReportsEachMistakeOnce) {
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
          {"metrics.jsonl:2: \"step\" is 1, expected more than 1, the preceding step"});
  write_run(line(1, "\"<b>\""));
  refused("trireme report run", {"metrics.jsonl:1: \"loss\" is \"<b>\", expected a number"});
  write_run(line(1, "5"));
  refused("trireme report run -o no/such/page.html", {"no/such/page.html: cannot be written"});
  folder_.write("run/deck.toml", "[run]\nstepps = 3\n");
  refused("trireme report run", {"run/deck.toml:2", "did you mean steps?"});
  ASSERT_EQ(run("trireme check --resolved deck.toml | sed 's/^data = [0-9]*$/data = 97/' > "
                "run/deck.toml"),
            0);
  refused("trireme report run", {"[batch] global", "(run/deck.toml:", "is not a multiple of"});
}

constexpr const char* start =
    R"("event":"start","version":"0.1.0","deck":"d.toml","ranks":2,"data":2,"pipeline":1,"tensor":1,"schedule":"1f1b","steps":100)";
constexpr const char* warning = R"("event":"warning","message":"<b>careful</b>")";

std::string event(const std::string& clock, std::int64_t step, const std::string& fields) {
  return text("{\"time\":\"2026-11-22T", clock, "Z\",\"step\":", step, ",", fields, "}\n");
}

std::string checkpoint(const std::string& clock, std::int64_t step) {
  return event(
      clock, step,
      R"("event":"checkpoint","path":"c","bytes":10,"seconds":0.5,"background":false,"waited":0.5)");
}

std::string skipped(const std::string& clock, std::int64_t step) {
  return event(
      clock, step,
      R"("event":"skipped_step","reason":"not_finite","skipped":1,"in_row":1,"loss_scale_before":65536.0,"loss_scale_after":32768.0)");
}

/// A run after an earlier one in the same folder: killed at step 27, a job that was refused, and
/// one that restarted at step 10 and met its time limit.
std::string recorded_run_of_three_jobs() {
  return event("10:00:00.000", 0, start) + event("10:00:01.000", 0, warning) +
         event("10:00:02.000", 0, R"("event":"training","peak_flops":9e9)") +
         event("10:10:00.000", 100, R"("event":"end","steps":100,"seconds":598.0)") +
         // the run itself
         event("11:00:00.000", 0, text(start, R"(,"job":"4242")")) +
         event("11:00:10.000", 0, R"("event":"training","peak_flops":1e10)") +
         skipped("11:00:17.000", 7) + checkpoint("11:00:20.000", 10) + skipped("11:00:22.000", 12) +
         checkpoint("11:00:30.000", 20) + event("11:05:00.000", 0, start) +
         event(
             "11:05:01.000", 0,
             R"("event":"stop","cause":"error","exit_code":2,"message":"the deck contradicts <it>")") +
         event("11:08:00.000", 0, start) + event("11:08:01.000", 0, warning) +
         event(
             "11:08:02.000", 10,
             R"("event":"restart","reason":"error","requested":"latest","checkpoint":"c","former_layout":"l","samples":160,"optimizer_state":true)") +
         event(
             "11:08:05.500", 10,
             R"("event":"training","peak_flops":1.1e10,"logged_step":27,"logged_time":"2026-11-22T11:00:37.000Z","kept_time":"2026-11-22T11:00:20.500Z")") +
         event("11:09:00.000", 30, R"("event":"a_later_version","field":1)") +
         event("11:10:00.000", 30, R"("event":"stop","cause":"time_limit","exit_code":75)");
}

TEST_F(Report, ShowsJobsTheirEndsAndTheCostOfRestarts) {
  write_run(line(10, "5", 1) + line(30, "4", 1));
  folder_.write("run/events.jsonl", recorded_run_of_three_jobs() + "{\"time\":\"2026-1");
  ASSERT_EQ(run("trireme report run"), 0) << err();
  expect_good_page("run/report.html");
  for (const char* part :
       {">1 (4242)</td>", ">2026-11-22 11:00:00</td>", ">2026-11-22 11:00:37</td>", ">1 to 27</td>",
        ">11 to 30</td>", "trained by Trireme 0.1.0", "Trireme 0.1.0; matrix-product peak",
        "was killed", "refused (exit code 2)", "error: the deck contradicts &lt;it&gt;",
        "stopped: time limit after step 30 (exit code 75)", "<dt>Restarts</dt><dd>1<",
        "<dt>Waited</dt><dd>7:22<",  // 4:23 and 2:59
        "<dt>Lost to restarts</dt><dd>7:45<small>17 steps run again",
        "step 7: loss or gradient not finite; loss scale 65,536 to 32,768",
        "checkpoint after step 10", "The last line of events.jsonl is incomplete"})
    expect_on_page(part);
  EXPECT_EQ(page().find("checkpoint after step 20"), std::string::npos) << "undone by the restart";
}

/// The killed job has no line in usage.jsonl, and the first line is of the earlier run.
TEST_F(Report, ShowsNodeHoursAndEnergyOfBatchJobs) {
  write_run(line(10, "5") + line(30, "4"));
  std::string events = recorded_run_of_three_jobs();
  events.insert(
      events.find("{\"time\":\"2026-11-22T11:00:10"),
      event(
          "11:00:01.000", 0,
          R"("event":"ranks","hosts":["n1","n2"],"ranks_per_host":[1,1],"kokkos":"4","execution_space":"Serial","threads":1,"mpi":"M")"));
  folder_.write("run/events.jsonl", events);
  ASSERT_EQ(run("trireme report run"), 0) << err();
  expect_on_page("<dt>Node hours</dt><dd>0.0206<small>of 3 jobs");  // 2 nodes for 37 seconds
  EXPECT_EQ(page().find("<dt>Energy"), std::string::npos);
  const auto used = [](const std::string& clock, const std::string& fields) {
    return text("{\"time\":\"2026-11-22T", clock, "Z\",", fields, "}\n");
  };
  const std::string parts = used("10:10:05.000", R"("nodes":9,"seconds":605,"joules":1e9)") +
                            used("11:05:02.000", R"("nodes":2,"seconds":3)") +
                            used("11:10:01.000", R"("nodes":4,"seconds":122,"joules":7200000)");
  folder_.write("run/usage.jsonl", parts);
  ASSERT_EQ(run("trireme report run"), 0) << err();
  expect_good_page("run/report.html");
  expect_on_page("<dt>Node hours</dt><dd>0.158<small>of 3 jobs");  // (2·37 + 2·3 + 4·122) s
  expect_on_page("<dt>Energy</dt><dd>2 kWh<small>of 1 of 3 jobs");
  ASSERT_EQ(run("cp -r run other && trireme report run other -o both.html"), 0) << err();
  for (const char* part : {">0.158</td>", ">2 kWh</td>"})
    EXPECT_NE(file("both.html").find(part), std::string::npos) << part;
  folder_.write("run/usage.jsonl", used("25:00:00.000", R"("nodes":2,"seconds":3)"));
  EXPECT_EQ(run("trireme report run"), 2);
  expect_one_error({"run/usage.jsonl:1", "expected UTC", "remove the line"});
}

TEST_F(Report, ShowsTheCostOfARestartAfterAKill) {
  const std::string common =
      "checkpoint.every=4 checkpoint.asynchronous=false checkpoint.restart=latest run.steps=";
  std::int64_t saved = 0;
  {  // one rank: of several, one could still report the death of another
    testing::Job job(folder_, train(1, common + "1000000"));
    ASSERT_TRUE(job.until([&] {
      saved = newest_step("run/checkpoints");
      return saved >= 4 && last_step("run") > saved;
    })) << err();
    job.kill_all();
  }
  saved = newest_step("run/checkpoints");
  const std::int64_t logged = last_step("run");
  std::string left = file("run/events.jsonl");
  left.resize(left.rfind('\n') + 1);
  folder_.write("run/events.jsonl", left + "{\"time\":\"2026-11");  // as a crash of the node
  const auto end = std::to_string(saved + 3);
  ASSERT_EQ(run(train(1, common + end)), 0) << err();

  const RunHistory history = recorded_run(folder_, "run");
  ASSERT_EQ(history.jobs.size(), 2u);
  EXPECT_FALSE(history.jobs[0].stop || history.jobs[0].end);
  EXPECT_EQ(history.jobs[0].last_step, logged);
  const RunJob& again = history.jobs[1];
  ASSERT_TRUE(again.restart && again.end && again.lost);
  EXPECT_EQ(again.restart->reason, "killed");
  EXPECT_EQ(again.restored, saved);
  EXPECT_EQ(again.run_again, logged - saved);
  EXPECT_EQ(again.end->steps, 3);
  EXPECT_GE(*again.lost, again.waited);
  ASSERT_EQ(run("trireme report run"), 0) << err();
  expect_good_page("run/report.html");
  expect_on_page(
      text(with_commas(logged - saved), logged - saved == 1 ? " step" : " steps", " run again"));
}

TEST_F(Report, NamesFileAndLineOfABadEvent) {
  write_run(line(10, "5"));
  const std::string good = event("10:00:00.000", 0, start);
  for (const auto& [bad, message] : std::vector<std::pair<std::string, std::string>>{
           {"{\"time\":\n", "`{\"time\":` is no JSON object"},
           {"[1]\n", "`[1]` is no JSON object"},
           {"{\"event\":\"end\"}\n", "has no \"time\""},
           {event("25:00:00.000", 0, start),
            "\"time\" is \"2026-11-22T25:00:00.000Z\", expected UTC such as "
            "2026-11-22T20:20:23.045Z"},
           {event("10:00:00.000", -1, start), "\"step\" is -1, expected an integer of at least 0"},
           {event("10:00:00.000", 1, R"("event":7)"), "\"event\" is 7, expected a string"},
           {event("10:00:00.000", 1, R"("event":"stop","cause":"whim","exit_code":1)"),
            "\"cause\" is \"whim\", expected one of time_limit, signal, stop_file"},
           {event("10:00:00.000", 1, R"("event":"ranks","hosts":[1])"),
            "\"hosts\" is array, expected a list of strings"}}) {
    SCOPED_TRACE(bad);
    folder_.write("run/events.jsonl", good + bad + good);
    EXPECT_EQ(run("trireme report run"), 2);
    expect_one_error({"run/events.jsonl:2: " + message, "remove the line"});
  }
}

TEST(RunHistory, ListsJobsRestartsAndUndoneSteps) {
  const testing::TemporaryFolder folder;
  const RunEvents found = read_events(folder.write("events.jsonl", recorded_run_of_three_jobs()));
  EXPECT_FALSE(found.torn);
  const RunHistory history = run_history(found.events, 30, std::nullopt);
  EXPECT_EQ(history.earlier_runs, 1);
  ASSERT_EQ(history.jobs.size(), 3u);
  EXPECT_EQ(history.jobs[0].start.job, "4242");
  EXPECT_EQ(history.jobs[0].last_step, 27) << "as the next job found the metrics";
  EXPECT_FALSE(history.jobs[0].stop || history.jobs[0].end);
  EXPECT_FALSE(history.jobs[1].training);
  EXPECT_EQ(history.jobs[1].stop->message, "the deck contradicts <it>");
  EXPECT_EQ(history.jobs[2].restored, 10);
  EXPECT_EQ(history.jobs[2].run_again, 17);
  EXPECT_EQ(history.jobs[2].lost, 465);
  EXPECT_EQ(history.jobs[2].waited, 179);
  EXPECT_EQ(history.jobs[2].last_step, 30);
  EXPECT_EQ(history.restarts(), 1);
  ASSERT_EQ(history.skipped.size(), 1u);
  EXPECT_EQ(history.skipped[0].step, 7);
  ASSERT_EQ(history.checkpoints.size(), 1u);
  EXPECT_EQ(history.checkpoints[0].step, 10);
  EXPECT_EQ(history.messages.size(), 2u);
}

/// The job whose only sign after its last event is a line of the metrics.
TEST(RunHistory, AJobWithoutAnEndEndsWithItsMetrics) {
  const testing::TemporaryFolder folder;
  const RunEvents found = read_events(folder.write(
      "events.jsonl", event("10:00:00.000", 0, start) +
                          event("10:00:02.000", 0, R"("event":"training","peak_flops":9e9)")));
  const RunHistory history = run_history(found.events, 8, parse_utc("2026-11-22T10:07:00.000Z"));
  ASSERT_EQ(history.jobs.size(), 1u);
  EXPECT_EQ(history.jobs[0].last_step, 8);
  EXPECT_EQ(to_text(history.jobs[0].seen), "2026-11-22T10:07:00.000Z");
}

}  // namespace
}  // namespace trireme::commands
