#include <trireme/plan/choices.hpp>

#include "support/imitated_transport.hpp"
#include "support/training.hpp"
#include "support/whole_arrays.hpp"

#include <gtest/gtest.h>

/// Training whose messages go by a transport with NCCL's rules: programs are lowered for ordered
/// groups, nothing is buffered, and results are there behind a wait only.
namespace trireme::train {
namespace {

using namespace trireme::testing;

class TransportTest : public ::testing::Test {
 protected:
  using Arrays = std::map<std::string, std::vector<double>>;
  using Overrides = std::vector<std::string>;

  void SetUp() override {
    if (!can_imitate_nccl) GTEST_SKIP() << "the imitated transport moves the memory of hosts";
  }

  /// 9 layers for up to 12 stages, or 4 for at most 4 stages.
  static deck::Config config(Overrides overrides, int layers = 9) {
    overrides.push_back(text("model.layers=", layers));
    for (const char* size : {"model.heads=6", "model.sequence=13"}) overrides.emplace_back(size);
    return small_config(12, 1, runtime().ranks(), overrides);
  }

  /// Three steps, with an evaluation of many micro-batches between them.
  std::pair<Trace, Arrays> outcome(const deck::Config& c, bool imitated) {
    Rig rig(c, tokens_, runtime().world(), imitated ? imitate_nccl : grid::TransportFactory{},
            imitated ? with_nccl() : installation::this_machine());
    EXPECT_EQ(rig.grid().communicator(Axis::pipeline).ordered_groups(),
              imitated && c.parallel.pipeline > 1);
    Trace trace = rig.run(1, 2);
    const data::Windows windows(tokens_, c.model.text_tokens());
    const std::vector<std::int32_t> bytes(257, 1);
    trace.losses.push_back(rig.engine->evaluate(windows, 17, bytes).tokens().nats);
    trace.losses.push_back(rig.run(3, 3).losses[0]);
    return {trace, whole_arrays(*rig.engine, runtime().world())};
  }

  void expect_the_same_bits(const Overrides& layout, int layers = 9) {
    SCOPED_TRACE(join(layout, " "));
    const auto expected = outcome(config(layout, layers), false);
    const auto found = outcome(config(layout, layers), true);
    if (runtime().rank() > 0) return;
    EXPECT_EQ(found.first, expected.first);
    EXPECT_EQ(found.second, expected.second);
  }

  TemporaryFolder folder_;
  data::TokenFile tokens_{write_tokens(folder_, 20000)};
};

TEST_F(TransportTest, GivesTheSameBitsOnEverySchedule) {
  const std::string pipeline = text("parallel.pipeline=", runtime().ranks());
  expect_the_same_bits({pipeline});
  expect_the_same_bits({pipeline, "parallel.schedule=gpipe"});
  expect_the_same_bits({pipeline, "parallel.schedule=zb-h1", "model.tied_embeddings=false"});
  expect_the_same_bits({pipeline, "model.shared_layers=2"});
  const std::string shared = "parallel.vocabulary=pipeline";
  expect_the_same_bits({pipeline, shared});
  expect_the_same_bits({pipeline, shared, "parallel.schedule=gpipe", "precision.compute=bf16"});
  expect_the_same_bits(
      {pipeline, shared, "parallel.schedule=zb-h1", "model.tied_embeddings=false"});
  expect_the_same_bits({pipeline, "parallel.schedule=interleaved", "parallel.chunks=2"});
  expect_the_same_bits({pipeline, "parallel.schedule=zb-v"});
  expect_the_same_bits({pipeline, "parallel.schedule=dualpipe-v"});
  expect_the_same_bits({pipeline, "parallel.schedule=interleaved", "parallel.chunks=3",
                        "model.family=bert", "model.vocabulary=261", "precision.compute=bf16"});
}

TEST_F(TransportTest, GivesTheSameBitsOnTheOtherAxes) {
  const int ranks = runtime().ranks();
  const std::string tensor = text("parallel.tensor=", ranks);
  const std::string context = text("parallel.context=", ranks);
  std::vector<Overrides> layouts{
      {"parallel.shard=optimizer", "precision.compute=bf16"},
      {"parallel.shard=weights", text("batch.global=", ranks)},
      {"optimizer.kind=lamb", "parallel.bucket_bytes=20000"},
      {tensor, "parallel.sequence_parallel=true", "batch.global=4"},
      {tensor, "model.family=llama", "model.key_value_heads=2", "batch.global=4"},
      {context, "model.family=llama", "model.key_value_heads=1", "batch.global=4"},
      {context, "model.family=bert", "model.vocabulary=261", "batch.global=4"},
      {"model.family=gpt_oss", "experts.number=5", text("parallel.expert=", ranks)},
      {"model.family=mixtral", "experts.number=5", text("parallel.expert=", ranks),
       "parallel.shard=weights", "precision.compute=bf16"}};
  if (ranks == 4)
    for (const Overrides& layout :
         std::vector<Overrides>{{"parallel.tensor=2", "parallel.pipeline=2"},
                                {"parallel.tensor=2", "parallel.pipeline=2",
                                 "parallel.vocabulary=pipeline", "parallel.sequence_parallel=true"},
                                {"parallel.tensor=2", "parallel.pipeline=2",
                                 "parallel.schedule=v-min", "parallel.order=pipeline"},
                                {"parallel.pipeline=2", "parallel.schedule=interleaved",
                                 "parallel.chunks=2", "precision.compute=fp16"}})
      layouts.push_back(layout);
  for (const Overrides& layout : layouts) expect_the_same_bits(layout, 4);
}

TEST_F(TransportTest, PlannedScratchFitsEverySumOfAStep) {
  const int ranks = runtime().ranks();
  for (const std::vector<std::string>& layout :
       std::vector<Overrides>{{"parallel.shard=optimizer"},
                              {"parallel.shard=weights", text("batch.global=", ranks)},
                              {"parallel.bucket_bytes=20000"},
                              {"model.family=mixtral", "experts.number=5",
                               "parallel.bucket_bytes=20000", text("parallel.expert=", ranks)},
                              {"model.family=mixtral", "experts.number=5", "parallel.shard=weights",
                               text("parallel.expert=", ranks == 4 ? 2 : 1)},
                              {text("parallel.tensor=", ranks)},
                              {text("parallel.context=", ranks), "model.family=bert",
                               "model.vocabulary=261", "parallel.bucket_bytes=20000"},
                              {text("parallel.pipeline=", ranks), "precision.compute=bf16"},
                              {text("parallel.pipeline=", ranks), "precision.compute=bf16",
                               "parallel.vocabulary=pipeline"}}) {
    SCOPED_TRACE(join(layout, " "));
    const deck::Config c = config(layout);
    const plan::Machine machine = with_nccl();
    Rig rig(c, tokens_, runtime().world(), imitate_nccl, machine);
    const auto row = [](const std::vector<plan::MemoryRow>& rows) {
      for (const plan::MemoryRow& r : rows)
        if (r.what == "reductions") return r.bytes;
      return Bytes{0};
    };
    const auto architecture = architecture::describe(c.model);
    const auto at = rig.grid().coordinates();
    const auto shard = architecture::make_shard(architecture, c.parallel, at);
    const Bytes planned =
        row(plan::training_memory(c, architecture, shard,
                                  plan::training_needs(plan::step_programs(
                                      c, machine))[static_cast<std::size_t>(at[Axis::pipeline])],
                                  machine));
    EXPECT_EQ(row(rig.engine->memory()), planned);
    const bool sums = c.parallel.pipeline == 1 || shard.has_embedding() || shard.has_head() ||
                      shard.shares_vocabulary();
    EXPECT_EQ(planned > 0, ranks > 1 && sums);
    rig.run(1, 2);
    EXPECT_EQ(row(rig.engine->memory()), planned) << "a sum was larger than planned";
  }
}

}  // namespace
}  // namespace trireme::train
