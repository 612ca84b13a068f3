// Errors and sizes of decks with parameter servers.
#include <trireme/deck/parallel_checks.hpp>

#include "deck/example.hpp"

#include <utility>

namespace trireme::deck {
namespace {

std::string mistakes_with_servers(std::vector<std::string> overrides) {
  overrides.emplace_back("parallel.strategy=server");
  return mistakes_of(example, overrides);
}

TEST(ServerChecks, ServersExcludeOtherDivisionsOfTheState) {
  const std::string server =
      "[parallel] strategy = \"server\" (command line) cannot be combined with ";
  for (const auto& [key, remedy] :
       {std::pair{"parallel.layout=auto", "layout = \"given\""},
        {"parallel.shard=weights", "shard = \"none\""},
        {"parallel.schedule=2bw", "schedule = \"1f1b\""},
        {"parallel.context=2", "context = 1"},
        {"parallel.vocabulary=pipeline", "vocabulary = \"stage\""},
        {"parallel.offload=both", "offload = \"none\" or \"activations\""},
        {"model.shared_layers=1", "shared_layers = 0"},
        {"optimizer.kind=muon", "kind = \"adamw\""},
        {"optimizer.kind=adafactor", "kind = \"adamw\""},
        {"run.audit_every=5", "audit_every = 0"},
        {"run.timeline=true", "timeline = false"},
        {"run.gradient_noise_scale=true", "gradient_noise_scale = false"},
        {"checkpoint.local_every=5", "local_every = 0"}}) {
    const std::string message = mistakes_with_servers({key});
    expect_contains(message, server);
    expect_contains(message, text("; choose ", remedy, ", or strategy = \"all_reduce\""));
  }
  expect_contains(mistakes_with_servers({"precision.products=fp8", "precision.compute=bf16"}),
                  "; choose products = \"compute\", or strategy = \"all_reduce\"");
}

TEST(ServerChecks, ServerKeysNeedServers) {
  for (const auto& [key, name] : {std::pair{"parallel.servers=2", "servers = 2"},
                                  {"parallel.staleness=1", "staleness = 1"},
                                  {"parallel.updates=push", "updates = \"push\""},
                                  {"parallel.replay=a.jsonl", "replay = \"a.jsonl\""}})
    expect_contains(mistakes_of(example, {key}),
                    text("[parallel] ", name,
                         " (command line) needs strategy = \"server\", not "
                         "[parallel] strategy = \"all_reduce\" (default); set strategy, or "));
}

TEST(ServerChecks, ReplayNeedsANondeterministicOrder) {
  expect_contains(mistakes_with_servers({"parallel.replay=a.jsonl"}),
                  "[parallel] replay = \"a.jsonl\" (command line) has no effect with [parallel] "
                  "staleness = 0 (default) and [parallel] updates = \"step\" (default), because "
                  "every run then has the same order; leave replay out");
  parse_deck(example, "a.toml",
             {"parallel.strategy=server", "parallel.replay=a.jsonl", "parallel.updates=push"});
}

TEST(ServerChecks, StaleFp16GradientsNeedAConstantLossScale) {
  for (const char* key : {"parallel.staleness=1", "parallel.updates=push"})
    expect_contains(mistakes_with_servers({key, "precision.compute=fp16"}),
                    "needs a constant loss scale, but [precision] loss_scale_interval = 1000 "
                    "(default) changes it; choose loss_scale_interval = 0, or compute = \"bf16\"");
  parse_deck(example, "a.toml", {"parallel.strategy=server", "precision.compute=fp16"});
}

Deck served(const std::vector<std::string>& more) {
  std::vector<std::string> overrides{"parallel.strategy=server"};
  overrides.insert(overrides.end(), more.begin(), more.end());
  return parse_deck(example, "a.toml", overrides);
}

TEST(ServerChecks, WorkersAreTheRemainingRanks) {
  Deck deck = served({"parallel.tensor=2", "parallel.servers=2"});
  resolve_parallel(deck, 10);
  EXPECT_EQ(deck.config.parallel.data, 3);
  EXPECT_EQ(deck.config.parallel.replicas(), 3);
  EXPECT_EQ(deck.config.parallel.ranks(), 10);
  EXPECT_EQ(deck.config.parallel.model_ranks(), 2);
  EXPECT_EQ(deck.config.parallel.axes().size(Axis::data), 5);
}

std::string ranks_mistake(const std::vector<std::string>& more, std::int64_t ranks) {
  Deck deck = served(more);
  try {
    resolve_parallel(deck, ranks);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(ServerChecks, RanksMustFitWorkersAndServers) {
  expect_contains(ranks_mistake({"parallel.tensor=2"}, 3),
                  "[parallel] servers = 1 (default) and one worker, with [parallel] pipeline = 1 "
                  "(default) · [parallel] tensor = 2 (command line), need 4 ranks, but the run has "
                  "3 ranks; start at least 4 ranks (mpiexec -n 4 trireme ...), or choose fewer "
                  "servers");
  expect_contains(ranks_mistake({"parallel.tensor=2"}, 5), "start 4 or 6 ranks");
  expect_contains(ranks_mistake({"parallel.data=2"}, 4),
                  "([parallel] data = 2 (command line) workers + [parallel] servers = 1 (default)) "
                  "= 3, but the run has 4 ranks; start 3 ranks, or choose data = 3");
  expect_contains(ranks_mistake({}, 6), "start ");  // a batch of 12 on 5 workers
  expect_contains(ranks_mistake({}, 6), "4 or 7 ranks");
}

TEST(ServerChecks, StalenessAffectsTraining) {
  const auto effect = [](const std::string& override) {
    const auto found = differences(served({}), served({override}));
    return found.size() == 1 ? found.front().effect : Effect::model;
  };
  EXPECT_EQ(effect("parallel.staleness=2"), Effect::training);
  EXPECT_EQ(effect("parallel.updates=push"), Effect::training);
  EXPECT_EQ(effect("parallel.servers=2"), Effect::none);
}

}  // namespace
}  // namespace trireme::deck
