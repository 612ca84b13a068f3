#include <trireme/optim/learning_rate.hpp>

#include "checkpoints.hpp"
#include "support/training.hpp"
#include "support/whole_arrays.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

/// 2bw: steps without a flush, with gradients that are one step late.
namespace trireme::train {
namespace {

using namespace trireme::testing;

constexpr std::int64_t overlap_steps = 10;
const std::vector<std::string> four_layers{"model.layers=4", "parallel.bucket_bytes=20000"};

using Arrays = std::map<std::string, std::vector<double>>;

/// The rule in plain loops, for one rank: w(t+1) = w(t) − update(∇f(w(t−1))), w(−1) = w(0). The
/// gradients come from an engine without overlapping steps: SGD with the rate 1024 changes weights
/// by 1024 times the gradient, an exact factor.
class DelayedReference {
 public:
  DelayedReference(const deck::Config& config, const data::TokenFile& tokens)
      : optimizer_(config.optimizer),
        world_(grid::Communicator::self()),
        rig_(oracle_of(config), tokens, *world_) {
    for (const auto& array : architecture::describe(config.model).arrays)
      decays_[array.name] = array.decay;
    for (const auto& slice : rig_.engine->share()) {
      auto* first = static_cast<double*>(const_cast<void*>(slice.data));
      memory_[slice.name] = {first, first + slice.bytes() / 8};
      newest_[slice.name].assign(memory_[slice.name].begin(), memory_[slice.name].end());
    }
    older_ = newest_;
  }

  Trace run(std::int64_t first, std::int64_t last) {
    Trace trace;
    for (std::int64_t step = first; step <= last; ++step) {
      const Arrays gradient = gradient_of(step, trace);
      double squares = 0;
      for (const auto& [name, g] : gradient)
        for (const double x : g) squares += x * x;
      const double norm = std::sqrt(squares);
      trace.norms.push_back(norm);
      Arrays next = newest_;
      update(next, gradient, step, std::min(1.0, optimizer_.clip_norm / (norm + 1e-6)));
      older_ = std::exchange(newest_, std::move(next));
    }
    return trace;
  }

 private:
  static deck::Config oracle_of(deck::Config config) {
    deck::OptimizerConfig& o = config.optimizer;
    o.kind = OptimizerKind::sgd;
    o.momentum = o.weight_decay = o.clip_norm = 0;
    o.nesterov = false;
    o.schedule = LearningRateSchedule::constant;
    o.warmup_steps = 0;
    o.learning_rate = 1024;
    config.parallel = deck::ParallelConfig{};
    config.parallel.data = 1;
    return config;
  }

  Arrays gradient_of(std::int64_t step, Trace& trace) {
    for (const auto& [name, memory] : memory_) std::ranges::copy(older_[name], memory.begin());
    rig_.engine->train_step(step, rig_.samples);
    trace.losses.push_back(rig_.engine->result().loss);
    Arrays gradient;
    for (const auto& [name, memory] : memory_)
      for (std::size_t i = 0; i < memory.size(); ++i)
        gradient[name].push_back((older_[name][i] - memory[i]) / 1024);
    return gradient;
  }

  void update(Arrays& weights, const Arrays& gradient, std::int64_t step, double clip) {
    const deck::OptimizerConfig& o = optimizer_;
    const double rate = optim::learning_rate(o, step);
    const auto u = static_cast<double>(step);
    for (const auto& [name, g] : gradient) {
      auto& m = first_moment_[name];
      auto& v = second_moment_[name];
      m.resize(g.size());
      v.resize(g.size());
      for (std::size_t i = 0; i < g.size(); ++i) {
        m[i] = o.beta1 * m[i] + (1 - o.beta1) * clip * g[i];
        v[i] = o.beta2 * v[i] + (1 - o.beta2) * clip * g[i] * clip * g[i];
        const double direction = m[i] / (1 - std::pow(o.beta1, u)) /
                                 (std::sqrt(v[i] / (1 - std::pow(o.beta2, u))) + o.epsilon);
        weights[name][i] -=
            rate * (direction + (decays_[name] ? o.weight_decay * weights[name][i] : 0));
      }
    }
  }

  deck::OptimizerConfig optimizer_;
  std::unique_ptr<grid::Communicator> world_;
  Rig rig_;
  std::map<std::string, bool> decays_;
  std::map<std::string, std::span<double>> memory_;
  Arrays newest_, older_, first_moment_, second_moment_;
};

/// Steps first … last; `ends`: those that end the overlap besides the last one.
Trace run_overlapped(Rig& rig, std::int64_t first, std::int64_t last,
                     const std::set<std::int64_t>& ends) {
  Trace trace;
  const auto note = [&](std::int64_t step) {
    const StepResult found = rig.engine->result_of(step);
    trace.losses.push_back(found.loss);
    trace.norms.push_back(std::isfinite(found.gradient_norm) ? found.gradient_norm : -1);
  };
  for (std::int64_t step = first; step <= last; ++step) {
    rig.engine->overlapping_step(step, rig.samples, step < last && !ends.contains(step));
    if (step > first) note(step - 1);
  }
  note(last);
  return trace;
}

class Overlap : public ::testing::Test {
 protected:
  static deck::Config config_of(std::vector<std::string> overrides, std::int64_t ranks) {
    overrides.insert(overrides.begin(), four_layers.begin(), four_layers.end());
    overrides.insert(overrides.begin(), "parallel.schedule=2bw");
    return small_config(12, 1, ranks, overrides);
  }
  /// Layouts of this number of ranks.
  static std::vector<std::vector<std::string>> layouts() {
    switch (runtime().ranks()) {
      case 1:
        return {{}, {"parallel.recompute=full"}, {"model.tied_embeddings=false"}};
      case 2:
        return {{"parallel.pipeline=2"},
                {"parallel.pipeline=2", "model.tied_embeddings=false", "parallel.recompute=full"},
                {"parallel.tensor=2", "parallel.sequence_parallel=true"},
                {"parallel.shard=optimizer"},
                {"parallel.context=2"}};
      case 3:
        return {{"parallel.pipeline=3", "parallel.recompute=selective"},
                {"parallel.pipeline=3", "batch.global=3"},
                {"parallel.shard=optimizer"}};
      case 4:
        return {{"parallel.pipeline=4"},
                {"parallel.pipeline=2", "parallel.shard=optimizer"},
                {"parallel.pipeline=2", "parallel.tensor=2", "parallel.sequence_parallel=true"},
                {"parallel.pipeline=2", "optimizer.clip_norm=0.5", "model.tied_embeddings=false"}};
      default:
        return {};
    }
  }
  /// On the first ranks, as many as needed.
  template <class Run>
  static auto on_some(int used, const Run& run) {
    const auto part =
        runtime().world().split(runtime().rank() < used ? 0 : 1, runtime().rank(), "some ranks");
    return runtime().rank() < used ? run(*part) : decltype(run(*part)){};
  }

  TemporaryFolder folder_;
  data::TokenFile tokens_{write_tokens(folder_, 20000)};
};

TEST_F(Overlap, EveryLayoutMatchesDelayedGradients) {
  for (const auto& overrides : layouts()) {
    SCOPED_TRACE(join(overrides, ", "));
    const deck::Config config = config_of(overrides, runtime().ranks());
    Trace expected;
    if (runtime().rank() == 0) expected = DelayedReference(config, tokens_).run(1, overlap_steps);
    runtime().world().barrier("the reference");
    Rig rig(config, tokens_);
    const Trace found = run_overlapped(rig, 1, overlap_steps, {4, 5});
    if (runtime().rank() > 0) continue;
    for (std::size_t i = 0; i < expected.losses.size(); ++i) {
      EXPECT_NEAR(found.losses[i], expected.losses[i], 1e-10 * expected.losses[i]) << i;
      EXPECT_NEAR(found.norms[i], expected.norms[i], 1e-10 * expected.norms[i]) << i;
    }
    EXPECT_EQ(found.losses.size(), expected.losses.size());
  }
}

/// Where steps overlap, and over how many stages, changes no bit; neither does the loss scale,
/// which fp16 adapts after steps that it skips.
TEST_F(Overlap, StagesAndInterruptionsKeepTheBits) {
  using Outcome = std::pair<Trace, Arrays>;  // on rank 0
  const int ranks = runtime().ranks();
  const int data = ranks == 4 ? 2 : 1;
  for (const char* type : {"fp64", "bf16", "fp16"}) {
    SCOPED_TRACE(type);
    std::int64_t skipped = 0;
    const auto run = [&](int pipeline, const std::set<std::int64_t>& ends, bool distributed) {
      return on_some(data * pipeline, [&](grid::Communicator& world) {
        Rig rig(config_of({text("precision.compute=", type), "precision.loss_scale=16777216",
                           "precision.loss_scale_interval=3", text("parallel.pipeline=", pipeline),
                           text("parallel.shard=", distributed ? "optimizer" : "none")},
                          world.size()),
                tokens_, world);
        const Trace trace = run_overlapped(rig, 1, overlap_steps, ends);
        skipped = rig.engine->result().skips.total;
        Outcome outcome{trace, whole_arrays(*rig.engine, world)};
        return runtime().rank() == 0 ? outcome : Outcome{};
      });
    };
    const auto expected = run(1, {1, 2, 3, 4, 5, 6, 7, 8, 9}, false);
    EXPECT_EQ(run(1, {}, data == 2), expected);
    if (std::string(type) == "fp16" && runtime().rank() < data) {
      EXPECT_GT(skipped, 0);
      EXPECT_LT(skipped, overlap_steps);
    }
    for (int pipeline = 2; pipeline * data <= ranks; ++pipeline) {
      EXPECT_EQ(run(pipeline, {}, false), expected);
      EXPECT_EQ(run(pipeline, {3, 8}, data == 2), expected);
    }
  }
}

TEST_F(Overlap, RestartContinuesBitForBit) {
  const int ranks = runtime().ranks();
  for (const char* type : {"fp64", "bf16", "fp16"}) {
    SCOPED_TRACE(type);
    const std::vector<std::string> numbers{text("precision.compute=", type),
                                           "precision.loss_scale=16777216",
                                           text("parallel.pipeline=", ranks)};
    const deck::Config config = config_of(numbers, ranks);
    Rig whole(config, tokens_);
    const Trace expected = run_overlapped(whole, 1, overlap_steps, {});
    Rig first(config, tokens_);
    run_overlapped(first, 1, 6, {});
    const std::string folder = shared_folder(folder_) + type;
    save(*first.engine, folder, 6);
    Rig second(config, tokens_);
    second.engine->load(checkpoint::Reader(folder + "/step_00000006"));
    const Trace found = run_overlapped(second, 7, overlap_steps, {});
    for (std::size_t i = 0; i < found.losses.size(); ++i) {
      EXPECT_EQ(found.losses[i], expected.losses[6 + i]) << i;
      EXPECT_EQ(found.norms[i], expected.norms[6 + i]) << i;
    }
    // The same bits on one stage.
    const auto self = grid::Communicator::self();
    Rig alone(config_of({numbers[0], numbers[1]}, 1), tokens_, *self);
    alone.engine->load(checkpoint::Reader(folder + "/step_00000006"));
    EXPECT_EQ(run_overlapped(alone, 7, overlap_steps, {8}), found);
    runtime().world().barrier("all have read it");
  }
}

/// The newest weights are evaluated, and those of another schedule's checkpoint become both.
TEST_F(Overlap, CheckpointsContinueWithOtherSchedules) {
  const int ranks = runtime().ranks();
  const std::string stages = text("parallel.pipeline=", ranks);
  Rig overlapped(config_of({stages}, ranks), tokens_);
  run_overlapped(overlapped, 1, 3, {});
  const std::string folder = shared_folder(folder_);
  save(*overlapped.engine, folder, 3);
  const data::Windows windows(tokens_, 23);
  const std::vector<std::int32_t> bytes(257, 1);
  const auto loss = [&](Rig& rig) {
    return rig.engine->evaluate(windows, 40, bytes).tokens().nats;
  };

  Rig plain(config_of({stages, "parallel.schedule=1f1b"}, ranks), tokens_);
  plain.engine->load(checkpoint::Reader(folder + "/step_00000003"));
  EXPECT_EQ(loss(plain), loss(overlapped));
  save(*plain.engine, folder + "/plain", 3);
  Rig again(config_of({stages}, ranks), tokens_);
  again.engine->load(checkpoint::Reader(folder + "/plain/step_00000003"));
  EXPECT_EQ(loss(again), loss(overlapped));
  // With equal versions, the first step's gradient is not late.
  const Trace late = overlapped.run(4, 4), first = again.run(4, 4), usual = plain.run(4, 4);
  EXPECT_EQ(first, usual);
  EXPECT_NE(late.losses, usual.losses);
  runtime().world().barrier("all have read it");
}

TEST_F(Overlap, RejectsAResultThatIsNotYetKnown) {
  if (runtime().ranks() > 1) GTEST_SKIP() << "for one rank";
  Rig rig(config_of({}, 1), tokens_);
  rig.engine->overlapping_step(1, rig.samples, true);
  EXPECT_THROW(rig.engine->result_of(1), Error);
  EXPECT_THROW(rig.engine->train_step(3, rig.samples), Error) << "step 2 has begun";
  rig.engine->train_step(2, rig.samples);
  rig.engine->result_of(1);
}

}  // namespace
}  // namespace trireme::train
