// Parameter servers without staleness: the bits of all-reduce, in checkpoints and evaluations too.
#include "support/imitated_transport.hpp"
#include "train/checkpoints.hpp"
#include "train/served.hpp"

namespace trireme::train {
namespace {

TEST_F(Served, MatchesAllReduceBitForBit) {
  for (const int servers : {1, 2})
    for (const char* compute : {"fp64", "fp32", "bf16", "fp16"}) {
      Layout layout;
      layout.more = {text("precision.compute=", compute)};
      layout.tied = compute != std::string("bf16");
      expect_the_bits_of_all_reduce(layout, servers);
    }
}

TEST_F(Served, MatchesAllReduceOnTensorAndPipelineRanks) {
  using enum Recompute;
  using enum OptimizerKind;
  const Sharding whole = Sharding::none;
  for (Layout layout :
       {Layout{2, 1, 1, "1f1b", 1, true, true},
        {2, 1, 1, "1f1b", 1, false, false, selective, whole, lamb, Family::llama, 1},
        {2, 1, 1, "1f1b", 1, false, true, none, whole, adamw, Family::qwen3, 2,
         "model.head_size=8"},
        {1, 2, 1, "interleaved", 2, false, true, full, whole, lars},
        {1, 2, 1, "zb-h1", 1, false, false, none, whole, sgd, Family::bert}}) {
    layout.more = {"model.layers=3", "model.sequence=29"};  // four ranks may share two cores
    expect_the_bits_of_all_reduce(layout, 1);
  }
}

TEST_F(Served, MatchesAllReduceForOtherOptimizersAndFrozenWeights) {
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
      save(*first.engine, directory, 3);
      const auto arrays = whole_arrays(*first.engine, runtime().world());
      const Trace expected = first.run(4, 6);
      const checkpoint::Reader reader(directory + "/step_00000003");
      Rig second(config(true, runtime().ranks()), tokens_);
      second.run(1, 1);
      second.engine->load(reader);
      EXPECT_EQ(second.run(4, 6), expected);
      const auto some =
          runtime().world().split(runtime().rank() < workers ? 0 : 1, runtime().rank(), "workers");
      if (runtime().rank() < workers) {  // the same number of replicas gives the same bits
        Rig third(config(false, workers), tokens_, *some);
        third.engine->load(reader);
        EXPECT_EQ(whole_arrays(*third.engine, *some), arrays);
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
    Saver(there, *self, *alone.engine, 0)
        .save({3, 36, "# deck", "", to_values(alone.engine->result().skips, 3)}, false);
    arrays = whole_arrays(*alone.engine, *self);
    expected = alone.run(4, 6);
  }
  runtime().world().barrier("one rank has written the checkpoint");
  std::vector<std::string> keys = numbers;
  for (const std::string& key : served(runtime().ranks() - workers)) keys.push_back(key);
  Rig rig(small_config(12, 1, runtime().ranks(), keys), tokens_);
  rig.engine->load(checkpoint::Reader(where + "/step_00000003"));
  const auto loaded = whole_arrays(*rig.engine, runtime().world());
  const Trace found = rig.run(4, 6);
  if (runtime().rank() > 0) return;
  EXPECT_EQ(loaded, arrays);
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_NEAR(found.losses[i], expected.losses[i], 1e-12 * expected.losses[i]);
}

/// Messages between workers and servers have any order, which a transport does not allow.
TEST_F(Served, MatchesTheBitsWithoutATransport) {
  if (runtime().ranks() < 3 || !can_imitate_nccl) return;
  const bool four = runtime().ranks() == 4;
  std::vector<std::string> keys = served(1, {"model.layers=3", "parallel.bucket_bytes=20000"});
  if (four) keys.emplace_back("parallel.tensor=2");
  const deck::Config config = small_config(12, 1, runtime().ranks(), keys);
  const auto outcome = [&](bool imitated) {
    Rig rig(config, tokens_, runtime().world(), imitated ? imitate_nccl : grid::TransportFactory{},
            imitated ? with_nccl() : installation::this_machine());
    const Trace trace = rig.run(1, 3);
    return std::pair(trace, weights_of(whole_arrays(*rig.engine, runtime().world())));
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
    const Evaluation found = rig.engine->evaluate(windows, 10, bytes);
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

}  // namespace
}  // namespace trireme::train
