#include <trireme/architecture/arrangement.hpp>
#include <trireme/plan/memory_estimate.hpp>
#include <trireme/plan/program.hpp>
#include <trireme/plan/ranks.hpp>
#include <trireme/plan/search.hpp>

#include <gtest/gtest.h>

#include "plan/deck_with.hpp"
#include "plan/machines.hpp"

/// The formulas of the search against the numbers of the plan, for all layouts of several decks.
namespace trireme::plan {
namespace {

using testing::deck_with;

/// The search decides about these keys.
deck::Deck deck_to_estimate(std::vector<std::string> overrides) {
  overrides.insert(overrides.begin(), {"parallel.layout=auto", "model.layers=5", "batch.global=16",
                                       "parallel.bucket_bytes=65536"});
  return deck_with("", overrides);
}

/// By how much an estimate may exceed the exact number: of each bucket one block of the norm in
/// each array of the state, and four buffers of transfers. Buckets of single layers are counted;
/// but other replicas may have most of the layers and most of the embedding and the head.
Bytes allowance(const deck::Config& c, const Machine& machine) {
  const auto a = architecture::describe(c.model);
  const TrainingSizes sizes(c, a, machine);
  const Bytes message = c.batch.micro * c.model.sequence * c.model.hidden * sizes.element();
  const std::int64_t elements = a.parameters();
  const std::int64_t buckets =
      elements * sizes.accumulate() / c.parallel.bucket_bytes + 3 * c.parallel.chunks + 3;
  const Bytes block = norm_block * sizes.accumulate();
  const architecture::StateCounts counts = architecture::state_counts(c.optimizer);
  const std::int64_t states = counts.all + counts.others + (sizes.narrow() ? 1 : 0);
  if (architecture::division_of(c).by_block()) return 2 * (states + 1) * block + 4 * message;
  return (c.parallel.divides_state() ? buckets * block * states : 0) + 4 * message;
}

int compare(const deck::Deck& deck, std::int64_t ranks, const Machine& machine) {
  deck::Config c = deck.config;
  c.parallel.layout = LayoutMode::given;
  const auto a = architecture::describe(c.model);
  MemoryEstimate estimate(c, a, machine, true);
  KnownParts known;
  int layouts = 0, in_a_v = 0, equal = 0;
  SearchSpace(deck, a, ranks, machine).visit([&](const Layout& layout) {
    layout.set(c);
    const schedule::Program program = generated_program(c, machine);
    const auto needs = training_needs({&program, 1});
    const Bytes exact = most_bytes(c, a, needs, machine, true, known);
    const Bytes estimated = estimate.most_bytes(c);
    EXPECT_LE(estimate.least_bytes(c), estimated);
    const Bytes above = allowance(c, machine);
    const TrainingSizes sizes(c, a, machine);
    const Bytes below =  // buffers of transfers alone
        4 * c.batch.micro * c.model.sequence * c.model.hidden * sizes.element();
    EXPECT_LE(estimated, exact + above) << name_of(layout.schedule) << " " << layout.tensor << " "
                                        << layout.pipeline << " " << layout.data;
    EXPECT_GE(estimated, exact - below) << name_of(layout.schedule) << " " << layout.tensor << " "
                                        << layout.pipeline << " " << layout.data;
    ++layouts;
    in_a_v += c.parallel.stage_map().placement == StagePlacement::v ? 1 : 0;
    equal += estimated == exact ? 1 : 0;
  });
  // On devices, NCCL's order of transfers changes the number of their buffers. In a V, programs
  // have other numbers of buffers.
  EXPECT_TRUE(machine.on_device() || 3 * equal > layouts - in_a_v)
      << equal << " of " << layouts - in_a_v
      << "; without shared state and late transfers they are equal";
  return layouts;
}

TEST(MemoryEstimate, MatchesThePlanForGpt) {
  const Machine machine = testing::installation(DeviceKind::host);
  EXPECT_GT(compare(deck_to_estimate({}), 8, machine), 100);
  // Background checkpoints and two shares of local checkpoints are in host memory.
  compare(deck_to_estimate({"run.steps=100", "checkpoint.every=10", "checkpoint.local=disk/%node%",
                            "checkpoint.local_every=5"}),
          4, machine);
}

TEST(MemoryEstimate, MatchesThePlanForNarrowWeightsOnDevices) {
  const Machine machine = testing::machine_of("cuda", "cublaslt", "tensor_cores", "nccl");
  compare(
      deck_to_estimate({"model.family=llama", "model.key_value_heads=2", "precision.compute=bf16"}),
      8, machine);
  compare(deck_to_estimate({"precision.compute=fp16", "parallel.offload=both"}), 4, machine);
}

/// Also within groups of the 8 replicas of a node, and with Muon and Adafactor.
TEST(MemoryEstimate, MatchesThePlanForDividedGradientsAndWeights) {
  const Machine machine = testing::machine_of("cuda", "cublaslt", "tensor_cores", "mpi");
  for (const char* tied : {"model.tied_embeddings=true", "model.tied_embeddings=false"})
    for (const char* shard : {"parallel.shard=gradients", "parallel.shard=weights"}) {
      SCOPED_TRACE(text(tied, " ", shard));
      compare(deck_to_estimate({tied, shard, "parallel.pipeline=1", "batch.micro=1"}), 16, machine);
      for (const char* kind : {"optimizer.kind=muon", "optimizer.kind=adafactor"})
        compare(deck_to_estimate({tied, shard, "parallel.data=2", kind}), 8, machine);
      compare(deck_to_estimate({tied, shard, "parallel.data=2", "optimizer.moments=bf16"}), 8,
              machine);
    }
  compare(deck_to_estimate({"parallel.shard=weights", "adapter.kind=lora"}), 4, machine);
}

/// Layers with and without experts, with constant biases of their choice, which are frozen, and
/// without.
TEST(MemoryEstimate, MatchesThePlanForMuonWithExperts) {
  const Machine machine = testing::machine_of("cuda", "cublaslt", "tensor_cores", "nccl");
  for (const char* shard : {"parallel.shard=none", "parallel.shard=optimizer"})
    for (const char* bias : {"experts.choice_bias=false", "experts.choice_bias=true"}) {
      SCOPED_TRACE(text(shard, " ", bias));
      compare(deck_to_estimate({"model.family=llama", "experts.number=6", "experts.active=2",
                                "experts.feed_forward=32", "experts.first_layer=1", bias, shard,
                                "optimizer.kind=muon"}),
              8, machine);
    }
}

/// Dense layers first, and constant biases, which are frozen.
TEST(MemoryEstimate, MatchesThePlanForDividedWeightsOfExperts) {
  const Machine machine = testing::machine_of("cuda", "cublaslt", "tensor_cores", "nccl");
  compare(deck_to_estimate({"model.family=llama", "experts.number=4", "experts.active=2",
                            "experts.feed_forward=32", "experts.first_layer=2",
                            "experts.choice_bias=true", "parallel.shard=weights"}),
          8, machine);
}

TEST(MemoryEstimate, MatchesThePlanForAnEncoderAndSharedLayers) {
  const Machine machine = testing::installation(DeviceKind::host);
  compare(deck_to_estimate({"model.family=bert", "model.vocabulary=300"}), 4, machine);
  compare(deck_to_estimate({"model.shared_layers=2"}), 4, machine);
}

}  // namespace
}  // namespace trireme::plan
