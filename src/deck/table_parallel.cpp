// The keys of [parallel] and [local].
#include <trireme/deck/entry.hpp>

#include <trireme/base/text.hpp>
#include <trireme/deck/checks.hpp>

namespace trireme::deck {

using Str = std::string;
using Int = std::int64_t;

namespace {

void server_keys(SectionKeys<ParallelConfig>& parallel) {
  parallel
      .choice("strategy", &ParallelConfig::strategy,
              "how replicas share updates: all_reduce (all sum the gradients), or server (servers "
              "hold weights and optimizer state; workers send gradients and fetch weights); see "
              "docs/data_parallelism.md")
      .otherwise(Str("all_reduce"));
  parallel
      .integer(
          "servers", &ParallelConfig::servers,
          "servers in addition to the replicas of parallel.data, for strategy = \"server\"; each "
          "has tensor · pipeline ranks")
      .at_least(1)
      .at_most(ranks_limit)
      .otherwise(Int{1});
  parallel
      .integer("staleness", &ParallelConfig::staleness,
               "maximum number of steps whose updates a worker's weights may lack, for strategy = "
               "\"server\" (Ho et al. 2013)")
      .unit("steps")
      .at_least(0)
      .at_most(1024)
      .otherwise(Int{0});
  parallel
      .choice("updates", &ParallelConfig::updates,
              "gradients in one update of the servers: the gradients of all workers of a step "
              "(step), or of one worker in the order of arrival (push)")
      .otherwise(Str("step"));
  parallel
      .path("replay", &ParallelConfig::replay,
            "recorded order of the servers' updates, to repeat a run with staleness or updates = "
            "\"push\" exactly: the file server_events.jsonl of that run; \"\" means the order in "
            "which messages arrive")
      .otherwise(Str());
}

}  // namespace

void parallel_keys(std::vector<Entry>& out) {
  SectionKeys parallel(out, "parallel", &Config::parallel);
  parallel
      .choice("layout", &ParallelConfig::layout,
              "source of the layout: the deck (given), or a search for the number of ranks of each "
              "job, which chooses tensor, pipeline, data, schedule, chunks, sequence_parallel, "
              "recompute, shard and batch.micro where the deck does not set them (auto); see "
              "docs/layout.md")
      .otherwise(Str("given"));
  parallel
      .path(
          "machine", &ParallelConfig::machine,
          "machine file with the speeds that layout = \"auto\" and schedule = \"auto\" plan with; "
          "\"\" means this installation; `trireme help machine` lists its keys")
      .otherwise(Str());
  const auto size = [&](const char* name, Int ParallelConfig::*field, const char* help) -> Entry& {
    return parallel.integer(name, field, help).unit("ranks").at_least(1).at_most(ranks_limit);
  };
  size("tensor", &ParallelConfig::tensor,
       "ranks that divide each layer among them (tensor parallelism)")
      .otherwise(Int{1});
  size("context", &ParallelConfig::context,
       "ranks that share the tokens of each sample, for long sequences (context parallelism): keys "
       "and values are sent around a ring; at most model.sequence")
      .otherwise(Int{1});
  size("pipeline", &ParallelConfig::pipeline,
       "ranks that divide the layers among them (pipeline parallelism)")
      .otherwise(Int{1});
  size(
      "data", &ParallelConfig::data,
      "replicas that divide the samples of a batch (data parallelism); 0 means the remaining ranks")
      .at_least(0)
      .otherwise(Int{0}, "0: ranks / (tensor · context · pipeline)");
  size("expert", &ParallelConfig::expert,
       "replicas that divide the experts among them (expert parallelism): each has "
       "1 / (expert · tensor) of the experts, and tokens travel to the experts that they chose; "
       "must divide data · context")
      .otherwise(Int{1});
  parallel
      .string("order", &ParallelConfig::order,
              "axes in the order of the ranks, fastest first: neighbours along the first axis are "
              "consecutive ranks; omitted axes follow in the default order")
      .otherwise(Str(), "tensor, context, pipeline, data");
  parallel
      .choice("schedule", &ParallelConfig::schedule,
              "order of the micro-batches' forward and backward passes; auto searches for the "
              "fastest order; 2bw does not wait between steps, and its gradients are one step late")
      .otherwise(Str("1f1b"));
  using schedule::Schedule;
  const auto two_with = [](const Schedule& s) { return s.default_chunks() == 2; };
  const std::string by_default =
      text("2 with ", schedule::schedule_words(two_with), ", otherwise 1");
  const auto from_two = [](const Schedule& s) {
    return !s.has_fixed_chunks() && s.least_chunks == 2;
  };
  const auto any = [](const Schedule& s) { return !s.has_fixed_chunks() && s.least_chunks == 1; };
  const std::string chunks =
      text("stages per pipeline rank: 2 or more with ", schedule::schedule_words(from_two),
           ", any number with ", schedule::schedule_words(any), ", ", by_default);
  parallel.integer("chunks", &ParallelConfig::chunks, chunks.c_str())
      .at_least(1)
      .at_most(65536)
      .derive(
          [](Config& c) {
            c.parallel.chunks = schedule::schedule_of(c.parallel.schedule).default_chunks();
          },
          by_default.c_str());
  parallel
      .integers("partition", &ParallelConfig::partition,
                "layers of each stage, first stage first, such as [9, 8, 8, 7]; [] means stages "
                "whose largest cost is as small as possible, with the head in the last "
                "stage")
      .unit("layers")
      .at_least(0)
      .at_most(65536)
      .otherwise(Integers{}, "[]: by cost");
  parallel
      .path("program", &ParallelConfig::program,
            "file of a hand-written program, for schedule = \"file\"; see docs/schedules.md")
      .otherwise(Str());
  parallel
      .path(
          "timeline", &ParallelConfig::timeline,
          "timeline.jsonl with measured times for schedule = \"auto\", of a run with run.timeline "
          "= true and the same number of stages; \"\" means times by [parallel] machine or by "
          "FLOPs")
      .otherwise(Str());
  parallel
      .choice("placement", &ParallelConfig::placement,
              "pipeline ranks of the stages: round_robin (stage s on rank s mod pipeline), v (odd "
              "chunks in reverse; with schedule = \"auto\" or \"file\"), or auto (the placement of "
              "the schedule; v with schedule = \"auto\" and 2 chunks)")
      .otherwise(Str("auto"));
  parallel
      .choice("vocabulary", &ParallelConfig::vocabulary,
              "ranks that hold the embedding and compute the logits: the ranks of the first and "
              "the last stage (stage), or all pipeline ranks, each with a part of the vocabulary "
              "(pipeline; with the schedules 1f1b, gpipe and zb-h1; Yeung et al. 2024)")
      .otherwise(Str("stage"));
  parallel
      .boolean("sequence_parallel", &ParallelConfig::sequence_parallel,
               "division of norms, dropout and saved activations among tensor ranks, by tokens "
               "(Korthikanti et al. 2022)")
      .otherwise(false);
  parallel
      .choice("recompute", &ParallelConfig::recompute,
              "activations that the backward pass recomputes to save memory: none, norms and "
              "activation functions (selective), whole layers (full), or the choice that costs the "
              "least time within memory_limit (auto)")
      .otherwise(Str("none"));
  parallel
      .bytes("memory_limit", &ParallelConfig::memory_limit,
             "memory per rank on the device or host that runs its kernels, for recompute = "
             "\"auto\" and "
             "schedule = \"auto\"")
      .at_least(0)
      .otherwise(Int{0}, "0: the machine file's memory");
  parallel
      .choice("shard", &ParallelConfig::shard,
              "state that replicas divide among themselves (ZeRO): nothing (none), the "
              "optimizer's state (optimizer), also the sums of gradients (gradients), or also the "
              "weights (weights); see docs/data_parallelism.md")
      .otherwise(Str("none"));
  parallel
      .integer("shard_group", &ParallelConfig::shard_group,
               "number of consecutive replicas, such as the replicas of a node, that divide the "
               "state among themselves (hybrid sharding)")
      .at_least(0)
      .otherwise(Int{0}, "0: all replicas");
  parallel
      .choice("offload", &ParallelConfig::offload,
              "device data kept in host memory: none, the optimizer's state, saved activations, or "
              "both; no effect where kernels run on the host")
      .otherwise(Str("none"));
  parallel
      .choice("transport", &ParallelConfig::transport,
              "transport of messages between devices: NCCL, MPI through host memory, or auto: NCCL "
              "where this installation has it and share_devices is false; no effect where kernels "
              "run on the host")
      .otherwise(Str("auto"));
  parallel
      .boolean("share_devices", &ParallelConfig::share_devices,
               "permission for several ranks to use one device, which is otherwise an error")
      .otherwise(false);
  parallel
      .integer("bucket_bytes", &ParallelConfig::bucket_bytes,
               "largest size of the gradients in one all-reduce")
      .unit("bytes")
      .at_least(1)
      .at_most(std::int64_t{1} << 40)
      .otherwise(Int{16} << 20);
  server_keys(parallel);
}

// The keys of [local].
using Str = std::string;
using Int = std::int64_t;

void local_keys(std::vector<Entry>& out) {
  out.emplace_back("local", "workers", KeyType::integer,
                   "copies of the model that train independently, each on its part of every batch "
                   "(DiLoCo; Douillard et al. 2023); 1 means no local training",
                   Effect::training)
      .in(&Config::parallel, &ParallelConfig::workers)
      .at_least(1)
      .at_most(65536)
      .otherwise(Int{1});
  SectionKeys local(out, "local", &Config::local, Effect::training);
  local
      .integer("inner_steps", &LocalConfig::inner_steps,
               "steps between two outer steps, which combine the weights of the workers")
      .unit("steps")
      .at_least(1)
      .at_most(steps_limit)
      .otherwise(Int{50});
  local
      .choice("outer_optimizer", &LocalConfig::outer_optimizer,
              "update rule of the outer steps, whose gradient is the mean difference between the "
              "shared and the workers' weights: sgd with momentum, or nesterov")
      .otherwise(Str("nesterov"));
  local
      .number("outer_learning_rate", &LocalConfig::outer_learning_rate,
              "learning rate of the outer steps; 1 without momentum is the mean of the workers")
      .above(0)
      .otherwise(0.7);
  local
      .number("outer_momentum", &LocalConfig::outer_momentum,
              "momentum coefficient of the outer steps; 0 means no momentum and no state")
      .from(0)
      .below(1)
      .otherwise(0.9);
  local
      .integer(
          "fragments", &LocalConfig::fragments,
          "parts of the model whose outer steps are at different times; layers are assigned in "
          "turn (Streaming DiLoCo; Douillard et al. 2025); at most inner_steps")
      .at_least(1)
      .at_most(65536)
      .otherwise(Int{1});
  local
      .integer("delay", &LocalConfig::delay,
               "steps during which the differences of a fragment are in flight, until its outer "
               "step; at most inner_steps / fragments")
      .unit("steps")
      .at_least(0)
      .at_most(steps_limit)
      .otherwise(Int{0});
  local
      .number("mixing", &LocalConfig::mixing,
              "share of its own weights that a worker keeps in an outer step")
      .from(0)
      .below(1)
      .derive([](Config& c) { c.local.mixing = c.local.delay > 0 ? 0.5 : 0; },
              "0.5 with a delay, otherwise 0");
  local
      .choice("differences", &LocalConfig::differences,
              "type of the differences that workers send: the type of the updated weights (full), "
              "or bf16")
      .otherwise(Str("full"));
}

}  // namespace trireme::deck
