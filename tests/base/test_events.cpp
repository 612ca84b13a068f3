#include <trireme/base/check.hpp>
#include <trireme/base/clock.hpp>
#include <trireme/base/events.hpp>
#include <trireme/base/log.hpp>

#include <support/temporary_folder.hpp>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

namespace trireme {
namespace {

using testing::read_file;
using testing::TemporaryFolder;

class Events : public ::testing::Test {
 protected:
  ~Events() override { events::set_file("", false); }

  std::vector<nlohmann::json> lines() const {
    std::vector<nlohmann::json> found;
    std::istringstream in(read_file(path_));
    for (std::string line; std::getline(in, line);) found.push_back(nlohmann::json::parse(line));
    return found;
  }

  TemporaryFolder folder_;
  std::string path_ = folder_.file("events.jsonl");
};

TEST(Utc, ReadsBackAsWritten) {
  for (const char* text :
       {"1970-01-01T00:00:00.000Z", "2024-02-29T23:59:59.999Z", "2026-11-22T20:20:23.045Z"}) {
    ASSERT_TRUE(parse_utc(text)) << text;
    EXPECT_EQ(to_text(*parse_utc(text)), text);
  }
  EXPECT_EQ(parse_utc("1970-01-02T00:00:00.001Z")->time_since_epoch().count(), 86'400'001);
  for (const char* text :
       {"", "2026-11-22", "2026-11-22T20:20:23Z", "2026-11-22T20:20:23.045+",
        "2025-02-29T00:00:00.000Z", "2026-11-22T24:00:00.000Z", "2026-13-22T20:20:23.045Z",
        "2026-11-22 20:20:23.045Z", "2026-11-22T20:20:23.045Zx", "2026-11-22T20:2x:23.045Z"})
    EXPECT_FALSE(parse_utc(text)) << text;
}

TEST(EventLines, HoldTypedFieldsAndOmitEmptyFields) {
  EXPECT_EQ(events::to_json(events::Checkpoint{"run/c", 1 << 20, 0.25, true, 0.125}, "T", 20),
            R"({"time":"T","step":20,"event":"checkpoint","path":"run/c","bytes":1048576,)"
            R"("seconds":0.25,"background":true,"waited":0.125})");
  EXPECT_EQ(events::to_json(events::Stop{events::StopCause::stop_file, 75, std::nullopt}, "T", 3),
            R"({"time":"T","step":3,"event":"stop","cause":"stop_file","exit_code":75})");
  EXPECT_EQ(events::to_json(events::Warning{"a\n\"b\"\xFF"}, "T", 0),
            "{\"time\":\"T\",\"step\":0,\"event\":\"warning\",\"message\":"
            "\"a\\n\\\"b\\\"\xEF\xBF\xBD\"}");
  events::SkippedStep skipped;
  skipped.loss_scale_after = std::nan("");
  EXPECT_EQ(events::to_json(skipped, "T", 4),
            R"({"time":"T","step":4,"event":"skipped_step","reason":"not_finite","skipped":0,)"
            R"("in_row":0,"loss_scale_after":null})");
}

TEST_F(Events, AppendsTheTimeAndTheLastStep) {
  events::record(events::Warning{"before there is a file"});
  events::set_file(path_, true);
  const Utc before = utc_now();
  events::record(events::Warning{"one"});
  events::set_step(7);
  log::warn("two");
  events::record(events::Warning{"three"}, 5);
  const auto found = lines();
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0]["step"], 0);
  EXPECT_EQ(found[1]["step"], 7);
  EXPECT_EQ(found[1]["message"], "two") << "a warning in the log is an event";
  EXPECT_EQ(found[2]["step"], 5);
  for (const auto& line : found) {
    const auto time = parse_utc(line["time"].get<std::string>());
    ASSERT_TRUE(time);
    EXPECT_GE(*time, before);
    EXPECT_LE(*time, utc_now());
  }
}

TEST_F(Events, RemovesALineThatAKillTruncated) {
  const std::string whole = events::to_json(events::Warning{"first"}, "T", 1) + "\n";
  const std::string last = events::to_json(events::Warning{"last"}, "T", 2);
  for (std::size_t cut = 0; cut <= last.size(); ++cut) {
    folder_.write("events.jsonl", whole + last.substr(0, cut));
    events::set_file(path_, true);
    events::record(events::Warning{"next"});
    const auto found = lines();
    ASSERT_EQ(found.size(), cut == last.size() ? 3u : 2u) << cut;
    EXPECT_EQ(found.back()["message"], "next");
  }
  folder_.write("events.jsonl", "{\"torn");  // no line end at all
  events::set_file(path_, true);
  EXPECT_EQ(read_file(path_), "");
}

TEST_F(Events, ReadsHowThePreviousJobEnded) {
  const auto former = [&](const std::string& content) {
    folder_.write("events.jsonl", content);
    events::set_file(path_, true);
    return events::former_end();
  };
  const std::string start = events::to_json(events::Start{}, "T", 0) + "\n";
  const std::string end = events::to_json(events::End{}, "T", 9) + "\n";
  const auto stop = [](events::StopCause cause) {
    return events::to_json(events::Stop{cause, 75, std::nullopt}, "T", 9) + "\n";
  };
  EXPECT_EQ(former(""), "unknown");
  EXPECT_EQ(former(start), "killed");
  EXPECT_EQ(former(start + "{\"torn"), "killed");
  EXPECT_EQ(former(start + end), "finished");
  EXPECT_EQ(former(start + end + start), "killed");
  EXPECT_EQ(former(start + stop(events::StopCause::signal)), "signal");
  EXPECT_EQ(former(start + stop(events::StopCause::watchdog) + stop(events::StopCause::error)),
            "watchdog")
      << "the first one is the cause";
  EXPECT_EQ(former("no JSON\n{\"event\":3}\n" + start + stop(events::StopCause::time_limit)),
            "time_limit");
}

TEST_F(Events, WritesOneStopAndOnlyFatalStopsOfOtherRanks) {
  events::set_file(path_, true);
  events::record(events::Stop{events::StopCause::not_finite, 1, "loss"});
  events::record(events::Stop{events::StopCause::error, 1, "the same as an error"});
  ASSERT_EQ(lines().size(), 1u);
  EXPECT_EQ(lines()[0]["cause"], "not_finite");

  events::set_file(path_, false);  // another rank
  events::record(events::Warning{"a rank's own"});
  EXPECT_EQ(lines().size(), 1u);
  events::record(events::Stop{events::StopCause::error, 1, "rank 3: disk"});
  ASSERT_EQ(lines().size(), 2u);
  EXPECT_EQ(lines()[1]["message"], "rank 3: disk");

  events::set_file(path_, false);  // every rank finds that the loss is not finite: one tells
  events::record(events::Stop{events::StopCause::not_finite, 1, "loss"});
  events::record(events::Stop{events::StopCause::error, 1, "the same as an error"});
  EXPECT_EQ(lines().size(), 2u);
}

TEST_F(Events, ReportsAnUnwritableFileAtTheStart) {
  try {
    events::set_file(folder_.file("missing/events.jsonl"), true);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("missing/events.jsonl: No such file"),
              std::string::npos)
        << error.what();
  }
}

/// A kill can cut only the line that is being written: a write() may end between two pages. The
/// next process removes that line.
TEST_F(Events, AKillTruncatesOnlyTheLastLine) {
  for (int kill_after = 1; kill_after <= 5; ++kill_after) {
    std::remove(path_.c_str());
    const pid_t child = fork();
    if (child == 0) {
      events::set_file(path_, true);
      for (std::int64_t i = 1;; ++i)
        events::record(events::Warning{std::string(static_cast<std::size_t>(i % 5000), 'x')}, i);
    }
    const auto size = [&] {  // the file grows faster than some readers read
      std::error_code missing;
      const std::uintmax_t bytes = std::filesystem::file_size(path_, missing);
      return missing ? 0 : bytes;
    };
    while (size() < 100'000) usleep(1000);
    usleep(static_cast<useconds_t>(kill_after * 700));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    const std::string content = read_file(path_);
    const std::size_t whole = content.rfind('\n') + 1;
    ASSERT_GT(whole, 0u);
    events::set_file(path_, true);  // removes the rest, if any
    EXPECT_EQ(read_file(path_), content.substr(0, whole));
    const auto found = lines();  // throws if a line is not JSON
    for (std::size_t i = 0; i < found.size(); ++i)
      ASSERT_EQ(found[i]["step"], static_cast<std::int64_t>(i + 1));
  }
}

/// A file that may not grow stands for a full disk.
TEST_F(Events, DropsALineOnAFullDiskAndWarnsOnce) {
  const auto old = std::signal(SIGXFSZ, SIG_IGN);
  events::set_file(path_, true);
  events::record(events::Warning{std::string(4000, 'y')});  // stderr is captured in a file too
  const std::string before = read_file(path_);
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit small{before.size() + 50, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) events::record(events::Warning{std::string(200, 'x')});
  setrlimit(RLIMIT_FSIZE, &limit);
  const std::string said = ::testing::internal::GetCapturedStderr();
  std::signal(SIGXFSZ, old);
  EXPECT_EQ(read_file(path_), before);
  EXPECT_NE(said.find("the events of this job are incomplete"), std::string::npos) << said;
  EXPECT_EQ(said.find("incomplete"), said.rfind("incomplete")) << said;
  events::record(events::Warning{"fits again"});
  EXPECT_EQ(lines().size(), 2u);
}

}  // namespace
}  // namespace trireme
