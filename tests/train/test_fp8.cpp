#include <trireme/architecture/fp8.hpp>

#include "checkpoints.hpp"
#include "kept_bits.hpp"
#include "support/source_folder.hpp"
#include "support/training.hpp"
#include "support/whole_arrays.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <numeric>

/// Layers' products in fp8 with delayed scaling.
namespace trireme::train {
namespace {

using namespace trireme::testing;

const std::string maxima(architecture::fp8_maxima_name);

class Fp8Training : public ::testing::Test {
 protected:
  static constexpr std::int64_t tensors = 3 * 4 * 3;  // of 4 products in 3 layers

  static deck::Config config_of(std::vector<std::string> overrides,
                                std::int64_t ranks = runtime().ranks()) {
    const std::vector<std::string> usual{"precision.compute=bf16",  "precision.products=fp8",
                                         "precision.fp8_history=4", "model.layers=3",
                                         "model.hidden=48",         "model.feed_forward=192",
                                         "model.sequence=32",       "parallel.bucket_bytes=20000"};
    overrides.insert(overrides.begin(), usual.begin(), usual.end());
    return small_config(12, 1, ranks, overrides);
  }

  TemporaryFolder folder_;
  data::TokenFile tokens_{write_tokens(folder_, 20000)};
};

/// Scales do not depend on the order of micro-batches, nor on what a pass computes again.
TEST_F(Fp8Training, SchedulesStagesRecomputationAndShardingKeepTheBits) {
  const Bits bits = expect_kept_bits(tokens_, config_of);
  if (runtime().rank() > 0) return;
  const std::vector<double>& history = bits.second.at(maxima);
  ASSERT_EQ(history.size(), 4 * tensors);
  for (const double maximum : history) EXPECT_GT(maximum, 0);
}

/// As for bf16 (test_mixed.cpp): another order of sums changes the last bit of a bf16 number, and
/// that may change its fp8 code, by 2^-3 of itself; sums over many such numbers average it out.
TEST_F(Fp8Training, LayoutsAgreeToTheRoundingOfBf16) {
  const int ranks = runtime().ranks();
  if (ranks < 2 || ranks > 4) GTEST_SKIP() << "for 2 to 4 ranks";
  const auto self = grid::Communicator::self();
  const Trace alone = Rig(config_of({}, 1), tokens_, *self).run(1, 6);
  std::vector<std::vector<std::string>> layouts{{}};
  if (ranks == 4) {  // the model has three heads
    layouts.push_back({"parallel.tensor=2", "parallel.pipeline=2"});
    layouts.push_back({"parallel.tensor=2", "parallel.sequence_parallel=true"});
  } else {
    layouts.push_back({text("parallel.tensor=", ranks)});
    layouts.push_back({text("parallel.tensor=", ranks), "parallel.sequence_parallel=true"});
  }
  for (const auto& layout : layouts) {
    const Trace trace = Rig(config_of(layout), tokens_).run(1, 6);
    constexpr double unit = 1.0 / 512;
    for (std::size_t i = 0; i < trace.losses.size(); ++i) {
      const std::string where = text("step ", i + 1, " of ", join(layout, " "));
      EXPECT_NEAR(trace.losses[i], alone.losses[i], unit * alone.losses[i]) << where;
      EXPECT_NEAR(trace.norms[i], alone.norms[i], 8 * unit * alone.norms[i]) << where;
    }
  }
}

/// Initial weights, and the first layer's input in the first step, have the same bits on all
/// layouts. Their maxima are those of whole tensors: of all tensor ranks, micro-batches and
/// replicas.
TEST_F(Fp8Training, MaximaCoverWholeTensors) {
  const int ranks = runtime().ranks();
  const auto first_row = [&](Rig& rig, grid::Communicator& world) {
    rig.run(1, 1);
    const auto arrays = whole_arrays(*rig.engine, world);
    return runtime().rank() == 0 ? arrays.at(maxima) : std::vector<double>();
  };
  const auto self = grid::Communicator::self();
  Rig alone(config_of({}, 1), tokens_, *self);
  const std::vector<double> expected = first_row(alone, *self);
  for (const auto& layout :
       {std::vector<std::string>{}, {"parallel.tensor=2"}, {"parallel.pipeline=2"}}) {
    if (!layout.empty() && ranks % 2 != 0) continue;
    Rig rig(config_of(layout), tokens_);
    const std::vector<double> found = first_row(rig, runtime().world());
    for (std::size_t i = 0; i < found.size() && i < tensors; ++i) {
      if (i > 0 && i % 3 != 1) continue;
      EXPECT_EQ(found[i], expected[i]) << i << " of " << join(layout, " ");
    }
  }
}

/// On the same layout, and where there are ranks for it, on stages instead of one.
TEST_F(Fp8Training, RestartContinuesBitForBit) {
  const int ranks = runtime().ranks();
  Rig whole(config_of({}), tokens_);
  whole.run(1, 5);  // more steps than the history has
  const std::string directory = shared_folder(folder_);
  save(*whole.engine, directory, 5);
  const Trace expected = whole.run(6, 9);
  const auto arrays = whole_arrays(*whole.engine, runtime().world());
  const checkpoint::Reader reader(directory + "/step_00000005");
  {
    Rig second(config_of({}), tokens_);
    second.engine->load(reader);
    EXPECT_EQ(second.run(6, 9), expected);
    EXPECT_EQ(whole_arrays(*second.engine, runtime().world()), arrays);
  }
  if (ranks != 2) return;
  // Two replicas, then two stages: both continue as one rank does with the same checkpoint.
  const auto self = grid::Communicator::self();
  Rig alone(config_of({}, 1), tokens_, *self);
  alone.engine->load(reader);
  Rig staged(config_of({"parallel.pipeline=2"}), tokens_);
  staged.engine->load(reader);
  EXPECT_EQ(staged.run(6, 9), alone.run(6, 9));
}

/// Checkpoints of bf16 hold no maxima, and bf16 ignores them.
TEST_F(Fp8Training, ContinuesFromAndToBf16Checkpoints) {
  const std::string where = shared_folder(folder_);
  const std::string bf16 = "precision.products=compute";
  Rig plain(config_of({bf16}), tokens_);
  plain.run(1, 2);
  save(*plain.engine, where + "_bf16", 2);
  Rig rounded(config_of({}), tokens_);
  rounded.run(1, 1);  // a history that the checkpoint replaces by none
  rounded.engine->load(checkpoint::Reader(where + "_bf16/step_00000002"));
  const auto fresh = whole_arrays(*rounded.engine, runtime().world());
  if (runtime().rank() == 0) {
    EXPECT_EQ(fresh.at(maxima), std::vector<double>(4 * tensors, 0.0));
  }
  rounded.run(3, 4);
  save(*rounded.engine, where + "_fp8", 4);
  Rig back(config_of({bf16}), tokens_);
  back.engine->load(checkpoint::Reader(where + "_fp8/step_00000004"));
  EXPECT_LT(back.run(5, 8).losses.back(), 6);
}

/// Row (s − 1) mod history holds step s, and the latest steps are kept.
TEST_F(Fp8Training, HistoryOfAnotherLengthKeepsTheLatestSteps) {
  Rig first(config_of({}), tokens_);
  first.run(1, 6);
  const std::string directory = shared_folder(folder_);
  save(*first.engine, directory, 6);
  const auto stored = whole_arrays(*first.engine, runtime().world());
  for (const std::int64_t rows : {3, 7}) {
    Rig second(config_of({text("precision.fp8_history=", rows)}), tokens_);
    second.engine->load(checkpoint::Reader(directory + "/step_00000006"));
    const auto found = whole_arrays(*second.engine, runtime().world());
    if (runtime().rank() > 0) continue;
    const auto row_of = [](const std::vector<double>& all, std::int64_t row) {
      return std::vector<double>(all.begin() + row * tensors, all.begin() + (row + 1) * tensors);
    };
    const std::int64_t kept = std::min<std::int64_t>(rows, 4);
    for (std::int64_t s = 6; s > 6 - kept; --s)
      EXPECT_EQ(row_of(found.at(maxima), (s - 1) % rows), row_of(stored.at(maxima), (s - 1) % 4))
          << "step " << s << " of " << rows;
    for (std::int64_t s = 6 - kept; s > 6 - rows; --s)
      EXPECT_EQ(row_of(found.at(maxima), (s - 1 + rows) % rows), std::vector<double>(tensors, 0.0));
  }
}

/// Evaluation rounds with the scales of the last step, and notes nothing.
TEST_F(Fp8Training, EvaluationDoesNotChangeTheRun) {
  const data::Windows windows(tokens_, 32);
  const auto run = [&](bool evaluates) {
    Rig rig(config_of({}), tokens_);
    rig.run(1, 3);
    if (evaluates) {
      EXPECT_GT(rig.engine->evaluate(windows, 12, std::vector<std::int32_t>(257, 1)).tokens().nats,
                0);
    }
    const Trace trace = rig.run(4, 6);
    return std::pair{trace, whole_arrays(*rig.engine, runtime().world())};
  };
  EXPECT_EQ(run(true), run(false));
}

/// 200 steps on text, as test_mixed.cpp compares bf16 with fp32. At a learning rate of 1e-3 all
/// small differences grow in the plateau after step 80, those of bf16 from fp32 as well.
TEST(Fp8OnText, LossesStayWithinOnePercentOfBf16) {
  if (runtime().ranks() > 1) GTEST_SKIP() << "one rank says it all";
  std::ifstream in(trireme::testing::source_folder() + "/LICENSE");
  const std::string content{std::istreambuf_iterator<char>(in), {}};
  const TemporaryFolder folder;
  data::TokenFileWriter writer(folder.file("text.h5"), "bytes", 257);
  std::vector<std::int32_t> ids;
  for (const char c : content) ids.push_back(static_cast<unsigned char>(c));
  writer.append(ids);
  writer.end_document(static_cast<std::int64_t>(ids.size()));
  writer.commit("LICENSE");
  const data::TokenFile tokens(folder.file("text.h5"));
  const auto means = [&](const std::string& products, const std::string& algorithm) {
    Rig rig(small_config(
                8, 4, 1,
                {"precision.compute=bf16", "precision.products=" + products,
                 "precision.fp8_algorithm=" + algorithm, "model.sequence=32", "model.hidden=48",
                 "model.feed_forward=192", "optimizer.learning_rate=3e-4", "run.steps=200"}),
            tokens);
    const Trace trace = rig.run(1, 200);
    std::vector<double> of_steps;
    for (std::size_t i = 0; i < 200; i += 20)
      of_steps.push_back(std::accumulate(trace.losses.begin() + static_cast<std::ptrdiff_t>(i),
                                         trace.losses.begin() + static_cast<std::ptrdiff_t>(i + 20),
                                         0.0) /
                         20);
    return of_steps;
  };
  const auto wide = means("compute", "max");
  EXPECT_LT(wide.back(), 0.8 * wide.front()) << "it learns";
  for (const char* algorithm : {"max", "most_recent"}) {
    const auto narrow = means("fp8", algorithm);
    EXPECT_NE(narrow, wide);
    double largest = 0;
    for (std::size_t i = 0; i < wide.size(); ++i) {
      EXPECT_NEAR(narrow[i], wide[i], 0.01 * wide[i]) << algorithm << ", from step " << 20 * i + 1;
      largest = std::max(largest, std::abs(narrow[i] / wide[i] - 1));
    }
    RecordProperty(text("largest_difference_", algorithm), text(largest));
    std::printf("fp8, %s: at most %.3f %% from bf16, last mean %.4f of %.4f\n", algorithm,
                100 * largest, narrow.back(), wide.back());
  }
}

}  // namespace
}  // namespace trireme::train
