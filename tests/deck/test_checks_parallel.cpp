// Errors of contradictory keys of [parallel].
#include <trireme/base/check.hpp>
#include <trireme/deck/parallel_checks.hpp>

#include <gtest/gtest.h>

#include "deck/example.hpp"

namespace trireme::deck {
namespace {

TEST(Checks, TensorMustNotExceedTheHeads) {
  const std::string message = mistakes_of(example, {"model.heads=4", "parallel.tensor=5"});
  expect_contains(message,
                  "[parallel] tensor = 5 (command line) is larger than [model] heads = 4 (command "
                  "line); choose a tensor of at most 4");
}

TEST(Checks, EachContextRankNeedsAToken) {
  expect_contains(mistakes_of(example, {"model.sequence=8", "parallel.context=9"}),
                  "[parallel] context = 9 (command line) is larger than [model] sequence = 8 "
                  "(command line); choose a context of at most 8");
  expect_contains(
      mistakes_of(example,
                  {"model.sequence=8", "batch.micro=1", "parallel.context=3", "parallel.tensor=3"}),
      "[parallel] tensor = 3 (command line) is larger than the 2 tokens of a micro-batch, [batch] "
      "micro = 1 (command line) · [model] sequence = 8 (command line) / [parallel] context = 3 "
      "(command line); choose a tensor of at most 2");
}

TEST(Checks, ContextExcludesFp8AndAutomaticLayouts) {
  expect_contains(mistakes_of(example, {"parallel.context=2", "parallel.layout=auto"}),
                  "[parallel] context = 2 (command line) cannot be combined with [parallel] layout "
                  "= \"auto\" (command line); choose context = 1, or layout = \"given\"");
  expect_contains(mistakes_of(example, {"parallel.context=2", "precision.products=fp8",
                                        "precision.compute=bf16"}),
                  "[parallel] context = 2 (command line) cannot be combined with [precision] "
                  "products = \"fp8\" (command line); choose context = 1, or products = "
                  "\"compute\"");
}

TEST(Checks, SharedVocabularyNeedsOneStagePerRank) {
  const auto mistakes = [](std::vector<std::string> overrides) {
    overrides.insert(overrides.end(), {"parallel.vocabulary=pipeline", "parallel.pipeline=2"});
    return mistakes_of(example, overrides);
  };
  const std::string shared =
      "[parallel] vocabulary = \"pipeline\" (command line) cannot be combined with ";
  for (const char* schedule : {"interleaved", "zb-v", "auto"})
    expect_contains(mistakes({text("parallel.schedule=", schedule),
                              schedule == std::string("interleaved") ? "parallel.chunks=2"
                                                                     : "parallel.recompute=none"}),
                    text(shared, "[parallel] schedule = \"", schedule,
                         "\" (command line); choose schedule = \"gpipe\", \"1f1b\" or \"zb-h1\", "
                         "or vocabulary = \"stage\""));
  expect_contains(mistakes({"parallel.context=2"}),
                  shared + "[parallel] context = 2 (command line); choose context = 1");
  expect_contains(mistakes({"parallel.layout=auto"}),
                  shared + "[parallel] layout = \"auto\" (command line); choose layout");
  expect_contains(mistakes({"model.family=bert"}),
                  shared + "[model] family = \"bert\" (command line); choose family");
  expect_contains(mistakes({"model.scaled_logits=true"}),
                  shared +
                      "[model] scaled_logits = true (command line); choose scaled_logits = "
                      "false");
  EXPECT_TRUE(
      parse_deck(example, "a.toml", {"parallel.vocabulary=pipeline", "parallel.schedule=zb-v"})
          .config.parallel.vocabulary == VocabularyPlacement::pipeline)
      << "one pipeline rank shares nothing";
}

TEST(Checks, ChunksAndProgramsNeedTheirSchedules) {
  expect_contains(
      mistakes_of(example, {"parallel.schedule=interleaved"}),
      "[parallel] schedule = \"interleaved\" (command line) needs 2 chunks or more, not [parallel] "
      "chunks = 1 (default)");
  expect_contains(
      mistakes_of(example, {"parallel.schedule=1f1b", "parallel.chunks=2"}),
      "[parallel] chunks = 2 (command line) applies to the schedules interleaved, auto and file");
  expect_contains(mistakes_of(example, {"parallel.schedule=file"}),
                  "set program to the path of a program file");
  expect_contains(mistakes_of(example, {"parallel.program=a.txt"}), "or leave program out");
  EXPECT_EQ(parse_deck(example, "a.toml", {"parallel.schedule=zb-v"}).config.parallel.chunks, 2);
  expect_contains(mistakes_of(example, {"parallel.schedule=v-min", "parallel.chunks=3"}),
                  "[parallel] schedule = \"v-min\" (command line) has 2 chunks, not [parallel] "
                  "chunks = 3 (command line); leave chunks out");
}

TEST(Checks, PlacementMustMatchTheSchedule) {
  const auto placement_of = [](const std::vector<std::string>& overrides) {
    return parse_deck(example, "a.toml", overrides).config.parallel.stage_map().placement;
  };
  EXPECT_EQ(placement_of({}), StagePlacement::round_robin);
  EXPECT_EQ(placement_of({"parallel.schedule=v-half"}), StagePlacement::v);
  EXPECT_EQ(placement_of({"parallel.schedule=v-half", "parallel.placement=v"}), StagePlacement::v);
  EXPECT_EQ(placement_of({"parallel.schedule=file", "parallel.program=a.program",
                          "parallel.chunks=4", "parallel.placement=v"}),
            StagePlacement::v);
  expect_contains(
      mistakes_of(example,
                  {"parallel.schedule=interleaved", "parallel.chunks=2", "parallel.placement=v"}),
      "[parallel] placement = \"v\" (command line) does not apply to [parallel] schedule = "
      "\"interleaved\" (command line); leave placement out, or choose schedule = \"file\"");
  expect_contains(mistakes_of(example, {"parallel.layout=auto", "parallel.placement=v"}),
                  "cannot be combined with [parallel] layout = \"auto\" (command line)");
}

TEST(Checks, SearchedScheduleAcceptsAnyChunksAndOneSourceOfTimes) {
  const auto placement_of = [](const std::vector<std::string>& overrides) {
    return parse_deck(example, "a.toml", overrides).config.parallel.stage_map().placement;
  };
  const std::string searched = "parallel.schedule=auto";
  EXPECT_EQ(placement_of({searched}), StagePlacement::round_robin);
  EXPECT_EQ(placement_of({searched, "parallel.chunks=2"}), StagePlacement::v);
  EXPECT_EQ(placement_of({searched, "parallel.chunks=3"}), StagePlacement::round_robin);
  EXPECT_EQ(placement_of({searched, "parallel.chunks=2", "parallel.placement=round_robin"}),
            StagePlacement::round_robin);
  const std::string timeline = "parallel.timeline=t.jsonl";
  parse_deck(example, "a.toml", {searched, timeline});
  expect_contains(mistakes_of(example, {timeline}),
                  "[parallel] timeline = \"t.jsonl\" (command line) does not apply to [parallel] "
                  "schedule = \"1f1b\"");
  expect_contains(mistakes_of(example, {searched, timeline, "parallel.machine=m.toml"}),
                  "because both give times; leave one of them out");
  expect_contains(mistakes_of(example, {searched, "parallel.recompute=auto"}),
                  "because each depends on the other; choose the recomputation or the schedule");
  expect_contains(mistakes_of(example, {searched, "parallel.layout=auto"}),
                  "because it compares named schedules; choose layout = \"given\", or remove "
                  "schedule");
}

TEST(Checks, OverlappingStepsExcludeOneVersionOfWeights) {
  const std::string overlaps = "parallel.schedule=2bw";
  EXPECT_TRUE(parse_deck(example, "a.toml", {overlaps}).config.parallel.overlaps_steps());
  const std::string says = "[parallel] schedule = \"2bw\" (command line) cannot be combined with ";
  expect_contains(mistakes_of(example, {overlaps, "parallel.offload=optimizer"}),
                  says + "[parallel] offload = \"optimizer\" (command line); choose schedule = " +
                      "\"1f1b\", or offload = \"none\"");
  expect_contains(mistakes_of(example, {overlaps, "run.audit_every=5"}),
                  says + "[run] audit_every = 5");
  expect_contains(mistakes_of(example, {overlaps, "parallel.shard=weights"}),
                  says + "[parallel] shard = \"weights\" (command line); choose schedule = " +
                      "\"1f1b\", or shard = \"gradients\"");
  expect_contains(mistakes_of(example, {overlaps, "model.shared_layers=1"}),
                  says + "[model] shared_layers = 1");
  expect_contains(
      mistakes_of(example, {overlaps, "precision.compute=bf16", "precision.products=fp8"}),
      says + "[precision] products = \"fp8\"");
  expect_contains(mistakes_of(example, {overlaps, "parallel.chunks=2"}),
                  "applies to the schedules interleaved, auto and file");
  expect_contains(mistakes_of(example, {overlaps, "parallel.layout=auto"}),
                  "which delays gradients and so changes losses");
}

TEST(Checks, AuditsNeedUndividedWeightsAndGradients) {
  for (const char* shard : {"gradients", "weights"})
    expect_contains(
        mistakes_of(example, {text("parallel.shard=", shard), "run.audit_every=5"}),
        text("[run] audit_every = 5 (command line) cannot be combined with [parallel] shard = \"",
             shard, "\" (command line)"));
  EXPECT_EQ(parse_deck(example, "a.toml", {"parallel.shard=optimizer", "run.audit_every=5"})
                .config.parallel.shard,
            Sharding::optimizer);
}

TEST(Checks, OverlappingStepsNeedAMicroBatchForEachRank) {
  Deck deck = parse_deck(
      example, "a.toml",
      {"parallel.schedule=2bw", "parallel.pipeline=3", "batch.global=4", "batch.micro=2"});
  try {
    resolve_parallel(deck, 3);
    ADD_FAILURE() << "2 micro-batches for 3 ranks";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what())
                  .find("needs as many micro-batches in a step as pipeline ranks, but a batch of 4 "
                        "samples with [batch] micro = 2 (command line)"),
              std::string::npos)
        << error.what();
  }
  deck.config.batch.global = 6;
  resolve_parallel(deck, 3);
}

TEST(Checks, TheNoiseScaleNeedsGradientsOfFirstMicroBatches) {
  const std::string noise = "run.gradient_noise_scale=true";
  const std::string named = "[run] gradient_noise_scale = true (command line) ";
  expect_contains(mistakes_of(example, {noise, "batch.global=4", "batch.micro=4"}),
                  named +
                      "compares micro-batches with batches of several, but a batch of 4 samples is "
                      "one of [batch] micro = 4 (command line); choose a smaller micro or a larger "
                      "batch");
  for (const auto& [key, remedy] : {std::pair{"parallel.context=2", "context = 1"},
                                    {"parallel.schedule=2bw", "schedule = \"1f1b\""},
                                    {"model.shared_layers=1", "shared_layers = 0"},
                                    {"run.audit_every=5", "audit_every = 0"}})
    expect_contains(mistakes_of(example, {noise, key}),
                    text("; choose ", remedy, " or gradient_noise_scale = false"));
}

TEST(Checks, LocalTrainingRejectsIncompatibleKeys) {
  const std::string workers = "local.workers=4";
  for (const auto& [key, remedy] :
       {std::pair{"parallel.schedule=2bw", "schedule = \"1f1b\""},
        {"parallel.layout=auto", "layout = \"given\""},
        {"precision.products=fp8", "products = \"compute\""},
        {"run.audit_every=5", "audit_every = 0"},
        {"run.gradient_noise_scale=true", "gradient_noise_scale = false"},
        {"checkpoint.local_every=5", "local_every = 0"},
        {"parallel.strategy=server", "strategy = \"all_reduce\""}})
    expect_contains(mistakes_of(example, {workers, key}),
                    text("; choose ", remedy, ", or workers = 1"));
  expect_contains(mistakes_of(example, {workers, "local.inner_steps=5", "local.fragments=6"}),
                  "[local] fragments = 6 (command line) is larger than [local] inner_steps = 5 "
                  "(command line); choose at most 5 fragments");
  expect_contains(
      mistakes_of(example, {workers, "local.inner_steps=10", "local.fragments=3", "local.delay=4"}),
      "[local] delay = 4 (command line) is larger than [local] inner_steps = 10 (command line) / "
      "[local] fragments = 3 (command line) = 3, the steps between two fragments; choose a delay "
      "of at most 3");
}

TEST(Checks, WorkersNeedEqualRanksAndSamples) {
  const auto mistake = [](const char* workers, const char* global, std::int64_t ranks) {
    Deck deck = parse_deck(example, "a.toml", {workers, global, "batch.micro=1"});
    try {
      resolve_parallel(deck, ranks);
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(mistake("local.workers=4", "batch.global=12", 6),
            "[local] workers = 4 (command line) is neither a multiple nor a divisor of [parallel] "
            "data = 6 (from the number of ranks); choose data of 1, 2 or 4, or 1, 2, 3 or 6 "
            "workers");
  EXPECT_EQ(mistake("local.workers=4", "batch.global=6", 2),
            "a global batch of 6 samples ([batch] global = 6 (command line)) is not a multiple of "
            "[batch] micro = 1 (command line) · [local] workers = 4 (command line) = 4; choose 1, "
            "2, 3 or 6 "
            "workers, or another batch");
  Deck deck =
      parse_deck(example, "a.toml", {"local.workers=4", "batch.global=24", "batch.micro=1"});
  resolve_parallel(deck, 2);
  EXPECT_EQ(deck.config.parallel.worker_groups(), 2);
  EXPECT_EQ(deck.config.parallel.workers_per_rank(), 2);
  EXPECT_EQ(deck.config.parallel.replicas(), 1);
  EXPECT_EQ(deck.config.micro_batches(), 6);
  deck.config.parallel.data = 0;
  resolve_parallel(deck, 12);
  EXPECT_EQ(deck.config.parallel.replicas(), 3);
  EXPECT_EQ(deck.config.micro_batches(), 2);
}

TEST(Checks, ShardGroupsMustBeEqual) {
  Deck deck = parse_deck(example, "a.toml", {"parallel.shard_group=4", "batch.global=12"});
  deck.config.batch.micro = 1;
  try {
    resolve_parallel(deck, 6);
    ADD_FAILURE() << "6 replicas in groups of 4";
  } catch (const UsageError& error) {
    EXPECT_EQ(std::string(error.what()),
              "[parallel] shard_group = 4 (command line) does not divide the 6 replicas of "
              "[parallel] data = 6 (from the number of ranks); choose 1, 2, 3 or 6");
  }
  deck.config.parallel.shard_group = 3;
  resolve_parallel(deck, 6);
  EXPECT_EQ(deck.config.parallel.shard_ranks(), 3);
}

TEST(Checks, EachRankNeedsAnExpert) {
  EXPECT_NO_THROW(parse_deck(example, "a.toml",
                             {"model.family=mixtral", "experts.number=6", "parallel.expert=6"}));
  expect_contains(
      mistakes_of(example, {"model.family=mixtral", "experts.number=6", "parallel.expert=4",
                            "parallel.tensor=2"}),
      "[parallel] expert = 4 (command line) · [parallel] tensor = 2 (command line) = 8 ranks, but "
      "[experts] number = 6 (command line): each rank needs an expert; choose an expert of at most "
      "3");
  expect_contains(
      mistakes_of(example, {"parallel.expert=2"}),
      "[parallel] expert = 2 (command line) divides experts, but the deck has [experts] "
      "number = 0 (default); choose expert = 1, or set number");
}

TEST(Checks, DividedExpertsExcludeComparisonsOfReplicas) {
  const auto mistakes = [](const char* key) {
    return mistakes_of(example, {"model.family=mixtral", "parallel.expert=2", key});
  };
  const std::string expert = "[parallel] expert = 2 (command line) cannot be combined with ";
  expect_contains(mistakes("parallel.strategy=server"),
                  expert +
                      "[parallel] strategy = \"server\" (command line), whose workers do not "
                      "wait for one another; choose strategy = \"all_reduce\", or expert = 1");
  expect_contains(mistakes("run.audit_every=5"),
                  expert +
                      "[run] audit_every = 5 (command line), which compares whole replicas; "
                      "choose audit_every = 0, or expert = 1");
  expect_contains(mistakes("run.gradient_noise_scale=true"),
                  expert +
                      "[run] gradient_noise_scale = true (command line), which needs whole "
                      "gradients of each replica; choose gradient_noise_scale = false, or "
                      "expert = 1");
}

TEST(Checks, GroupsOfExpertsMustBeEqual) {
  const auto mistake = [](std::vector<std::string> overrides, std::int64_t ranks) {
    overrides.insert(overrides.end(), {"model.family=mixtral", "batch.global=24", "batch.micro=1"});
    Deck deck = parse_deck(example, "a.toml", overrides);
    try {
      resolve_parallel(deck, ranks);
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(mistake({"parallel.expert=4"}, 8), "");
  EXPECT_EQ(mistake({"parallel.expert=4", "parallel.context=2"}, 8), "");
  expect_contains(mistake({"parallel.expert=3"}, 8),
                  "[parallel] expert = 3 (command line) does not divide the 8 replicas of "
                  "[parallel] data = 8 (from the number of ranks); choose an expert of 1, 2, 4 or "
                  "8");
  expect_contains(
      mistake({"parallel.expert=4", "parallel.shard=optimizer", "parallel.shard_group=2"}, 8),
      "[parallel] expert = 4 (command line) does not divide [parallel] shard_group = 2 (command "
      "line), so that ranks with the same state would have different experts; choose an expert of "
      "1 or 2, or a shard_group that is a multiple of 4");
}

TEST(Checks, OrderMustNameAxes) {
  expect_contains(mistakes_of(example, {"parallel.order=data, tenor"}),
                  "[parallel] order = \"data, tenor\" (command line): \"tenor\" is not an axis; "
                  "name some of data, pipeline, tensor, context, the fastest first");
  expect_contains(mistakes_of(example, {"parallel.order=data, data"}),
                  "\"data\" is named twice; name each axis at most once");
  const auto axes = parse_deck(example, "a.toml",
                               {"parallel.order=data", "parallel.tensor=2", "parallel.pipeline=2",
                                "parallel.data=3"})
                        .config.parallel.axes();
  EXPECT_EQ(axes.stride(Axis::tensor), 3);
  EXPECT_EQ(axes.stride(Axis::pipeline), 6);
}

TEST(Checks, PartitionListsTheLayersOfEachStage) {
  const auto mistakes = [](std::vector<std::string> overrides) {
    overrides.insert(overrides.end(), {"model.layers=6", "parallel.pipeline=2"});
    return mistakes_of(example, overrides);
  };
  for (const char* correct : {"[4, 2]", "6,0", "[]"})
    EXPECT_NO_THROW(
        parse_deck(example, "a.toml",
                   {"model.layers=6", "parallel.pipeline=2", text("parallel.partition=", correct)}))
        << correct;
  expect_contains(mistakes({"parallel.partition=[4, 1]"}),
                  "[parallel] partition = [4, 1] (command line) has 5 layers in all, but [model] "
                  "layers = 6 (command line); change one of the stages");
  expect_contains(mistakes({"parallel.partition=[2, 2, 2]"}),
                  "[parallel] partition = [2, 2, 2] (command line) has 3 stages, but [parallel] "
                  "pipeline = 2 (command line) · [parallel] chunks = 1 (default) = 2; list 2 "
                  "numbers of layers, or leave partition out");
  expect_contains(mistakes({"parallel.partition=[7, -1]"}),
                  "expected a list of integers from 0 to 65536, found the list [7, -1]");
  expect_contains(mistakes({"parallel.partition=[4, x]"}),
                  "expected a list of integers from 0 to 65536, found \"[4, x]\"");
  expect_contains(mistakes_of(example + "[parallel]\npartition = [1.5, 2]\n"), "an array");
  EXPECT_EQ(parse_deck(example + "[parallel]\npartition = [1, 2]\npipeline = 2\n", "a.toml",
                       {"model.layers=3"})
                .config.parallel.partition,
            (Integers{1, 2}));
}

TEST(Checks, BoundStagesAndRanks) {
  parse_deck(example, "a.toml", {"parallel.pipeline=3"});  // a stage without a layer is legal
  parse_deck(example, "a.toml", {"parallel.pipeline=4096"});
  expect_contains(mistakes_of(example, {"parallel.pipeline=5000"}),
                  "[parallel] pipeline = 5000 (command line) · [parallel] chunks = 1 (default) = "
                  "5000 stages are more than 4096; choose a pipeline of at most 4096");
  expect_contains(
      mistakes_of(example,
                  {"parallel.pipeline=1024", "parallel.chunks=8", "parallel.schedule=interleaved"}),
      "= 8192 stages are more than 4096; choose at most 4 chunks, or a smaller pipeline");
  expect_contains(mistakes_of(example, {"parallel.pipeline=1024", "parallel.data=1048576"}),
                  "are 1073741824 ranks, more than 1048576");
  // The largest values together stay far from the limit of 64 bits.
  expect_contains(mistakes_of(example, {"parallel.pipeline=1048576", "parallel.tensor=1048576",
                                        "parallel.data=1048576", "parallel.chunks=65536",
                                        "parallel.schedule=interleaved"}),
                  "68719476736 stages");
}

TEST(Checks, EachTensorRankNeedsAToken) {
  expect_contains(
      mistakes_of(replaced(example, "sequence = 16", "sequence = 1"),
                  {"parallel.tensor=3", "parallel.sequence_parallel=true"}),
      "[parallel] tensor = 3 (command line) is larger than the 2 tokens of a micro-batch");
  parse_deck(example, "a.toml", {"parallel.sequence_parallel=true"});  // no effect on one rank
}

TEST(ResolveParallel, FillsDataFromTheNumberOfRanks) {
  for (const std::int64_t ranks : {1, 2, 3, 6}) {
    Deck deck = parse_deck(example, "a.toml");
    resolve_parallel(deck, ranks);
    EXPECT_EQ(deck.config.parallel.data, ranks);
  }
}

TEST(ResolveParallel, FactorsMustMultiplyToTheRanks) {
  expect_contains(
      resolve_refusal(4, {"parallel.data=3"}),
      "[parallel] tensor = 1 (default) · [parallel] pipeline = 1 (default) · [parallel] "
      "data = 3 (command line) = 3, but the run has 4 ranks; choose data = 4 (or remove "
      "it), or start 3 ranks");
}

TEST(ResolveParallel, SuggestsValidFactorsForAWrongProduct) {
  expect_contains(
      resolve_refusal(12, {"parallel.tensor=2", "parallel.pipeline=3", "parallel.data=4"}),
      "= 24, but the run has 12 ranks; choose data = 2 (or remove it), or tensor = 1, "
      "or start 24 ranks");
  expect_contains(
      resolve_refusal(12, {"parallel.tensor=2", "parallel.pipeline=5", "parallel.data=2"}),
      "= 20, but the run has 12 ranks; choose pipeline = 3, or start 20 ranks");
  expect_contains(
      resolve_refusal(12, {"parallel.tensor=1", "parallel.pipeline=1", "parallel.data=2"}),
      "choose data = 12 (or remove it), or pipeline = 6, or start 2 ranks");
  expect_contains(
      resolve_refusal(7, {"parallel.tensor=2", "parallel.pipeline=2", "parallel.data=2"}),
      "= 8, but the run has 7 ranks; start 8 ranks");
  expect_contains(resolve_refusal(6, {"parallel.tensor=4"}),
                  "[parallel] tensor = 4 (command line) · [parallel] pipeline = 1 (default) = 4 "
                  "does not divide "
                  "the run's 6 ranks; choose a tensor of 1, 2 or 3, or start 4 or 8 ranks");
  expect_contains(
      resolve_refusal(6, {"parallel.tensor=2", "parallel.pipeline=2"}),
      "does not divide the run's 6 ranks; choose a tensor of 1 or 3, or a pipeline of 1 "
      "or 3, or start 4 or 8 ranks");
  expect_contains(
      resolve_refusal(1, {"parallel.pipeline=2"}),
      "the run's 1 rank; choose a pipeline of 1, or start 2 ranks (mpiexec -n 2 trireme ..., or "
      "srun -n 2 trireme ...)");
}

TEST(ResolveParallel, MicroTimesDataMustDivideGlobal) {
  expect_contains(
      resolve_refusal(4, {}),
      "[batch] global = 12 (a.toml:7) is not a multiple of [batch] micro = 2 (a.toml:8) "
      "· [parallel] data = 4 (from the number of ranks) = 8; start 1, 2, 3 or 6 ranks, or choose a "
      "micro of 1 or 3, "
      "or data of 1, 2, 3 or 6, or a global of 8 or 16");
  expect_contains(
      resolve_refusal(5, {}),
      "; start 1, 2, 3 or 6 ranks, or choose data of 1, 2, 3 or 6, or a global of 10 or 20");
}

TEST(ResolveParallel, BoundsTheMicroBatchesOfAStep) {
  expect_contains(resolve_refusal(1, {"batch.micro=1", "batch.global=1000000"}),
                  "at most 65536 micro-batches");
  expect_contains(
      resolve_refusal(1024, {"batch.micro=1", "batch.global=65536", "parallel.pipeline=1024"}),
      "= 1024 stages with 65536 micro-batches are 67108864 forward passes in a step, more than "
      "524288");
  expect_contains(
      resolve_refusal(1, {"batch.micro=1", "batch.global=65536", "model.sequence=1048576",
                          "model.layers=1024", "model.hidden=40000", "model.heads=8"}),
      "activations in a step of a replica, more than 1e+17");
}

}  // namespace
}  // namespace trireme::deck
