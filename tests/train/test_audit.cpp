// One flipped bit in a weight, a gradient, an activation or a moment of one rank: audits find it,
// name the rank, and repair it or stop the run.
#include <trireme/deck/enums.hpp>
#include <trireme/tensor/views.hpp>
#include <trireme/train/audit_state.hpp>

#include "support/bit_flip.hpp"
#include "support/training.hpp"
#include "support/whole_arrays.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string_view>

namespace trireme::train {
namespace {

using namespace trireme::testing;
using Overrides = std::vector<std::string>;

constexpr std::int64_t audit_steps = 4;
constexpr std::int64_t audited = 3;  // with audit_every = 3

class AuditTest : public ::testing::Test {
 protected:
  /// In the soak test, and on one rank, which has one layout.
  static bool all_combinations() {
    return runtime().ranks() == 1 || std::getenv("TRIREME_ALL_LAYOUTS") != nullptr;
  }
  void SetUp() override {
    if (!exec_on_host) GTEST_SKIP() << "the test writes to the worker's memory";
  }

  deck::Config config_of(Overrides overrides, std::int64_t every, AuditAction action) const {
    overrides.push_back("parallel.bucket_bytes=20000");
    deck::Config config = small_config(12, 1, runtime().ranks(), overrides);
    config.run.audit_every = every;
    config.run.audit = action;
    config.run.directory = directory_;
    return config;
  }
  /// Layouts of these ranks, each with its number of replicas.
  static std::vector<Overrides> layouts() {
    std::vector<Overrides> all{{}};
    const int ranks = runtime().ranks();
    if (ranks > 1) {
      all.push_back({"parallel.shard=optimizer"});
      all.push_back({text("parallel.pipeline=", ranks), text("model.layers=", ranks),
                     "parallel.schedule=zb-h1"});
      if (ranks < 4) all.push_back({text("parallel.tensor=", ranks)});
    }
    if (ranks == 4) {
      all.push_back({"parallel.tensor=2", "parallel.sequence_parallel=true"});
      all.push_back({"parallel.pipeline=2", "parallel.shard=optimizer"});
      all.push_back({"parallel.tensor=2", "parallel.pipeline=2"});
      all.push_back({"parallel.context=2"});
    }
    return all;
  }

  Trace numbers_without_faults(const Overrides& layout) {
    return Rig(config_of(layout, 0, AuditAction::stop), tokens_).run(1, audit_steps);
  }

  /// The list of hosts that the audits of a run have left, which is then removed.
  std::string listed() const {
    std::ostringstream all;
    runtime().world().barrier("the list is complete");
    all << std::ifstream(directory_ + "/suspect_hosts").rdbuf();
    runtime().world().barrier("the list was read");
    if (runtime().rank() == 0) std::filesystem::remove(directory_ + "/suspect_hosts");
    return all.str();
  }
  static std::string named(Rank rank) { return text(": rank ", rank, " on "); }

  /// Runs all steps; the error of one that is stopped, on rank 0.
  struct Outcome {
    Trace trace;
    std::string error;
    ExitCode code = ExitCode::finished;
  };
  static Outcome run(Rig& rig, const std::function<void(std::int64_t)>& before) {
    Outcome outcome;
    for (std::int64_t step = 1; step <= audit_steps; ++step) try {
        before(step);
        const Trace trace = rig.run(step, step);
        outcome.trace.losses.push_back(trace.losses.front());
        outcome.trace.norms.push_back(trace.norms.front());
      } catch (const Error& error) {
        outcome.error = error.what();
        outcome.code = error.code();
        break;
      }
    return outcome;
  }

  /// The faulty rank alone was named, and the run was stopped before the step or has the right
  /// numbers.
  void expect_found(const Outcome& outcome, const std::string& what, bool repaired,
                    const Trace& right) const {
    const std::string list = listed();
    EXPECT_NE(list.find(named(faulty_)), std::string::npos) << list;
    EXPECT_NE(list.find(what), std::string::npos) << list;
    EXPECT_EQ(std::ranges::count(list, '\n'), 1) << list;
    EXPECT_EQ(list.find("possibly"), std::string::npos) << list;
    EXPECT_EQ(outcome.code, repaired ? ExitCode::finished : ExitCode::wrong_numbers);
    if (repaired) {
      EXPECT_EQ(outcome.trace, right);
      return;
    }
    EXPECT_EQ(outcome.trace.losses.size(), audited - 1);
    EXPECT_EQ(outcome.error.find(text("rank ", faulty_)) != std::string::npos,
              runtime().rank() == 0);
  }

  Rank faulty_ = runtime().ranks() - 1;
  TemporaryFolder folder_;
  data::TokenFile tokens_{write_tokens(folder_, 20000)};
  std::string directory_ = runtime().world().broadcast(folder_.file(""), 0, "rank 0's folder");
};

TEST_F(AuditTest, ChangesNoValueWithoutFaults) {
  std::vector<Overrides> all = layouts();
  all.push_back({"precision.compute=bf16", "precision.products=fp8", "model.hidden=48",
                 "model.sequence=32", "model.feed_forward=96"});
  all.push_back({"precision.compute=fp16", "parallel.shard=optimizer"});
  all.push_back({"batch.global=24", "batch.ramp_start=12", "batch.ramp_increment=12",
                 "batch.ramp_samples=24", "model.shared_layers=1", "parallel.recompute=full"});
  all.push_back({"model.family=llama", "model.heads=4", "model.key_value_heads=2",
                 "model.hidden=32", "optimizer.kind=lamb"});
  for (const Overrides& layout : all) {
    SCOPED_TRACE(join(layout, " "));
    Rig plain(config_of(layout, 0, AuditAction::stop), tokens_);
    Rig audit(config_of(layout, 2, AuditAction::stop), tokens_);
    EXPECT_EQ(plain.run(1, audit_steps), audit.run(1, audit_steps));
    EXPECT_EQ(whole_arrays(*plain.engine, runtime().world()),
              whole_arrays(*audit.engine, runtime().world()));
    EXPECT_EQ(listed(), "");
  }
}

/// Faults in the passes of the audited step: in the first of them, which computes the samples of
/// another replica, or in the second. Each is gone when the passes are repeated. With a shared
/// vocabulary, the first stage sends its wrong gradient to all others. Each layout has half of the
/// combinations, with each pair of an arena, a pass and an action.
TEST_F(AuditTest, FindsTheRankOfAWrongPass) {
  std::vector<Overrides> all = layouts();
  const Overrides shared{"parallel.pipeline=2", "parallel.vocabulary=pipeline"};
  if (runtime().ranks() == 2) all.push_back(shared);
  int turn = 0;
  for (const Overrides& layout : all) {
    ++turn;
    faulty_ = layout == shared ? 0 : runtime().ranks() - 1;
    const Trace right = numbers_without_faults(layout);
    for (const std::string arena : {"gradients", "saved activations"})
      for (const int pass : {0, 1})
        for (const AuditAction action : {AuditAction::stop, AuditAction::repair}) {
          const int kind = (arena == "gradients") + pass + (action == AuditAction::repair);
          if ((kind + turn) % 2 == 1 && !all_combinations()) continue;
          SCOPED_TRACE(
              text(join(layout, " "), ", ", arena, ", pass ", pass, ", ", name_of(action)));
          BitFlip flip("kernels/layer_norm_backward_input");
          Rig rig(config_of(layout, audited, action), tokens_);
          const Outcome outcome = run(rig, [&](std::int64_t step) {
            const std::int64_t launches = flip.launches();  // of the previous step's one pass
            if (step != audited || runtime().rank() != faulty_) return;
            // Gradients that are nearly complete, or the first micro-batch's activations.
            if (arena == "gradients")
              flip.arm(arena, 0.5, pass * launches + launches - 1);
            else
              flip.arm(arena, 0.05, pass * launches);
          });
          EXPECT_TRUE(flip.has_happened());
          expect_found(outcome, arena == "gradients" ? "gradient of " : "computed other numbers",
                       action == AuditAction::repair, right);
        }
  }
}

/// Flips a bit of the first number of the first such slice that this rank would write.
void flip_bit(Engine& engine, const std::string& part) {
  for (const auto& slice : engine.share()) {
    if (slice.name.find(part) == std::string::npos || slice.bytes() == 0) continue;
    static_cast<unsigned char*>(const_cast<void*>(slice.data))[6] ^= 0x04;
    return;
  }
  FAIL() << "rank " << runtime().rank() << " holds nothing of " << part;
}

/// Each layout has two of the four pairs of a part and an action, with each of the values.
TEST_F(AuditTest, FindsTheRankWithChangedState) {
  int turn = 0;
  for (const Overrides& layout : layouts()) {
    ++turn;
    const Trace right = numbers_without_faults(layout);
    for (const std::string part : {"feed_forward", "optimizer.second_moment"})
      for (const AuditAction action : {AuditAction::stop, AuditAction::repair}) {
        const int kind = (part == "feed_forward") + (action == AuditAction::repair);
        if ((kind + turn) % 2 == 1 && !all_combinations()) continue;
        SCOPED_TRACE(text(join(layout, " "), ", ", part, ", ", name_of(action)));
        const deck::Config config = config_of(layout, audited, action);
        Rig rig(config, tokens_);
        const Outcome outcome = run(rig, [&](std::int64_t step) {
          if (step == audited && runtime().rank() == faulty_) flip_bit(*rig.engine, part);
        });
        const bool one_copy = config.parallel.replicas() == 1 ||
                              (config.parallel.divides_state() && part != "feed_forward");
        expect_found(outcome, part, action == AuditAction::repair && !one_copy, right);
      }
  }
}

/// Two replicas cannot tell which of them was right; more can.
TEST_F(AuditTest, FindsAChangeMadeInEarlierSteps) {
  const int ranks = runtime().ranks();
  if (ranks == 1) return;
  Rig rig(config_of({}, audited, AuditAction::repair), tokens_);
  const Outcome outcome = run(rig, [&](std::int64_t step) {
    if (step == 1) return;
    const auto slices = rig.engine->share();
    if (step == 2 && runtime().rank() == faulty_) flip_bit(*rig.engine, "feed_forward");
  });
  const std::string list = listed();
  EXPECT_NE(list.find(named(faulty_)), std::string::npos) << list;
  if (ranks == 2) {
    EXPECT_EQ(outcome.code, ExitCode::wrong_numbers);
    EXPECT_EQ(std::ranges::count(list, '\n'), 2) << list;
    EXPECT_NE(list.find("possibly"), std::string::npos) << list;
  } else {
    EXPECT_EQ(outcome.trace.losses.size(), audit_steps);
    EXPECT_EQ(std::ranges::count(list, '\n'), 1) << list;
  }
}

TEST_F(AuditTest, ChecksTheStateBeforeSaving) {
  Rig rig(config_of({}, audited, AuditAction::stop), tokens_);
  rig.run(1, audited - 1);
  rig.engine->audit_state(audited - 1);
  if (runtime().rank() == faulty_) flip_bit(*rig.engine, "feed_forward");
  EXPECT_THROW(rig.engine->audit_state(audited - 1), Error);
  EXPECT_NE(listed().find(named(faulty_)), std::string::npos);
}

std::optional<std::uint64_t> agreed(const std::vector<Voice>& voices) {
  return agreed_value(voices, contradicting(voices));
}

TEST(Voices, OutvoteOneWrongReplica) {
  EXPECT_EQ(agreed({{1, 7}, {0, 9}, {0, 7}, {1, 7}}), 7u) << "0 was wrong once";
  EXPECT_EQ(agreed({{1, 9}, {0, 7}, {0, 7}, {1, 7}}), 7u) << "1 was wrong once";
  EXPECT_EQ(agreed({{1, 7}, {0, 8}, {0, 9}, {1, 7}}), 7u) << "0 is wrong in another way each time";
  EXPECT_EQ(agreed({{1, 7}, {0, 9}, {0, 9}, {1, 7}}), std::nullopt) << "each repeats its own";
  EXPECT_EQ(agreed({{2, 7}, {0, 9}, {1, 7}, {0, 9}}), 7u) << "0 repeats its own against two";
  EXPECT_EQ(agreed({{0, 9}, {0, 7}, {0, 7}, {0, 7}}), 7u) << "one replica, wrong once";
  EXPECT_EQ(agreed({{0, 6}, {0, 7}, {0, 8}, {0, 9}}), std::nullopt);
  EXPECT_EQ(agreed({}), std::nullopt);
  const std::vector<Voice> tie{{1, 7}, {0, 9}, {0, 9}, {1, 7}};
  EXPECT_EQ(agreed_value(tie, {0}), 7u) << "0 contradicts itself elsewhere";
}

}  // namespace
}  // namespace trireme::train
