// Parameter servers: with staleness 0 the bits of all-reduce, otherwise those of the recorded
// order.
#include "support/imitated_transport.hpp"
#include "train/checkpoints.hpp"
#include "train/layouts.hpp"

#include <fstream>
#include <random>
#include <thread>

namespace trireme::train {
namespace {

class Served : public Layouts {
 protected:
  static std::vector<std::string> served(std::int64_t servers,
                                         const std::vector<std::string>& more = {}) {
    std::vector<std::string> keys{"parallel.strategy=server", text("parallel.servers=", servers)};
    keys.insert(keys.end(), more.begin(), more.end());
    return keys;
  }

  /// Workers and servers on all ranks give the bits of all-reduce on as many ranks as workers.
  void expect_the_bits_of_all_reduce(Layout layout, int servers) {
    const int model = layout.tensor * layout.pipeline;
    if (runtime().ranks() % model != 0 || runtime().ranks() <= servers * model) return;
    layout.data = runtime().ranks() / model - servers;
    SCOPED_TRACE(text(layout.name(), ", servers ", servers));
    const Outcome expected = run_on_some(layout);
    layout.more = served(servers, layout.more);
    const Outcome found = run(layout, runtime().world());
    if (runtime().rank() > 0) return;
    EXPECT_EQ(found.trace, expected.trace);
    EXPECT_EQ(found.weights, expected.weights);
  }
};

TEST_F(Served, GivesTheBitsOfAllReduce) {
  for (const int servers : {1, 2})
    for (const char* compute : {"fp64", "fp32", "bf16", "fp16"}) {
      Layout layout;
      layout.more = {text("precision.compute=", compute)};
      layout.tied = compute != std::string("bf16");
      expect_the_bits_of_all_reduce(layout, servers);
    }
}

TEST_F(Served, GivesTheBitsOfAllReduceOnTensorAndPipelineRanks) {
  using enum Recompute;
  using enum OptimizerKind;
  const Sharding whole = Sharding::none;
  for (const Layout& layout :
       {Layout{2, 1, 1, "1f1b", 1, true, true},
        {2, 1, 1, "1f1b", 1, false, false, selective, whole, lamb, Family::llama, 1},
        {2, 1, 1, "1f1b", 1, false, true, none, whole, adamw, Family::qwen3, 2,
         "model.head_size=8"},
        {1, 2, 1, "1f1b", 1, false, true},
        {1, 2, 1, "interleaved", 2, false, true, full, whole, lars},
        {1, 2, 1, "zb-h1", 1, false, false, none, whole, sgd, Family::bert}})
    expect_the_bits_of_all_reduce(layout, 1);
}

TEST_F(Served, GivesTheBitsOfAllReduceWithOtherOptimizersAndFrozenWeights) {
  using enum OptimizerKind;
  for (const OptimizerKind kind : {lamb, lars, sgd}) {
    Layout layout;
    layout.optimizer = kind;
    layout.schedule = kind == sgd ? "gpipe" : "zb-h1";
    expect_the_bits_of_all_reduce(layout, kind == sgd ? 1 : 2);
  }
  for (const auto& [servers, keys] :
       {std::pair<int, std::vector<std::string>>{2, {"adapter.kind=lora"}},
        {1, {"optimizer.frozen=embedding,layers.0-1"}},
        {2, {"optimizer.frozen=layers.1"}},
        {1,
         {"batch.ramp_start=12", "batch.ramp_increment=12", "batch.ramp_samples=36",
          "batch.global=36"}}}) {
    Layout layout;
    layout.more = keys;
    expect_the_bits_of_all_reduce(layout, servers);
  }
}

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
      rig.worker->overlapping_step(step, rig.samples, step % every != 0);
      if (step % every != 0) continue;
      const StepResult result = rig.worker->result();
      found.trace.losses.push_back(result.loss);
      found.trace.norms.push_back(result.gradient_norm);
    }
    found.weights = weights_of(whole_arrays(*rig.worker, runtime().world()));
    return found;
  }

  deck::Config config_of(const std::vector<std::string>& more) const {
    std::vector<std::string> keys{"parallel.bucket_bytes=20000", "precision.compute=fp32",
                                  "run.directory=" + shared_folder(folder_)};
    for (const std::string& key : served(runtime().ranks() > 3 ? 2 : 1, more)) keys.push_back(key);
    return small_config(12, 1, runtime().ranks(), keys);
  }

  std::string record() const { return read_file(shared_folder(folder_) + "/server_events.jsonl"); }

  /// Steps whose updates the weights of each fetch lacked.
  static std::vector<std::int64_t> lacks(const std::string& record) {
    std::vector<std::int64_t> found;
    const std::string key = "\"lacks\":";
    for (auto at = record.find(key); at != std::string::npos; at = record.find(key, at + 1))
      found.push_back(std::atoll(record.c_str() + at + key.size()));
    return found;
  }
};

TEST_F(Stale, ARunIsRepeatedFromItsRecord) {
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
TEST_F(Stale, GradientsOfWeightsThatLackOneUpdateAreThoseOf2bw) {
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
      rig.worker->overlapping_step(step, rig.samples, step < steps);
    const StepResult last = rig.worker->result();
    return std::tuple(last.loss, last.gradient_norm, weights_of(whole_arrays(*rig.worker, world)));
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

/// Without staleness no order of arrivals changes the numbers.
TEST_F(Stale, WithoutStalenessSlowWorkersChangeNothing) {
  if (runtime().ranks() < 3) return;
  const Found each = run_steps(config_of({}), false, 1);
  const Found few = run_steps(config_of({}), true, 6);
  EXPECT_EQ(few.trace.losses, (std::vector{each.trace.losses[5], each.trace.losses[11]}));
  EXPECT_EQ(few.weights, each.weights);
}

TEST_F(Served, CheckpointsContinueWithAndWithoutServers) {
  if (runtime().ranks() < 3) return;
  const std::string where = shared_folder(folder_);
  for (const char* compute : {"fp64", "bf16"})
    for (const int servers : {1, 2}) {
      if (runtime().ranks() <= servers) continue;
      const int workers = runtime().ranks() - servers;
      const std::vector<std::string> numbers{text("precision.compute=", compute), "model.layers=4",
                                             "parallel.bucket_bytes=20000"};
      const auto config = [&](bool with_servers, int ranks) {
        std::vector<std::string> keys = numbers;
        if (with_servers)
          for (const std::string& key : served(servers)) keys.push_back(key);
        return small_config(12, 1, ranks, keys);
      };
      const std::string directory = text(where, compute, servers);
      Rig first(config(true, runtime().ranks()), tokens_);
      first.run(1, 3);
      save(*first.worker, directory, 3);
      const auto arrays = whole_arrays(*first.worker, runtime().world());
      const Trace expected = first.run(4, 6);
      const checkpoint::Reader reader(directory + "/step_00000003");
      Rig second(config(true, runtime().ranks()), tokens_);
      second.run(1, 1);
      second.worker->load(reader);
      EXPECT_EQ(second.run(4, 6), expected);
      const auto some =
          runtime().world().split(runtime().rank() < workers ? 0 : 1, runtime().rank(), "workers");
      if (runtime().rank() < workers) {  // the same number of replicas gives the same bits
        Rig third(config(false, workers), tokens_, *some);
        third.worker->load(reader);
        EXPECT_EQ(whole_arrays(*third.worker, *some), arrays);
        EXPECT_EQ(third.run(4, 6), expected);
      }
      runtime().world().barrier("the workers alone");
    }
}

/// A checkpoint of all-reduce continues with servers.
TEST_F(Served, ContinuesCheckpointsOfAllReduce) {
  if (runtime().ranks() < 3) return;
  const std::string where = shared_folder(folder_) + "all_reduce";
  const std::vector<std::string> numbers{"parallel.bucket_bytes=20000"};
  const int workers = runtime().ranks() == 3 ? 2 : runtime().ranks() - 2;
  const auto self = grid::Communicator::self();
  Trace expected;
  std::map<std::string, std::vector<double>> arrays;
  if (runtime().rank() == 0) {
    Rig alone(small_config(12, 1, 1, numbers), tokens_, *self);
    alone.run(1, 3);
    deck::CheckpointConfig there;
    there.directory = where;
    Saver(there, *self, *alone.worker, 0)
        .save({3, 36, "# deck", "", to_values(alone.worker->result().skips, 3)}, false);
    arrays = whole_arrays(*alone.worker, *self);
    expected = alone.run(4, 6);
  }
  runtime().world().barrier("one rank has written the checkpoint");
  std::vector<std::string> keys = numbers;
  for (const std::string& key : served(runtime().ranks() - workers)) keys.push_back(key);
  Rig rig(small_config(12, 1, runtime().ranks(), keys), tokens_);
  rig.worker->load(checkpoint::Reader(where + "/step_00000003"));
  const auto loaded = whole_arrays(*rig.worker, runtime().world());
  const Trace found = rig.run(4, 6);
  if (runtime().rank() > 0) return;
  EXPECT_EQ(loaded, arrays);
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_NEAR(found.losses[i], expected.losses[i], 1e-12 * expected.losses[i]);
}

/// Messages between workers and servers have any order, which a transport does not allow.
TEST_F(Served, GivesTheSameBitsBesideATransport) {
  if (runtime().ranks() < 3 || !can_imitate_nccl) return;
  const bool four = runtime().ranks() == 4;
  std::vector<std::string> keys = served(1, {"model.layers=3", "parallel.bucket_bytes=20000"});
  if (four) keys.emplace_back("parallel.tensor=2");
  const deck::Config config = small_config(12, 1, runtime().ranks(), keys);
  const auto outcome = [&](bool imitated) {
    Rig rig(config, tokens_, runtime().world(), imitated ? imitate_nccl : grid::TransportFactory{},
            imitated ? with_nccl() : installation::this_machine());
    const Trace trace = rig.run(1, 3);
    return std::pair(trace, weights_of(whole_arrays(*rig.worker, runtime().world())));
  };
  const auto expected = outcome(false);
  const auto found = outcome(true);
  if (runtime().rank() == 0) {
    EXPECT_EQ(found, expected);
  }
}

TEST_F(Served, EvaluatesTheWeightsAfterTheLastUpdate) {
  if (runtime().ranks() < 3) return;
  const data::Windows windows(tokens_, 23);
  const std::vector<std::int32_t> bytes(257, 1);
  const int workers = runtime().ranks() == 3 ? 2 : runtime().ranks() - 2;
  const auto evaluation = [&](const deck::Config& config, grid::Communicator& world) {
    Rig rig(config, tokens_, world);
    rig.run(1, 3);
    const Evaluation found = rig.worker->evaluate(windows, 10, bytes);
    return std::pair(found.tokens().nats, rig.run(4, 5));
  };
  const auto some =
      runtime().world().split(runtime().rank() < workers ? 0 : 1, runtime().rank(), "workers");
  std::pair<double, Trace> expected;
  if (runtime().rank() < workers) expected = evaluation(small_config(12, 1, workers), *some);
  const auto found =
      evaluation(small_config(12, 1, runtime().ranks(), served(runtime().ranks() - workers)),
                 runtime().world());
  if (runtime().rank() < workers) {
    EXPECT_EQ(found, expected);
  }
}

/// A worker that sleeps stops the others at most when the staleness is used up.
TEST_F(Stale, ASlowWorkerDoesNotStopTheOthersWithinTheBound) {
  if (runtime().ranks() != 3) return;
  const auto seconds_of_worker_0 = [&](int staleness) {
    Rig rig(config_of({text("parallel.staleness=", staleness)}), tokens_);
    rig.worker->overlapping_step(1, rig.samples, true);
    const auto begin = Clock::now();
    double took = 0;
    for (std::int64_t step = 2; step <= 5; ++step) {
      if (step == 2 && runtime().rank() == 1)
        std::this_thread::sleep_for(std::chrono::milliseconds(600));
      rig.worker->overlapping_step(step, rig.samples, step < 5);
      if (step == 4) took = seconds(Clock::now() - begin);
    }
    rig.worker->result();
    return took;
  };
  const double strict = seconds_of_worker_0(0), stale = seconds_of_worker_0(4);
  if (runtime().rank() > 0) return;
  EXPECT_GT(strict, 0.55) << "worker 0 waits for worker 1";
  EXPECT_LT(stale, 0.45) << "worker 0 goes on";
}

/// Prints the figures of docs/data_parallelism.md.
TEST_F(Stale, TimesWithASlowWorker) {
  const char* ask = std::getenv("TRIREME_MEASURE_SERVERS");
  if (ask == nullptr) GTEST_SKIP() << "set TRIREME_MEASURE_SERVERS to a sleep in milliseconds";
  const int sleep = std::atoi(ask);
  for (const auto& [updates, staleness] :
       {std::pair{"step", 0}, {"step", 1}, {"step", 2}, {"step", 4}, {"push", 4}})
    for (const bool slow : {false, true}) {
      Rig rig(
          config_of({text("parallel.staleness=", staleness), text("parallel.updates=", updates)}),
          tokens_);
      constexpr std::int64_t count = 60;
      std::mt19937 random(7);
      rig.worker->overlapping_step(1, rig.samples, true);
      const auto begin = Clock::now();
      Seconds slept = 0;
      for (std::int64_t step = 2; step <= count; ++step) {
        // In each step, one of the workers may be slow: as where nodes share a network or a disk.
        const auto which = static_cast<int>(random() % 4);
        if (slow && which == runtime().rank() && which < 2) {
          std::this_thread::sleep_for(std::chrono::milliseconds(sleep));
          slept += sleep * 1e-3;
        }
        rig.worker->overlapping_step(step, rig.samples, step < count);
      }
      const Seconds took = seconds(Clock::now() - begin);
      const double loss = rig.worker->result().loss;
      if (runtime().rank() == 0)
        std::printf("updates %s, staleness %d, %s: %.2f s (%.2f s asleep), loss %.4f\n", updates,
                    staleness, slow ? "slow" : "equal", took, slept, loss);
    }
}

}  // namespace
}  // namespace trireme::train
