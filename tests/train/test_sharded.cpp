// [parallel] shard changes no bit of training, of evaluations, or of a restart from a checkpoint of
// another division.
#include "train/checkpoints.hpp"
#include "train/layouts.hpp"

namespace trireme::train {
namespace {

constexpr std::array divisions{Sharding::optimizer, Sharding::gradients, Sharding::weights};

class Sharded : public Layouts {
 protected:
  /// Each division gives the bits of whole arrays. One micro-batch per step besides the usual
  /// number, where a layout has one pipeline rank: gradients are divided then, too.
  void expect_the_same_bits_of_divisions(Layout layout) {
    const int ranks = runtime().ranks();
    const int model = layout.tensor * layout.pipeline * layout.context;
    if (ranks % model != 0 || ranks == model / layout.context) return;
    layout.data = ranks / model;
    for (const bool one_pass : {false, true}) {
      if (one_pass && layout.pipeline > 1) continue;
      const int micro = layout.data == 3 ? 2 : 1;  // as run() has it
      if (one_pass) layout.more.push_back(text("batch.global=", micro * layout.data));
      layout.shard = Sharding::none;
      const Outcome expected = run(layout, runtime().world());
      for (const Sharding shard : divisions) {
        if (shard == Sharding::gradients && !one_pass) continue;  // as `optimizer`
        layout.shard = shard;
        SCOPED_TRACE(layout.name());
        const Outcome found = run(layout, runtime().world());
        if (runtime().rank() > 0) continue;
        EXPECT_EQ(found.trace, expected.trace);
        EXPECT_EQ(found.weights, expected.weights);
      }
      const int replicas = layout.data * layout.context;
      if (replicas <= 2 || replicas % 2 != 0 || (layout.pipeline == 1 && !one_pass)) continue;
      // Pairs of replicas divide the state, and have it all.
      Layout grouped = layout;
      grouped.more.emplace_back("parallel.shard_group=2");
      for (const Sharding shard : divisions) {
        grouped.shard = shard;
        SCOPED_TRACE(grouped.name());
        const Outcome found = run(grouped, runtime().world());
        if (runtime().rank() > 0) continue;
        EXPECT_EQ(found.trace, expected.trace);
        EXPECT_EQ(found.weights, expected.weights);
      }
    }
  }

  static deck::Config config_of(Sharding shard, std::vector<std::string> more = {}) {
    more.push_back(text("parallel.shard=", name_of(shard)));
    more.push_back("parallel.bucket_bytes=20000");
    more.push_back("model.layers=4");
    return small_config(12, 1, runtime().ranks(), more);
  }
};

TEST_F(Sharded, GivesTheSameBitsOnEveryAxis) {
  using enum Recompute;
  using enum OptimizerKind;
  const Sharding whole = Sharding::none;
  const Family g = Family::gpt;
  for (const Layout& layout :
       {Layout{1, 1, 1, "1f1b", 1, false, true},
        {1, 1, 1, "gpipe", 1, false, false, full, whole, lamb, Family::llama, 2},
        {1, 1, 1, "zb-h1", 1, false, true, full, whole, adamw, Family::bert},
        {1, 2, 1, "interleaved", 2, false, true, selective},
        {1, 2, 1, "zb-v", 2, false, true, none, whole, lars},
        {1, 1, 1, "1f1b", 1, false, true, none, whole, muon, Family::llama, 2},
        {2, 1, 1, "1f1b", 1, true, true, full, whole, muon, Family::llama, 1},
        {1, 1, 1, "1f1b", 1, false, true, none, whole, adafactor, Family::llama, 2},
        {2, 1, 1, "1f1b", 1, true, true, full, whole, adafactor, Family::llama, 1},
        {1, 2, 1, "zb-h1", 1, false, false, full},
        {2, 1, 1, "1f1b", 1, true, true, none, whole, lamb, Family::llama, 1},
        {2, 1, 1, "1f1b", 1, false, false, selective, whole, adamw, Family::qwen3, 2,
         "model.head_size=8"},
        {1, 1, 1, "1f1b", 1, false, true, none, whole, sgd, g, 3, "model.shared_layers=2"},
        {1, 1, 1, "1f1b", 1, false, true, none, whole, adamw, g, 3, "", "", 2},
        {1, 2, 1, "1f1b", 1, false, true, none, whole, adamw, g, 3,
         "parallel.vocabulary=pipeline"}})
    expect_the_same_bits_of_divisions(layout);
}

TEST_F(Sharded, GivesTheSameBitsInMixedPrecision) {
  for (const char* compute : {"bf16", "fp16", "fp32"}) {
    Layout layout;
    layout.more = {text("precision.compute=", compute)};
    layout.tied = compute != std::string("bf16");
    expect_the_same_bits_of_divisions(layout);
  }
  for (const char* kind : {"adamw", "lamb", "lion"}) {
    Layout moments;
    moments.more = {"precision.compute=bf16", "optimizer.moments=bf16",
                    text("optimizer.kind=", kind)};
    expect_the_same_bits_of_divisions(moments);
  }
  Layout fp8;
  fp8.more = {"precision.compute=bf16", "precision.products=fp8", "precision.fp8_history=5",
              "model.hidden=48",        "model.head_size=16",     "model.feed_forward=192",
              "model.sequence=64"};
  expect_the_same_bits_of_divisions(fp8);
}

/// Each replica evaluates groups of windows, of which some have none of the last ones.
TEST_F(Sharded, EvaluatesLikeUndividedArrays) {
  const data::Windows windows(tokens_, 23);
  const std::vector<std::int32_t> bytes(257, 1);
  const auto evaluations = [&](Sharding shard) {
    Rig rig(config_of(shard), tokens_);
    rig.run(1, 2);
    std::vector<std::tuple<double, std::int64_t, std::int64_t>> found;
    for (const std::int64_t count : {1, 7, 10}) {
      const Evaluation e = rig.engine->evaluate(windows, count, bytes);
      found.emplace_back(e.tokens().nats, e.tokens().count, e.bytes);
    }
    return std::pair(found, rig.run(3, 4));
  };
  const auto expected = evaluations(Sharding::none);
  for (const Sharding shard : divisions) EXPECT_EQ(evaluations(shard), expected);
}

/// A checkpoint of any division continues with any other, and on one rank, tensor ranks and
/// pipeline ranks. Pairs of a precision, the saving and the loading division are covered; the soak
/// test has all combinations.
TEST_F(Sharded, CheckpointsContinueWithEveryDivision) {
  const std::string where = shared_folder(folder_);
  std::size_t turn = 0;
  for (const auto& [compute, state] : {std::pair{"fp64", "optimizer.kind=adamw"},
                                       {"bf16", "optimizer.kind=adamw"},
                                       {"fp64", "optimizer.kind=adafactor"},
                                       {"bf16", "optimizer.kind=adafactor"},
                                       {"bf16", "optimizer.moments=bf16"},
                                       {"fp32", "optimizer.moments=bf16"}}) {
    const std::string precision = text("precision.compute=", compute);
    ++turn;
    for (const Sharding shard : divisions) {
      const std::string directory = text(where, compute, state, name_of(shard));
      std::vector<std::string> with{precision,
                                    state};  // also pairs of replicas with the same state
      if (runtime().ranks() == 4 && shard != Sharding::gradients)
        with.emplace_back("parallel.shard_group=2");
      Rig whole(config_of(shard, with), tokens_);
      whole.run(1, 2);
      save(*whole.engine, directory, 2);
      const auto arrays = whole_arrays(*whole.engine, runtime().world());
      const Trace expected = whole.run(3, 4);
      const checkpoint::Reader reader(directory + "/step_00000002");
      constexpr std::array loading{Sharding::none, Sharding::optimizer, Sharding::weights};
      for (std::size_t i = 0; i < loading.size(); ++i) {
        // A Latin square: of three precisions in a row each pair of divisions has one.
        if (i != turn % loading.size() && models_per_layout() == 0) continue;
        const Sharding next = loading[i];
        Rig second(config_of(next, {precision, state}), tokens_);
        second.run(1, 1);  // what a window holds is out of date
        second.engine->load(reader);
        EXPECT_EQ(second.run(3, 4), expected) << name_of(shard) << " to " << name_of(next);
      }
      ++turn;
      const auto self = grid::Communicator::self();
      const auto loaded = [&](const std::vector<std::string>& keys, grid::Communicator& ranks) {
        std::vector<std::string> all{precision, state, "model.layers=4"};
        all.insert(all.end(), keys.begin(), keys.end());
        Rig rig(small_config(12, 1, ranks.size(), all), tokens_, ranks);
        rig.engine->load(reader);
        return whole_arrays(*rig.engine, ranks);
      };
      if (runtime().rank() == 0) {
        EXPECT_EQ(loaded({}, *self), arrays);
      }
      runtime().world().barrier("one rank has read the checkpoint");
      if (runtime().ranks() % 2 == 0) {
        EXPECT_EQ(loaded({"parallel.tensor=2", text("parallel.pipeline=", runtime().ranks() / 2)},
                         runtime().world()),
                  arrays);
      }
    }
  }
}

/// With one micro-batch per step, weights and gradients take 1/d, and the windows of two layers and
/// of the ends. A part of a bucket may be one block of the norm longer.
TEST_F(Sharded, DividesTheMemory) {
  if (runtime().ranks() == 1) return;
  const auto bytes = [&](Sharding shard) {
    Rig rig(small_config(runtime().ranks(), 1, runtime().ranks(),
                         {text("parallel.shard=", name_of(shard)), "model.layers=12",
                          "model.hidden=96", "model.feed_forward=384"}),
            tokens_);
    std::map<std::string, double> rows;
    for (const auto& row : rig.engine->memory()) rows[row.what] = static_cast<double>(row.bytes);
    return rows;
  };
  auto whole = bytes(Sharding::none);
  auto divided = bytes(Sharding::weights);
  auto summed = bytes(Sharding::gradients);
  constexpr double layer = 8 * (12 * 96 * 96 + 13 * 96);
  constexpr double ends = 8 * (2 * 257 + 23 + 2) * 96;  // of the tied table two gradients
  constexpr double blocks = 8.0 * norm_block * (12 + 2);
  const double part = 1.0 / runtime().ranks();
  for (const char* what : {"weights", "gradients"}) {
    EXPECT_LT(divided[what], part * whole[what] + 2 * layer + ends + blocks) << what;
    EXPECT_GT(divided[what], part * whole[what] + 2 * layer) << what;
  }
  EXPECT_EQ(summed["gradients"], divided["gradients"]);
  EXPECT_EQ(summed["weights"], whole["weights"]);
}

}  // namespace
}  // namespace trireme::train
