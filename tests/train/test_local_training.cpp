// Local training: workers do not depend on which ranks train them, outer steps are those of their
// equations, and a restart continues in the middle of a round.
#include <trireme/architecture/outer_steps.hpp>

#include "train/checkpoints.hpp"
#include "train/layouts.hpp"

namespace trireme::train {
namespace {

using Arrays = std::map<std::string, std::vector<double>>;

class LocalTraining : public Layouts {
 protected:
  /// Steps of 12 samples, of which each worker has a part.
  static deck::Config config_of(int workers, std::int64_t ranks,
                                std::vector<std::string> more = {}) {
    more.push_back(text("local.workers=", workers));
    more.emplace_back("model.layers=3");
    return small_config(12, 1, ranks, more);
  }

  Arrays arrays(Rig& rig, grid::Communicator& world = runtime().world()) {
    return whole_arrays(*rig.engine, world);
  }

  /// The mean of `difference(w)` over all workers.
  template <class Difference>
  static double mean(int workers, const Difference& difference) {
    double sum = 0;
    for (int w = 0; w < workers; ++w) sum += difference(w);
    return sum / workers;
  }

  static std::string of_worker(int worker, const std::string& name) {
    return text("optimizer.worker_", worker, ".weight.", name);
  }
  static std::string of_momentum(const std::string& name) {
    return "optimizer.outer_momentum." + name;
  }
  static bool is_weight(const std::string& name) { return !name.starts_with("optimizer."); }

  static double difference(const Arrays& a, const Arrays& b) {
    double most = 0, largest = 0;
    for (const auto& [name, array] : a) {
      if (!is_weight(name)) continue;
      const auto& other = b.at(name);
      for (std::size_t i = 0; i < array.size(); ++i) {
        most = std::max(most, std::abs(array[i] - other[i]));
        largest = std::max(largest, std::abs(array[i]));
      }
    }
    return most / largest;
  }
};

TEST(OuterSteps, FragmentsAlternate) {
  deck::LocalConfig local;
  local.inner_steps = 10;
  local.fragments = 3;
  local.delay = 2;
  const architecture::OuterSteps steps(local);
  std::string sent, updated;
  for (std::int64_t step = 1; step <= 20; ++step) {
    sent += steps.sent(step) ? std::to_string(*steps.sent(step)) : "-";
    updated += steps.updated(step) ? std::to_string(*steps.updated(step)) : "-";
    EXPECT_FALSE(steps.together(step));
  }
  EXPECT_EQ(sent, "--1--2---0--1--2---0");
  EXPECT_EQ(updated, "----1--2---0--1--2--");
  EXPECT_TRUE(steps.in_flight(11).has_value());
  EXPECT_FALSE(steps.in_flight(12).has_value());
  local.fragments = 1;
  local.delay = 0;
  EXPECT_TRUE(architecture::OuterSteps(local).together(20));
  EXPECT_FALSE(architecture::OuterSteps(local).together(19));
}

/// With SGD, the mean of workers after one step each is a step with the mean of their gradients.
TEST_F(LocalTraining, OneInnerSgdStepMatchesDataParallelism) {
  for (const int workers : {2, 4}) {
    if (workers % runtime().ranks() != 0 && runtime().ranks() % workers != 0) continue;
    std::vector<std::string> keys{"optimizer.kind=sgd", "optimizer.momentum=0",
                                  "optimizer.clip_norm=0"};
    const auto plain_config = config_of(1, runtime().ranks(), keys);
    Rig plain(plain_config, tokens_);
    const Trace expected = plain.run(1, 5);
    const Arrays expected_arrays = arrays(plain);
    for (const char* key : {"local.inner_steps=1", "local.outer_optimizer=sgd",
                            "local.outer_momentum=0", "local.outer_learning_rate=1"})
      keys.emplace_back(key);
    Rig local(config_of(workers, runtime().ranks(), keys), tokens_);
    const Trace found = local.run(1, 5);
    const Arrays found_arrays = arrays(local);
    if (runtime().rank() > 0) continue;
    for (std::size_t i = 0; i < found.losses.size(); ++i)
      EXPECT_NEAR(found.losses[i], expected.losses[i], 1e-12 * expected.losses[i]);
    EXPECT_LE(difference(expected_arrays, found_arrays), 1e-12);
  }
}

/// The weights and momenta of two outer steps, from those of workers that train on without one.
TEST_F(LocalTraining, OuterStepsMatchTheEquations) {
  const int workers = 2 * runtime().ranks();
  if (12 % workers != 0) return;
  const std::string where = shared_folder(folder_);
  for (const bool nesterov : {true, false}) {
    const std::vector<std::string> keys{
        "local.outer_learning_rate=0.6", "local.outer_momentum=0.8",
        text("local.outer_optimizer=", nesterov ? "nesterov" : "sgd")};
    const auto with_steps = [&](int inner) {
      std::vector<std::string> all = keys;
      all.push_back(text("local.inner_steps=", inner));
      return config_of(workers, runtime().ranks(), all);
    };
    Rig together(with_steps(3), tokens_);
    Arrays before = arrays(together);
    for (const std::int64_t last : {3, 6}) {
      Rig apart(with_steps(1000), tokens_);
      if (last > 3) apart.engine->load(checkpoint::Reader(text(where, nesterov, "/step_00000003")));
      apart.run(last - 2, last);
      const Arrays own = arrays(apart);
      together.run(last - 2, last);
      save(*together.engine, text(where, nesterov), last);
      const Arrays after = arrays(together);
      if (runtime().rank() == 0)
        for (const auto& [name, weights] : before) {
          if (!is_weight(name)) continue;
          double most = 0;
          for (std::size_t i = 0; i < weights.size(); ++i) {
            const double d =
                mean(workers, [&](int w) { return weights[i] - own.at(of_worker(w, name))[i]; });
            const double v = 0.8 * before.at(of_momentum(name))[i] + d;
            const double expected = weights[i] - 0.6 * (nesterov ? d + 0.8 * v : v);
            most = std::max({most, std::abs(after.at(of_momentum(name))[i] - v),
                             std::abs(after.at(name)[i] - expected)});
          }
          EXPECT_LE(most, 1e-14) << name;
        }
      before = after;
    }
    EXPECT_FALSE(runtime().rank() == 0 && before.contains(of_worker(0, "head.norm.gain")));
  }
}

/// Differences of step 3 reach the workers after step 5, which keep a part of their own weights.
TEST_F(LocalTraining, DelayedDifferencesAreMixedIn) {
  const int workers = runtime().ranks() == 3 ? 3 : 4;
  const auto with = [&](std::vector<std::string> more) {
    more.emplace_back("local.mixing=0.25");
    return config_of(workers, runtime().ranks(), more);
  };
  Rig apart(with({"local.inner_steps=1000"}), tokens_);
  const Arrays before = arrays(apart);
  apart.run(1, 3);
  const Arrays sent = arrays(apart);
  apart.run(4, 5);
  const Arrays own = arrays(apart);
  Rig delayed(with({"local.inner_steps=3", "local.delay=2"}), tokens_);
  delayed.run(1, 4);
  const Arrays in_flight = arrays(delayed);
  delayed.run(5, 5);
  const Arrays after = arrays(delayed);
  if (runtime().rank() > 0) return;
  for (const auto& [name, weights] : before) {
    if (!is_weight(name)) continue;
    double most = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const double d =
          mean(workers, [&](int w) { return weights[i] - sent.at(of_worker(w, name))[i]; });
      const double outer = weights[i] - 0.7 * (d + 0.9 * d);
      most = std::max({most, std::abs(in_flight.at("optimizer.outer_difference." + name)[i] - d),
                       std::abs(after.at(name)[i] - outer)});
      for (int w = 0; w < workers; ++w)
        most = std::max(most, std::abs(after.at(of_worker(w, name))[i] -
                                       (0.25 * own.at(of_worker(w, name))[i] + 0.75 * outer)));
    }
    EXPECT_LE(most, 1e-14) << name;
  }
}

/// Four workers on one rank, and on all ranks.
TEST_F(LocalTraining, BitsDoNotDependOnTheRanksOfWorkers) {
  const int workers = runtime().ranks() == 3 ? 3 : 4;
  for (const std::vector<std::string>& keys :
       {std::vector<std::string>{"local.inner_steps=3"},
        {"precision.compute=bf16", "local.inner_steps=4", "local.fragments=2", "local.delay=2"},
        {"precision.compute=fp32", "local.inner_steps=2", "local.differences=bf16",
         "parallel.bucket_bytes=20000"},
        {"optimizer.kind=muon", "local.inner_steps=4", "local.fragments=3", "local.delay=1",
         "local.mixing=0", "local.outer_momentum=0"},
        {"precision.compute=fp16", "local.inner_steps=2", "parallel.offload=both"}}) {
    SCOPED_TRACE(join(keys, ", "));
    Arrays expected;
    Trace losses;
    if (runtime().rank() == 0) {
      const auto self = grid::Communicator::self();
      Rig one(config_of(workers, 1, keys), tokens_, *self);
      losses = one.run(1, 7);
      expected = arrays(one, *self);
    }
    runtime().world().barrier("one rank has trained all workers");
    Rig rig(config_of(workers, runtime().ranks(), keys), tokens_);
    const Trace found = rig.run(1, 7);
    const Arrays found_arrays = arrays(rig);
    if (runtime().rank() > 0) continue;
    EXPECT_EQ(found_arrays, expected);
    for (std::size_t i = 0; i < found.losses.size(); ++i)
      EXPECT_NEAR(found.losses[i], losses.losses[i], 1e-14 * losses.losses[i]);
  }
}

/// Two workers, each on half of the ranks in any layout, are those of one rank.
TEST_F(LocalTraining, LayoutsOfWorkersMatchOneRank) {
  const int ranks = runtime().ranks();
  if (ranks % 2 != 0) return;
  for (Layout layout :
       {Layout{1, 1, 1},
        {2, 1, 1, "1f1b", 1, true},
        {1, 2, 1, "zb-h1"},
        {2, 1, 1, "1f1b", 1, false, false, Recompute::none, Sharding::none, OptimizerKind::muon},
        {1, 1, 1, "1f1b", 1, false, true, Recompute::full, Sharding::weights, OptimizerKind::lamb,
         Family::llama},
        {1, 1, 1, "1f1b", 1, false, true, Recompute::none, Sharding::optimizer},
        {1, 1, 1, "1f1b", 1, false, true, Recompute::none, Sharding::weights, OptimizerKind::adamw,
         Family::gpt, 3, "", "data, tensor", 2}}) {
    const int model = layout.tensor * layout.pipeline * layout.context;
    if (ranks % model != 0) continue;
    layout.data = ranks / model;
    layout.trained = {"local.workers=2", "local.inner_steps=3", "local.outer_momentum=0.5"};
    layout.steps = 6;  // two outer steps
    // Some replicas own nothing of a fragment.
    if (layout.shard != Sharding::none) layout.trained.emplace_back("local.fragments=3");
    expect_the_same_answer(layout);
  }
}

/// Stopped between outer steps, with differences in flight.
TEST_F(LocalTraining, ContinuesBitForBit) {
  const int most = runtime().ranks() == 3 ? 3 : 4;
  const std::string where = shared_folder(folder_);
  int run = 0;
  for (const std::vector<std::string>& keys :
       {std::vector<std::string>{"local.inner_steps=2"},
        {"local.inner_steps=3"},
        {"precision.compute=bf16", "local.inner_steps=4", "local.fragments=2", "local.delay=2",
         "local.differences=bf16"},
        {"precision.compute=fp16", "local.inner_steps=3", "local.delay=3"},
        {"local.inner_steps=4", "local.fragments=4", "local.mixing=0.1"},
        {"parallel.shard=optimizer", "parallel.bucket_bytes=20000", "local.inner_steps=3",
         "local.delay=2"}}) {
    SCOPED_TRACE(join(keys, ", "));
    const bool divides = keys.front() == "parallel.shard=optimizer";
    const int workers = divides ? 2 : most;
    if (divides && runtime().ranks() != 4) continue;
    const auto config = config_of(workers, runtime().ranks(), keys);
    const std::string directory = text(where, run++);
    Rig whole(config, tokens_);
    whole.run(1, 4);
    save(*whole.engine, directory, 4);
    const Trace expected = whole.run(5, 9);
    const Arrays expected_arrays = arrays(whole);
    const checkpoint::Reader reader(directory + "/step_00000004");
    Rig second(config, tokens_);
    second.run(1, 3);
    second.engine->load(reader);
    EXPECT_EQ(second.run(5, 9), expected);
    EXPECT_EQ(arrays(second), expected_arrays);
    if (divides) {  // whole state continues with the differences of divided state
      Rig whole_state(config_of(workers, runtime().ranks(), {keys.begin() + 1, keys.end()}),
                      tokens_);
      whole_state.engine->load(reader);
      whole_state.run(5, 9);
      EXPECT_EQ(arrays(whole_state), expected_arrays);
      continue;
    }
    // One rank continues with all workers, and with one.
    if (runtime().rank() == 0) {
      const auto self = grid::Communicator::self();
      Rig one(config_of(workers, 1, keys), tokens_, *self);
      one.engine->load(reader);
      one.run(5, 9);
      EXPECT_EQ(arrays(one, *self), expected_arrays);
      std::vector<std::string> plain;
      for (const std::string& key : keys)
        if (!key.starts_with("local.")) plain.push_back(key);
      Rig without(config_of(1, 1, plain), tokens_, *self);
      without.engine->load(reader);
      const Arrays shared = arrays(without, *self);
      EXPECT_TRUE(std::isfinite(without.run(5, 6).losses.back()));
      EXPECT_FALSE(shared.contains(of_worker(0, "embedding.token")));
    }
    runtime().world().barrier("one rank has continued");
  }
}

/// A run without local training, in which each worker begins with the optimizer's state.
TEST_F(LocalTraining, StartsFromAPlainCheckpoint) {
  const std::string where = shared_folder(folder_);
  Rig plain(config_of(1, runtime().ranks()), tokens_);
  plain.run(1, 3);
  save(*plain.engine, where, 3);
  const Arrays expected = arrays(plain);
  Rig local(config_of(runtime().ranks() == 3 ? 3 : 4, runtime().ranks()), tokens_);
  local.engine->load(checkpoint::Reader(where + "/step_00000003"));
  const Arrays found = arrays(local);
  for (const auto& [name, array] : expected) {
    EXPECT_EQ(found.at(name), array) << name;
    const std::string of_last = "optimizer.worker_2." + name.substr(name.find('.') + 1);
    if (!is_weight(name)) {
      EXPECT_EQ(found.at(of_last), array) << of_last;
    }
  }
}

/// Between outer steps, evaluations use the shared weights, and leave the workers' alone.
TEST_F(LocalTraining, EvaluatesTheSharedWeights) {
  const int workers = runtime().ranks() == 3 ? 3 : 4;
  const data::Windows windows(tokens_, 23);
  const std::vector<std::int32_t> bytes(257, 1);
  const std::string where = shared_folder(folder_);
  for (const char* compute : {"fp64", "bf16"}) {
    const std::vector<std::string> keys{text("precision.compute=", compute), "local.inner_steps=3"};
    const auto config = config_of(workers, runtime().ranks(), keys);
    Rig undisturbed(config, tokens_);
    const Trace expected = undisturbed.run(1, 7);
    Rig rig(config, tokens_);
    const auto evaluated = [&](Engine& engine) {
      const Evaluation e = engine.evaluate(windows, 11, bytes);
      return std::tuple(e.tokens().nats, e.tokens().count, e.bytes);
    };
    rig.run(1, 3);
    const auto shared = evaluated(*rig.engine);
    rig.run(4, 5);
    EXPECT_EQ(evaluated(*rig.engine), shared);
    Trace rest = rig.run(6, 7);
    EXPECT_EQ(rest.losses.back(), expected.losses.back());
    EXPECT_EQ(rest.norms.back(), expected.norms.back());
  }
}

}  // namespace
}  // namespace trireme::train
