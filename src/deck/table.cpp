// The key table of decks: one entry per key with its type, range, default and help. The keys of
// [model], [adapter], [parallel], [local] and [optimizer] are in table_model.cpp,
// table_parallel.cpp and table_optimizer.cpp.
#include <trireme/deck/table.hpp>

#include <trireme/deck/checks.hpp>
#include <trireme/deck/entry.hpp>

namespace trireme::deck {
namespace {

using Str = std::string;
using Int = std::int64_t;

constexpr std::int64_t ramp_limit = std::int64_t{1} << 40;

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
  run.path("prompts", &RunConfig::prompts,
           "file of prompts, as for `trireme generate --prompts`, which each evaluation continues "
           "with the most likely tokens; \"\" means none; see docs/report.md")
      .otherwise(Str());
  run.integer(
         "prompt_tokens", &RunConfig::prompt_tokens,
         "maximum number of tokens that continue a prompt; each token costs at most one forward "
         "pass over a micro-batch")
      .unit("tokens")
      .at_least(1)
      .at_most(identifier_limit)
      .otherwise(Int{64});
  run.string("chat", &RunConfig::chat,
             "chat format of the answers to the prompts, as for `trireme generate --chat`; \"\" "
             "means plain texts")
      .otherwise(Str());
  run.duration("watchdog", &RunConfig::watchdog,
               "time limit of one operation (a pass, a message, an array of a checkpoint), after "
               "which the job reports each rank's operation and ends; 00:00:00 means no limit")
      .otherwise(600.0);
  run.boolean("timeline", &RunConfig::timeline,
              "recording of the begin and end of each instruction in the last logged step, for "
              "`trireme draw`")
      .otherwise(false);
  run.boolean("gradient_noise_scale", &RunConfig::gradient_noise_scale,
              "estimate of the critical batch size, from the gradients of first micro-batches and "
              "of whole batches (McCandlish et al. 2018); see docs/optimizers.md")
      .otherwise(false);
  run.integer("audit_every", &RunConfig::audit_every,
              "steps between audits, which compute a step's gradients a second time on other ranks "
              "and compare the weights of replicas; 0 means none; see docs/reliability.md")
      .unit("steps")
      .at_least(0)
      .at_most(steps_limit)
      .otherwise(Int{0});
  run.choice(
         "audit", &RunConfig::audit,
         "reaction to an audit that finds wrong numbers: stop ends the run with exit code 76; "
         "repair continues from the right numbers if they can be determined, and stops otherwise")
      .otherwise(Str("stop"));
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
            c.batch.micro = 1;  // the smallest value; set_layout() replaces it
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
              "type of the operands of matrix products: compute; fp32, to which bf16 and fp16 are "
              "widened, as on processors without instructions for them; fp8 in the layers, with "
              "compute = \"bf16\" (E4M3 for weights and activations, E5M2 for gradients); see "
              "docs/precision.md")
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
              "maximum that determines a scale of fp8: the largest maximum of the history (max), "
              "or the most recent maximum (most_recent)")
      .otherwise(Str("max"));
  precision
      .choice(
          "attention", &PrecisionConfig::attention,
          "attention kernels; on devices \"tensor_cores\" and \"cudnn\" need bf16 or fp16; "
          "\"cudnn\" also needs dropout = 0, and memory for sequence² numbers per head; "
          "\"auto\" uses cuDNN's forward pass and tensor cores where available, on hosts AMX for "
          "bf16; \"portable\" runs anywhere; see docs/attention.md")
      .otherwise(Str("auto"));
  precision
      .number("loss_scale", &PrecisionConfig::loss_scale,
              "factor of the first step's loss with fp16, which keeps small gradients from "
              "underflow; a skipped step halves it, down to 1")
      .effect(Effect::training)
      .from(1)
      .below(16777217)  // at most LossScaling::most
      .otherwise(65536.0);
  precision
      .integer("loss_scale_interval", &PrecisionConfig::loss_scale_interval,
               "number of consecutive unskipped steps after which the loss scale doubles; 0 keeps "
               "it constant")
      .effect(Effect::training)
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
  data.path("tokenizer", &DataConfig::tokenizer, "\"bytes\", or a tokenizer's folder or file")
      .nonempty()
      .otherwise(Str("bytes"));
  data.string("end_of_document", &DataConfig::end_of_document,
              "special token that ends documents; \"\" means the tokenizer's usual token")
      .otherwise(Str());
  data.boolean("replaced", &DataConfig::replaced,
               "permission to restart from a checkpoint of a run with other token files or another "
               "tokenizer")
      .otherwise(false);
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
  special("start_token", &DataConfig::start_token,
          "id of the decoder's first input (models with an encoder)", "-1: the last id");
  special("end_token", &DataConfig::end_token,
          "id of the token that ends sources and targets (objective corrupted_spans)",
          "-1: the last id, or the id before the start");
  special(
      "sentinel_token", &DataConfig::sentinel_token,
      "id of the sentinel of a sample's first span; those of later spans are below it (objective "
      "corrupted_spans)",
      "-1: the last id, or the id before start and end");
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
  expert_keys(entries);
  encoder_keys(entries);
  vision_keys(entries);
  adapter_keys(entries);
  parallel_keys(entries);
  batch_and_precision_keys(entries);
  optimizer_keys(entries);
  local_keys(entries);
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
      {"experts", "mixture of experts in the feed-forward part; see docs/experts.md"},
      {"encoder", "a second stack of layers, to which those of [model] attend; see docs/models.md"},
      {"vision", "an encoder of images, whose results are read as tokens; see docs/models.md"},
      {"adapter", "low-rank adapters for fine-tuning; see docs/fine_tuning.md"},
      {"parallel", "distribution of the work among ranks; never changes the result"},
      {"batch", "batch sizes"},
      {"precision", "number formats, attention kernels and loss scaling"},
      {"optimizer", "weight updates and learning rate"},
      {"local", "local training; see docs/data_parallelism.md"},
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
