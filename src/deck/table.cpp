#include <trireme/deck/table.hpp>

#include <trireme/deck/entry.hpp>

namespace trireme::deck {
namespace {

using Str = std::string;
using Int = std::int64_t;

constexpr std::int64_t ranks_limit = 1048576;
constexpr std::int64_t ramp_limit = std::int64_t{1} << 40;
constexpr std::int64_t bytes_limit = std::int64_t{1} << 40;

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
  run.integer("seed", &RunConfig::seed, "of initialisation, data order and dropout")
      .effect(Effect::numbers)
      .at_least(0)
      .otherwise(Int{1});
  run.duration("time_limit", &RunConfig::time_limit,
               "save and stop with exit code 75 after this time; 00:00:00 is never")
      .otherwise(0.0);
  run.integer("log_every", &RunConfig::log_every, "steps between lines of metrics")
      .unit("steps")
      .at_least(1)
      .at_most(steps_limit)
      .otherwise(Int{10});
  run.integer("evaluate_every", &RunConfig::evaluate_every,
              "steps between evaluations; 0 is only at the end")
      .unit("steps")
      .at_least(0)
      .at_most(steps_limit)
      .otherwise(Int{0});
  run.integer("evaluate_batches", &RunConfig::evaluate_batches,
              "global batches per evaluation; 0 is the whole file")
      .at_least(0)
      .at_most(steps_limit)
      .otherwise(Int{0});
  run.duration("watchdog", &RunConfig::watchdog,
               "end the job, and say who is where, after this time in one operation (a pass, a "
               "message, an array of a checkpoint); 00:00:00 is never")
      .otherwise(600.0);
  run.boolean("timeline", &RunConfig::timeline,
              "record when each instruction of the last logged step ran; `trireme draw` shows it")
      .otherwise(false);
}

void parallel_keys(std::vector<Entry>& out) {
  SectionKeys parallel(out, "parallel", &Config::parallel);
  const auto size = [&](const char* name, Int ParallelConfig::*field, const char* help) -> Entry& {
    return parallel.integer(name, field, help).unit("ranks").at_least(1).at_most(ranks_limit);
  };
  size("tensor", &ParallelConfig::tensor,
       "ranks that share each layer: neighbours, on one node where possible")
      .otherwise(Int{1});
  size("pipeline", &ParallelConfig::pipeline,
       "ranks that share the layers among them: the stages of the pipeline")
      .otherwise(Int{1});
  size("data", &ParallelConfig::data,
       "replicas that share the samples of a batch; 0 is what is left of the ranks")
      .at_least(0)
      .otherwise(Int{0}, "0: ranks / (tensor · pipeline)");
  parallel
      .choice("schedule", &ParallelConfig::schedule,
              "order of forward and backward passes of the micro-batches")
      .otherwise(Str("1f1b"));
  parallel
      .integer("chunks", &ParallelConfig::chunks,
               "stages of each pipeline rank; interleaved takes 2 or more, a program any number")
      .at_least(1)
      .at_most(65536)
      .otherwise(Int{1});
  parallel
      .path("program", &ParallelConfig::program,
            "file of a program written by hand, for schedule = \"file\"; see docs/parallelism.md")
      .otherwise(Str());
  parallel
      .boolean("sequence_parallel", &ParallelConfig::sequence_parallel,
               "tensor ranks also share norms, dropout and saved activations, by tokens "
               "(Korthikanti et al. 2022)")
      .otherwise(false);
  parallel
      .choice(
          "recompute", &ParallelConfig::recompute,
          "what the backward pass computes again to save memory: nothing, what is cheap (norms and "
          "activation functions), whole layers, or with auto what costs the least time until "
          "memory_limit is met")
      .otherwise(Str("none"));
  parallel
      .bytes("memory_limit", &ParallelConfig::memory_limit,
             "memory of a rank where its kernels run, for recompute = \"auto\"")
      .at_least(0)
      .otherwise(Int{0}, "0: the memory that a machine file gives");
  parallel
      .boolean("distributed_optimizer", &ParallelConfig::distributed_optimizer,
               "replicas share the optimizer's state and update a part of the weights each (ZeRO, "
               "stage 1)")
      .otherwise(false);
  parallel
      .choice("offload", &ParallelConfig::offload,
              "what a device keeps in its host's memory: nothing, the optimizer's state, saved "
              "activations, or both; of no effect where kernels run on the host")
      .otherwise(Str("none"));
  parallel
      .choice("transport", &ParallelConfig::transport,
              "what moves messages between devices: NCCL, MPI through the hosts' memory, or auto: "
              "NCCL where this installation has it and share_devices is false; of no effect where "
              "kernels run on the host")
      .otherwise(Str("auto"));
  parallel
      .boolean("share_devices", &ParallelConfig::share_devices,
               "several ranks may use one device, which is an error otherwise")
      .otherwise(false);
  parallel
      .integer("bucket_bytes", &ParallelConfig::bucket_bytes,
               "gradients that one all-reduce carries")
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
      .at_most(identifier_limit);
  const auto ramp = [&](const char* name, Int BatchConfig::*field, Int most, const char* help) {
    batch.integer(name, field, help).unit("samples").at_least(0).at_most(most).otherwise(Int{0});
  };
  ramp("ramp_start", &BatchConfig::ramp_start, identifier_limit,
       "global batch of the first steps, which grows to `global`; 0 is no ramp-up; see "
       "docs/optimizers.md");
  ramp("ramp_increment", &BatchConfig::ramp_increment, identifier_limit,
       "samples by which the global batch grows at a time; every size is a multiple of micro · "
       "data");
  ramp("ramp_samples", &BatchConfig::ramp_samples, ramp_limit,
       "samples that are taken while the global batch grows");
  SectionKeys precision(out, "precision", &Config::precision, Effect::numbers);
  precision
      .choice("compute", &PrecisionConfig::compute,
              "type of weights and activations; sums, gradients and the optimizer's master weights "
              "of bf16 and fp16 are fp32")
      .effect(Effect::storage)
      .words(
          {name_of(DType::fp32), name_of(DType::fp64), name_of(DType::bf16), name_of(DType::fp16)})
      .otherwise(Str("fp32"));
  precision
      .boolean("tf32", &PrecisionConfig::tf32,
               "with fp32, matrix products on NVIDIA devices round their factors to 11 bits, which "
               "tensor cores multiply; sums stay fp32; of no effect elsewhere")
      .otherwise(false);
  precision
      .choice(
          "attention", &PrecisionConfig::attention,
          "what computes attention on devices: \"tensor_cores\" and \"cudnn\" are for bf16 and "
          "fp16, the latter without dropout and with S^2 numbers per head in its backward pass; "
          "\"auto\" is the fastest without those, \"portable\" what hosts use; see "
          "docs/attention.md")
      .otherwise(Str("auto"));
  precision
      .number(
          "loss_scale", &PrecisionConfig::loss_scale,
          "by which fp16 multiplies the first step's loss, so that small gradients are not lost; "
          "a skipped step halves it, down to 1")
      .from(1)
      .below(16777217)  // LossScaling::most, and no more
      .otherwise(65536.0);
  precision
      .integer("loss_scale_interval", &PrecisionConfig::loss_scale_interval,
               "steps without a skipped one behind which it doubles; 0 keeps it as it is")
      .unit("steps")
      .at_least(0)
      .at_most(steps_limit)
      .otherwise(Int{1000});
}

void data_and_checkpoint_keys(std::vector<Entry>& out) {
  SectionKeys data(out, "data", &Config::data);
  data.path("train", &DataConfig::train,
            "token file to learn from, or weighted files: 0.7 a.h5, 0.3 b.h5")
      .effect(Effect::samples)
      .nonempty();
  data.path("validation", &DataConfig::validation, "token file to evaluate on; \"\" is none")
      .otherwise(Str());
  data.string("tokenizer", &DataConfig::tokenizer, "\"bytes\", or a tokenizer's folder or file")
      .nonempty()
      .otherwise(Str("bytes"));
  data.string("end_of_document", &DataConfig::end_of_document,
              "special token of the tokenizer that ends documents; \"\" is its usual one")
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
          "id of [CLS], with which samples begin (family bert)",
          "-1: the third last of the vocabulary");
  special("separator_token", &DataConfig::separator_token,
          "id of [SEP], which ends segments (family bert)", "-1: the last but one");
  special("mask_token", &DataConfig::mask_token, "id of [MASK], which hides tokens (family bert)",
          "-1: the last one");
  SectionKeys checkpoint(out, "checkpoint", &Config::checkpoint);
  checkpoint.path("directory", &CheckpointConfig::directory, "folder that holds the checkpoints")
      .effect(Effect::place)
      .nonempty()
      .derive([](Config& c) { c.checkpoint.directory = c.run.directory + "/checkpoints"; },
              "<run.directory>/checkpoints");
  checkpoint
      .integer("every", &CheckpointConfig::every, "steps between checkpoints; 0 is only at the end")
      .unit("steps")
      .at_least(0)
      .at_most(steps_limit)
      .otherwise(Int{0});
  checkpoint.integer("keep", &CheckpointConfig::keep, "newest checkpoints that are kept; 0 is all")
      .at_least(0)
      .at_most(steps_limit)
      .otherwise(Int{0});
  checkpoint
      .integer("keep_every", &CheckpointConfig::keep_every,
               "beside those, the checkpoints of multiples of so many steps stay; 0 is none")
      .unit("steps")
      .at_least(0)
      .at_most(steps_limit)
      .otherwise(Int{0});
  checkpoint
      .boolean("asynchronous", &CheckpointConfig::asynchronous,
               "write a copy in host memory while training goes on")
      .otherwise(true);
  checkpoint
      .path("restart", &CheckpointConfig::restart, "\"latest\", \"none\" or a checkpoint's folder")
      .effect(Effect::place)
      .nonempty()
      .otherwise(Str("none"));
}

std::vector<Key> make_keys() {
  std::vector<Entry> entries;
  run_keys(entries);
  model_keys(entries);
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
      {"run", "how long and where"},
      {"model", "the transformer"},
      {"parallel", "which ranks do what; never changes the answer"},
      {"batch", "how many samples at a time"},
      {"precision", "how numbers are stored"},
      {"optimizer", "how weights are updated"},
      {"data", "what is learned from"},
      {"checkpoint", "what is kept, and where a run starts from"},
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
