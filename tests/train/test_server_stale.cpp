// Servers with stale weights and asynchronous updates: records, replays and slow workers.
#include "train/checkpoints.hpp"
#include "train/served.hpp"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <thread>
#include <utility>

namespace trireme::train {
namespace {

/// Tokens of which one reading takes long, as from a slow disk.
class SleepingTokens final : public data::TokenSource {
 public:
  explicit SleepingTokens(const data::TokenSource& tokens) : tokens_(tokens) {}
  void sleep_once(std::chrono::milliseconds time) {
    wait_once([time] { std::this_thread::sleep_for(time); });
  }
  void wait_once(std::function<void()> wait) { wait_ = std::move(wait); }

  const std::string& path() const override { return tokens_.path(); }
  std::int64_t tokens() const override { return tokens_.tokens(); }
  std::int64_t vocabulary() const override { return tokens_.vocabulary(); }
  std::int64_t documents() const override { return tokens_.documents(); }
  const std::string& tokenizer() const override { return tokens_.tokenizer(); }
  data::TokenizerSource tokenizer_source() const override { return tokens_.tokenizer_source(); }
  std::string fingerprint() const override { return tokens_.fingerprint(); }
  void read(std::int64_t first, std::span<std::int32_t> out) const override {
    if (const auto wait = std::exchange(wait_, {})) wait();
    tokens_.read(first, out);
  }
  void read_document_offsets(std::int64_t first, std::span<std::int64_t> out) const override {
    tokens_.read_document_offsets(first, out);
  }
  void verify_bytes() const override {}
  void verify() const override {}

 private:
  const data::TokenSource& tokens_;
  mutable std::function<void()> wait_;
};

/// Runs without results in between, in which workers sleep.
class Stale : public Served {
 protected:
  static constexpr std::int64_t steps = 12;

  struct Found {
    Trace trace;  ///< after each step that ends with a result
    std::vector<double> weights;
    bool operator==(const Found&) const = default;
  };

  /// A result after every `every` steps.
  Found run_steps(const deck::Config& config, bool sleeps, std::int64_t every = 6) {
    Rig rig(config, tokens_);
    std::mt19937 random(static_cast<unsigned>(runtime().rank()));
    const bool is_worker = runtime().rank() < config.parallel.data;
    Found found;
    for (std::int64_t step = 1; step <= steps; ++step) {
      if (sleeps && is_worker && random() % 2 == 0)
        std::this_thread::sleep_for(std::chrono::milliseconds(random() % 20));
      rig.engine->overlapping_step(step, rig.samples, step % every != 0);
      if (step % every != 0) continue;
      const StepResult result = rig.engine->result();
      found.trace.losses.push_back(result.loss);
      found.trace.norms.push_back(result.gradient_norm);
    }
    found.weights = weights_of(whole_arrays(*rig.engine, runtime().world()));
    return found;
  }

  deck::Config config_of(const std::vector<std::string>& more) const {
    std::vector<std::string> keys{"parallel.bucket_bytes=20000", "precision.compute=fp32",
                                  "run.directory=" + shared_folder(folder_)};
    for (const std::string& key : served(runtime().ranks() > 3 ? 2 : 1, more)) keys.push_back(key);
    return small_config(12, 1, runtime().ranks(), keys);
  }

  /// As rank 0 reads it. Collective.
  std::string record() const {
    const std::string path = shared_folder(folder_) + "/server_events.jsonl";
    return runtime().world().broadcast(runtime().rank() == 0 ? read_file(path) : "", 0, "record");
  }

  /// Steps whose updates the weights of each fetch lacked.
  static std::vector<std::int64_t> lacks(const std::string& record) {
    std::vector<std::int64_t> found;
    const std::string key = "\"lacks\":";
    for (auto at = record.find(key); at != std::string::npos; at = record.find(key, at + 1))
      found.push_back(std::atoll(record.c_str() + at + key.size()));
    return found;
  }
};

TEST_F(Stale, ReplayRepeatsARecordedRun) {
  if (runtime().ranks() < 3) return;
  for (const auto& [updates, staleness] :
       {std::pair{"step", 2}, {"step", 1}, {"push", 0}, {"push", 3}}) {
    SCOPED_TRACE(text("updates ", updates, ", staleness ", staleness));
    const std::vector<std::string> keys{text("parallel.updates=", updates),
                                        text("parallel.staleness=", staleness)};
    const Found recorded = run_steps(config_of(keys), true);
    const std::string first = record();
    for (const std::int64_t missing : lacks(first)) {
      EXPECT_GE(missing, 0);
      EXPECT_LE(missing, staleness);
    }
    const std::string copy = shared_folder(folder_) + "/copy.jsonl";
    if (runtime().rank() == 0) std::ofstream(copy) << first;
    runtime().world().barrier("a copy of the record");
    std::vector<std::string> again = keys;
    again.push_back("parallel.replay=" + copy);
    for (const bool sleeps : {false, true}) {
      const Found replayed = run_steps(config_of(again), sleeps);
      if (runtime().rank() == 0) {
        EXPECT_EQ(replayed, recorded);
      }
      EXPECT_EQ(record(), first);
    }
  }
}

/// 2bw computes each step with weights that lack the last update: so does a record in which each
/// fetch comes before the update of the step before.
TEST_F(Stale, OneMissingUpdateMatches2bw) {
  if (runtime().ranks() != 3) return;
  const std::string path = shared_folder(folder_) + "/late.jsonl";
  if (runtime().rank() == 0) {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream out(path);
    out << R"({"first_step":1,"workers":2,"staleness":1,"updates":"step"})" << '\n';
    for (std::int64_t step = 1; step <= steps + 1; ++step) {
      for (int worker = 0; worker < 2 && step <= steps; ++worker)
        out << text(R"({"event":"fetch","step":)", step, R"(,"worker":)", worker, "}\n");
      if (step > 1) out << text(R"({"event":"update","step":)", step - 1, "}\n");
    }
  }
  runtime().world().barrier("a record");
  const std::vector<std::string> keys{"precision.compute=fp64", "parallel.bucket_bytes=20000"};
  const auto some =
      runtime().world().split(runtime().rank() < 2 ? 0 : 1, runtime().rank(), "two ranks");
  const auto outcome = [&](Rig& rig, grid::Communicator& world) {
    for (std::int64_t step = 1; step <= steps; ++step)
      rig.engine->overlapping_step(step, rig.samples, step < steps);
    const StepResult last = rig.engine->result();
    return std::tuple(last.loss, last.gradient_norm, weights_of(whole_arrays(*rig.engine, world)));
  };
  std::tuple<double, double, std::vector<double>> expected;
  if (runtime().rank() < 2) {
    std::vector<std::string> late = keys;
    late.push_back("parallel.schedule=2bw");
    Rig rig(small_config(12, 1, 2, late), tokens_, *some);
    expected = outcome(rig, *some);
  }
  std::vector<std::string> again = served(1, {"parallel.staleness=1", "parallel.replay=" + path,
                                              "run.directory=" + shared_folder(folder_)});
  again.insert(again.end(), keys.begin(), keys.end());
  Rig rig(small_config(12, 1, 3, again), tokens_);
  const auto found = outcome(rig, runtime().world());
  if (runtime().rank() == 0) {
    EXPECT_EQ(found, expected);
  }
}

/// If each worker fetches what the other's update left, asynchronous updates are steps of one rank
/// on the workers' parts of the batches in turn.
TEST_F(Stale, AlternatingWorkersMatchOneRank) {
  if (runtime().ranks() != 3) return;
  const std::string path = shared_folder(folder_) + "/turns.jsonl";
  if (runtime().rank() == 0) {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream out(path);
    out << R"({"first_step":1,"workers":2,"staleness":0,"updates":"push"})" << '\n';
    for (std::int64_t step = 1; step <= steps; ++step)
      for (const int worker : {0, 1})
        for (const char* event : {"fetch", "update"})
          out << text(R"({"event":")", event, R"(","step":)", step, R"(,"worker":)", worker, "}\n");
  }
  runtime().world().barrier("a record");
  const std::vector<std::string> keys{"model.dropout=0", "optimizer.warmup_steps=0",
                                      "optimizer.schedule=constant", "parallel.bucket_bytes=20000"};
  std::vector<std::string> in_turn = served(1, {"parallel.updates=push", "parallel.replay=" + path,
                                                "run.directory=" + shared_folder(folder_)});
  in_turn.insert(in_turn.end(), keys.begin(), keys.end());
  Rig rig(small_config(12, 6, 3, in_turn), tokens_);
  for (std::int64_t step = 1; step <= steps; ++step)
    rig.engine->overlapping_step(step, rig.samples, step < steps);
  const StepResult last = rig.engine->result();
  const auto weights = weights_of(whole_arrays(*rig.engine, runtime().world()));
  if (runtime().rank() > 0) return;
  const auto self = grid::Communicator::self();
  Rig alone(small_config(6, 6, 1, keys), tokens_, *self);
  const Trace expected = alone.run(1, 2 * steps);
  EXPECT_EQ(weights, weights_of(whole_arrays(*alone.engine, *self)));
  EXPECT_EQ(last.gradient_norm, expected.norms.back());
  const double mean = (expected.losses.back() + expected.losses[2 * steps - 2]) / 2;
  EXPECT_NEAR(last.loss, mean, 1e-13 * mean);  // sums in another order
}

/// Without staleness no order of arrivals changes the numbers.
TEST_F(Stale, SlowWorkersChangeNothingWithoutStaleness) {
  if (runtime().ranks() < 3) return;
  const Found each = run_steps(config_of({}), false, 1);
  const Found few = run_steps(config_of({}), true, 6);
  EXPECT_EQ(few.trace.losses, (std::vector{each.trace.losses[5], each.trace.losses[11]}));
  EXPECT_EQ(few.weights, each.weights);
}

/// Worker 1 waits in step 2 for worker 0 to end step 4: within the bound that is the case, and
/// without staleness it never is.
TEST_F(Stale, SlowWorkerDoesNotBlockOthersWithinTheBound) {
  if (runtime().ranks() != 3) return;
  const std::string where = shared_folder(folder_);
  const auto others_continue = [&](int staleness, std::chrono::milliseconds longest) {
    const std::filesystem::path sign = text(where, staleness);
    Rig rig(config_of({text("parallel.staleness=", staleness)}), tokens_);
    SleepingTokens slow(tokens_);
    const data::Samples samples(slow, rig.samples.sequence(), 3);
    std::int64_t seen = 0;
    for (std::int64_t step = 1; step <= 5; ++step) {
      if (step == 2 && runtime().rank() == 1)
        slow.wait_once([&] {
          for (const auto end = Clock::now() + longest; seen == 0 && Clock::now() < end;) {
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
            seen = std::filesystem::exists(sign) ? 1 : 0;
          }
        });
      rig.engine->overlapping_step(step, samples, step < 5);
      if (step == 4 && runtime().rank() == 0) std::ofstream(sign) << "step 4 has ended";
    }
    rig.engine->result();
    return runtime().world().all_reduce(seen, grid::Reduction::maximum, "the sign") == 1;
  };
  EXPECT_TRUE(others_continue(4, std::chrono::seconds(60)));
  EXPECT_FALSE(others_continue(0, std::chrono::milliseconds(300)));
}

/// Prints the figures of docs/data_parallelism.md: in some steps, a worker sleeps while it
/// computes.
TEST_F(Stale, PrintsTimesWithSlowWorkers) {
  const char* asked = std::getenv("TRIREME_MEASURE_SERVERS");
  if (asked == nullptr) GTEST_SKIP() << "set TRIREME_MEASURE_SERVERS to a time in milliseconds";
  const std::chrono::milliseconds time(std::atoi(asked));
  constexpr std::int64_t count = 60;
  for (const auto& [updates, staleness] :
       {std::pair{"step", 0}, {"step", 2}, {"step", 4}, {"push", 4}})
    for (const int slow : {0, 1, 2}) {  // no worker, the last one, all of them
      Rig rig(
          config_of({text("parallel.staleness=", staleness), text("parallel.updates=", updates)}),
          tokens_);
      SleepingTokens sleeping(tokens_);
      const data::Samples samples(sleeping, rig.samples.sequence(), 3);
      std::mt19937 random(static_cast<unsigned>(7 + runtime().rank()));
      const bool sleeps = runtime().rank() < 2 && runtime().rank() + slow >= 2;
      rig.engine->overlapping_step(1, samples, true);
      const auto begin = Clock::now();
      Seconds half = 0;
      int naps = 0;
      for (std::int64_t step = 2; step <= count; ++step) {
        if (random() % 4 == 0 && sleeps) {
          sleeping.sleep_once(time);
          ++naps;
        }
        rig.engine->overlapping_step(step, samples, step < count);
        if (step == count / 2) half = seconds(Clock::now() - begin);
      }
      const Seconds took = seconds(Clock::now() - begin);
      const double loss = rig.engine->result().loss;
      if (runtime().rank() < 2)
        std::printf(
            "updates %s, staleness %d, %s, worker %d: %.2f s, %.2f s to half, %d naps, loss %.4f\n",
            updates, staleness,
            slow == 0   ? "none sleeps"
            : slow == 1 ? "one sleeps"
                        : "both sleep",
            runtime().rank(), took, half, naps, loss);
    }
}

}  // namespace
}  // namespace trireme::train
