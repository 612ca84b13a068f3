// The key table of decks: one entry per key with its type, range, default and help. [model] and
// [optimizer] are in table_model.cpp and table_optimizer.cpp.
#include <trireme/deck/table.hpp>

#include <trireme/deck/checks.hpp>
#include <trireme/deck/entry.hpp>

namespace trireme::deck {
namespace {

using Str = std::string;
using Int = std::int64_t;

constexpr std::int64_t ramp_limit = std::int64_t{1} << 40, bytes_limit = ramp_limit;

void run_keys(std::vector<Entry>& out) {
  SectionKeys run(out, "run", &Config::run);
  run.path("directory", &RunConfig::directory,
           "folder for metrics, log, resolved deck and checkpoints")
      .effect(Effect::place)
      .nonempty()
      .otherwise(Str("run"));
  run.integer("steps", &RunConfig::steps, "optimizer steps of the whole run")
      .at_least(1)
      .at_most(steps_limit)
      .otherwise(Int{100});
  run.integer("seed", &RunConfig::seed, "seed of initialisation, data order and dropout")
      .effect(Effect::numbers)
      .at_least(0)
      .otherwise(Int{1});
  run.duration("time_limit", &RunConfig::time_limit,
               "wall-clock limit, after which the run saves a checkpoint and stops with exit code "
               "75; 00:00:00 means no limit")
      .otherwise(0.0);
  run.integer("log_every", &RunConfig::log_every, "steps between lines of metrics")
      .unit("steps")
      .at_least(1)
      .at_most(steps_limit)
      .otherwise(Int{10});
  run.integer("evaluate_every", &RunConfig::evaluate_every,
              "steps between evaluations; 0 evaluates only at the end")
      .unit("steps")
      .at_least(0)
      .at_most(steps_limit)
      .otherwise(Int{0});
  run.integer("evaluate_batches", &RunConfig::evaluate_batches,
              "global batches per evaluation; 0 means the whole file")
      .at_least(0)
      .at_most(steps_limit)
      .otherwise(Int{0});
  run.duration("watchdog", &RunConfig::watchdog,
               "time limit of one operation (a pass, a message, an array of a checkpoint), after "
               "which the job reports each rank's operation and ends; 00:00:00 means no limit")
      .otherwise(600.0);
  run.boolean(
         "timeline", &RunConfig::timeline,
         "recording of when each instruction of the last logged step ran; `trireme draw` shows it")
      .otherwise(false);
  run.integer("audit_every", &RunConfig::audit_every,
              "steps between audits, which compute a step's gradients a second time on other ranks "
              "and compare the weights of replicas; 0 means none; see docs/reliability.md")
      .unit("steps")
      .at_least(0)
      .at_most(steps_limit)
      .otherwise(Int{0});
  run.choice("audit", &RunConfig::audit,
             "what follows an audit that finds wrong numbers. stop: exit code 76; repair: the run "
             "continues from the right numbers where they can be told, and stops otherwise")
      .otherwise(Str("stop"));
}

void parallel_keys(std::vector<Entry>& out) {
  SectionKeys parallel(out, "parallel", &Config::parallel);
  parallel
      .choice("layout", &ParallelConfig::layout,
              "given: the keys of this section and batch.micro; auto: those of tensor, pipeline, "
              "data, schedule, chunks, sequence_parallel, recompute, shard and "
              "batch.micro that the deck does not set are chosen for the number of ranks of each "
              "job; see docs/parallelism.md")
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
       "ranks that share each layer (tensor parallelism): neighbours, on one node where possible")
      .otherwise(Int{1});
  size("context", &ParallelConfig::context,
       "ranks that share the tokens of each sample, for long sequences (context parallelism): keys "
       "and values go around among them; at most model.sequence")
      .otherwise(Int{1});
  size("pipeline", &ParallelConfig::pipeline,
       "ranks that divide the layers among them (pipeline parallelism)")
      .otherwise(Int{1});
  size(
      "data", &ParallelConfig::data,
      "replicas that divide the samples of a batch (data parallelism); 0 means the remaining ranks")
      .at_least(0)
      .otherwise(Int{0}, "0: ranks / (tensor · context · pipeline)");
  parallel
      .string("order", &ParallelConfig::order,
              "axes in the order of the ranks, fastest first: neighbours along the first axis are "
              "consecutive ranks; axes that it leaves out follow in the default order")
      .otherwise(Str(), "tensor, context, pipeline, data");
  parallel
      .choice("schedule", &ParallelConfig::schedule,
              "order of the micro-batches' forward and backward passes; auto searches for the "
              "fastest one; 2bw has no flush between steps, and gradients that are one step late")
      .otherwise(Str("1f1b"));
  parallel
      .integer(
          "chunks", &ParallelConfig::chunks,
          "stages per pipeline rank: 2 or more with interleaved, any number with auto and file, "
          "2 with zb-v, v-half and v-min, otherwise 1")
      .at_least(1)
      .at_most(65536)
      .derive([](Config& c) { c.parallel.chunks = is_v_schedule(c.parallel.schedule) ? 2 : 1; },
              "2 with zb-v, v-half and v-min, otherwise 1");
  parallel
      .path("program", &ParallelConfig::program,
            "file of a hand-written program, for schedule = \"file\"; see docs/parallelism.md")
      .otherwise(Str());
  parallel
      .path("timeline", &ParallelConfig::timeline,
            "timeline.jsonl of a run with run.timeline = true and as many stages, for schedule = "
            "\"auto\": its measured times; \"\" means those of [parallel] machine or of the FLOPs")
      .otherwise(Str());
  parallel
      .choice("placement", &ParallelConfig::placement,
              "pipeline ranks of the stages: round_robin (stage s on rank s mod pipeline), v (odd "
              "chunks in reverse; with schedule = \"auto\" or \"file\"), or auto: that of the "
              "schedule, v with schedule = \"auto\" and 2 chunks")
      .otherwise(Str("auto"));
  parallel
      .choice("vocabulary", &ParallelConfig::vocabulary,
              "ranks of the embedding and the logits: those of the first and the last stage "
              "(stage), or all pipeline ranks, each with a part of the vocabulary (pipeline), so "
              "that stages are equal; with the schedules 1f1b, gpipe and zb-h1 (Yeung et al. 2024)")
      .otherwise(Str("stage"));
  parallel
      .boolean("sequence_parallel", &ParallelConfig::sequence_parallel,
               "division of norms, dropout and saved activations among tensor ranks, by tokens "
               "(Korthikanti et al. 2022)")
      .otherwise(false);
  parallel
      .choice("recompute", &ParallelConfig::recompute,
              "activations that the backward pass recomputes to save memory: none, the cheap ones "
              "(selective: norms and activation functions), whole layers (full), or the choice "
              "that costs the least time within memory_limit (auto)")
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
              "state that replicas divide among themselves (ZeRO): none, the optimizer's state, "
              "also the sums of gradients, or also the weights; see docs/parallelism.md")
      .otherwise(Str("none"));
  parallel
      .integer("shard_group", &ParallelConfig::shard_group,
               "replicas, consecutive ones such as those of a node, that divide the state among "
               "themselves; each group then has all of it (hybrid sharding)")
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
               "size of the gradients that one all-reduce carries")
      .unit("bytes")
      .at_least(1)
      .at_most(bytes_limit)
      .otherwise(Int{16} << 20);
}

void batch_and_precision_keys(std::vector<Entry>& out) {
  SectionKeys batch(out, "batch", &Config::batch, Effect::batches);
  batch
      .integer("global", &BatchConfig::global,
               "samples per optimizer step, over all ranks; a multiple of micro · data")
      .unit("samples")
      .at_least(1)
      .at_most(identifier_limit);
  batch.integer("micro", &BatchConfig::micro, "samples per forward pass of one rank")
      .effect(Effect::none)
      .unit("samples")
      .at_least(1)
      .at_most(identifier_limit)
      .required_unless(
          [](Config& c) {
            if (c.parallel.layout != LayoutMode::automatic) return false;
            c.batch.micro = 1;  // the smallest; set_layout() replaces it
            return true;
          },
          "chosen with parallel.layout = \"auto\"");
  const auto ramp = [&](const char* name, Int BatchConfig::*field, Int most, const char* help) {
    batch.integer(name, field, help).unit("samples").at_least(0).at_most(most).otherwise(Int{0});
  };
  ramp("ramp_start", &BatchConfig::ramp_start, identifier_limit,
       "global batch of the first steps, which grows to `global`; 0 means no ramp-up; see "
       "docs/optimizers.md");
  ramp("ramp_increment", &BatchConfig::ramp_increment, identifier_limit,
       "increment of the growing global batch; every size is a multiple of micro · data");
  ramp("ramp_samples", &BatchConfig::ramp_samples, ramp_limit,
       "samples of the ramp-up, in which the global batch grows");
  SectionKeys precision(out, "precision", &Config::precision, Effect::numbers);
  precision
      .choice("compute", &PrecisionConfig::compute,
              "type of weights and activations; with bf16 and fp16, sums, gradients and the "
              "optimizer's master weights are fp32")
      .effect(Effect::storage)
      .words(
          {name_of(DType::fp32), name_of(DType::fp64), name_of(DType::bf16), name_of(DType::fp16)})
      .otherwise(Str("fp32"));
  precision
      .boolean("tf32", &PrecisionConfig::tf32,
               "TF32 for fp32 matrix products on NVIDIA devices: tensor cores multiply factors "
               "rounded to 11 bits, sums stay fp32; no effect on other devices")
      .otherwise(false);
  precision
      .choice("products", &PrecisionConfig::products,
              "operands of the layers' matrix products: the numbers of compute, or with bf16 fp8: "
              "E4M3 for weights and activations, E5M2 for gradients; see docs/precision.md")
      .otherwise(Str("compute"));
  precision
      .integer("fp8_history", &PrecisionConfig::fp8_history,
               "number of past steps whose maxima determine the scales of fp8")
      .unit("steps")
      .at_least(1)
      .at_most(65536)
      .otherwise(Int{1024});
  precision
      .choice("fp8_algorithm", &PrecisionConfig::fp8_algorithm,
              "maximum that determines a scale of fp8: the largest of the history, or the most "
              "recent one")
      .otherwise(Str("max"));
  precision
      .choice(
          "attention", &PrecisionConfig::attention,
          "attention kernels on devices: \"tensor_cores\" and \"cudnn\" need bf16 or fp16; "
          "\"cudnn\" also needs dropout = 0, and S^2 numbers per head in its backward pass; "
          "\"auto\" uses cuDNN's forward pass and tensor cores where available, \"portable\" runs "
          "anywhere; see "
          "docs/attention.md")
      .otherwise(Str("auto"));
  precision
      .number("loss_scale", &PrecisionConfig::loss_scale,
              "factor of the first step's loss with fp16, which keeps small gradients from "
              "underflow; a skipped step halves it, down to 1")
      .from(1)
      .below(16777217)  // at most LossScaling::most
      .otherwise(65536.0);
  precision
      .integer("loss_scale_interval", &PrecisionConfig::loss_scale_interval,
               "number of consecutive unskipped steps after which the loss scale doubles; 0 keeps "
               "it constant")
      .unit("steps")
      .at_least(0)
      .at_most(steps_limit)
      .otherwise(Int{1000});
}

void data_and_checkpoint_keys(std::vector<Entry>& out) {
  SectionKeys data(out, "data", &Config::data);
  data.path("train", &DataConfig::train,
            "training token file, or weighted files: 0.7 a.h5, 0.3 b.h5")
      .effect(Effect::samples)
      .nonempty();
  data.path("validation", &DataConfig::validation, "token file for evaluation; \"\" means none")
      .otherwise(Str());
  packing_key(out);
  data.string("tokenizer", &DataConfig::tokenizer, "\"bytes\", or a tokenizer's folder or file")
      .nonempty()
      .otherwise(Str("bytes"));
  data.string("end_of_document", &DataConfig::end_of_document,
              "tokenizer's special token that ends documents; \"\" means its usual one")
      .otherwise(Str());
  const auto special = [&](const char* name, Int DataConfig::*field, const char* help,
                           const char* rule) {
    data.integer(name, field, help)
        .effect(Effect::model)
        .at_least(-1)
        .at_most(identifier_limit)
        .otherwise(Int{-1}, rule);
  };
  special("class_token", &DataConfig::class_token,
          "id of [CLS], the first token of a sample (family bert)", "-1: the third last id");
  special("separator_token", &DataConfig::separator_token,
          "id of [SEP], which ends segments (family bert)", "-1: the second last id");
  special("mask_token", &DataConfig::mask_token,
          "id of [MASK], which replaces masked tokens (family bert)", "-1: the last id");
  SectionKeys checkpoint(out, "checkpoint", &Config::checkpoint);
  checkpoint.path("directory", &CheckpointConfig::directory, "folder that holds the checkpoints")
      .effect(Effect::place)
      .nonempty()
      .derive([](Config& c) { c.checkpoint.directory = c.run.directory + "/checkpoints"; },
              "<run.directory>/checkpoints");
  checkpoint
      .integer("every", &CheckpointConfig::every,
               "steps between checkpoints; 0 saves only at the end")
      .unit("steps")
      .at_least(0)
      .at_most(steps_limit)
      .otherwise(Int{0});
  checkpoint
      .integer("keep", &CheckpointConfig::keep, "number of newest checkpoints to keep; 0 keeps all")
      .at_least(0)
      .at_most(steps_limit)
      .otherwise(Int{0});
  checkpoint
      .integer("keep_every", &CheckpointConfig::keep_every,
               "interval of checkpoints to keep in addition to the newest; 0 keeps no others")
      .unit("steps")
      .at_least(0)
      .at_most(steps_limit)
      .otherwise(Int{0});
  checkpoint
      .boolean("asynchronous", &CheckpointConfig::asynchronous,
               "writing of checkpoints from a copy in host memory while training continues")
      .otherwise(true);
  checkpoint
      .path("local", &CheckpointConfig::local,
            "folder on a disk of each node for local checkpoints; %node% stands for the node's "
            "name; \"\" means none")
      .effect(Effect::place)
      .otherwise(Str());
  checkpoint
      .integer("local_every", &CheckpointConfig::local_every,
               "steps between local checkpoints; 0 means none")
      .unit("steps")
      .at_least(0)
      .at_most(steps_limit)
      .otherwise(Int{0});
  checkpoint
      .path("restart", &CheckpointConfig::restart,
            "checkpoint to restart from: \"latest\", \"none\" or a checkpoint's folder")
      .effect(Effect::place)
      .nonempty()
      .otherwise(Str("none"));
}

std::vector<Key> make_keys() {
  std::vector<Entry> entries;
  run_keys(entries);
  model_keys(entries);
  adapter_keys(entries);
  parallel_keys(entries);
  batch_and_precision_keys(entries);
  optimizer_keys(entries);
  data_and_checkpoint_keys(entries);
  std::vector<Key> out;
  for (Entry& entry : entries) out.push_back(entry.take());
  return out;
}

}  // namespace

const std::vector<Section>& sections() {
  static const std::vector<Section> all{
      {"run", "length and output of the run"},
      {"model", "architecture of the transformer"},
      {"adapter", "low-rank adapters for fine-tuning; see docs/fine_tuning.md"},
      {"parallel", "distribution of the work among ranks; never changes the result"},
      {"batch", "batch sizes"},
      {"precision", "number formats, attention kernels and loss scaling"},
      {"optimizer", "weight updates and learning rate"},
      {"data", "token files and tokenizer"},
      {"checkpoint", "saving, retention and restart"},
  };
  return all;
}

const std::vector<Key>& keys() {
  static const std::vector<Key> all = make_keys();
  return all;
}

const Key* find_key(std::string_view section, std::string_view name) {
  for (const Key& key : keys())
    if (key.section == section && key.name == name) return &key;
  return nullptr;
}

}  // namespace trireme::deck
