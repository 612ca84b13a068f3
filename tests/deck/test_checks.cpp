#include <trireme/deck/checks.hpp>

#include <trireme/base/check.hpp>

#include <gtest/gtest.h>

#include "deck/example.hpp"

namespace trireme::deck {
namespace {

TEST(Checks, HeadsMustDivideHidden) {
  expect_contains(mistakes_of(replaced(example, "heads = 4", "heads = 7")),
                  "[model] heads = 7 (a.toml:4) does not divide [model] hidden = 40 (a.toml:3); "
                  "choose 2, 4, 5, 8, 10 or 20 heads");
}

TEST(Checks, MicroMustDivideGlobal) {
  expect_contains(
      mistakes_of(example, {"batch.micro=5"}),
      "[batch] micro = 5 (command line) does not divide [batch] global = 12 (a.toml:7); "
      "choose a micro of 1, 2, 3, 4, 6 or 12");
}

TEST(Checks, LocalCheckpointsNeedAFolderAndAnInterval) {
  const std::string folder = "checkpoint.local=/tmp/%node%";
  const std::string interval = "checkpoint.local_every=10";
  EXPECT_EQ(parse_deck(example, "a.toml", {folder, interval}).config.checkpoint.local,
            "/tmp/%node%");
  expect_contains(mistakes_of(example, {folder}),
                  "[checkpoint] local = \"/tmp/%node%\" (command line) needs [checkpoint] "
                  "local_every = 0 (default) to be 1 or more; set local_every, or leave local out");
  expect_contains(mistakes_of(example, {interval}),
                  "[checkpoint] local_every = 10 (command line) needs [checkpoint] local = \"\" "
                  "(default) to name a folder");
}

TEST(Checks, AdaptersFitTheModel) {
  const std::string lora = "adapter.kind=lora";
  const ModelConfig m =
      parse_deck(example, "a.toml", {lora, "adapter.targets=attention.output"}).config.model;
  EXPECT_EQ(m.adapter.targets, Words{"attention.output"});
  EXPECT_EQ(m.adapter.factor(), 2);
  expect_contains(mistakes_of(example, {lora, "adapter.rank=0"}),
                  "expected an integer from 1 to 65536");
  expect_contains(mistakes_of(example, {lora, "adapter.alpha=0"}), "expected a number above 0");
  expect_contains(mistakes_of(example, {lora, "adapter.targets=attention.out"}),
                  "found the list [\"attention.out\"]; did you mean \"attention.output\"?");
  expect_contains(mistakes_of(example, {lora, "adapter.targets="}), "names no product");
  expect_contains(mistakes_of(example, {lora, "adapter.targets=feed_forward.gate_up"}),
                  "does not have; choose feed_forward.up");
  expect_contains(
      mistakes_of(example, {lora, "adapter.targets=attention.query,attention.query_key_value"}),
      "twice; choose attention.query_key_value, or");
  expect_contains(mistakes_of(example, {lora, "adapter.targets=attention.query,attention.query"}),
                  "names attention.query twice");
}

TEST(Checks, PartsWithAdaptersFitTheModel) {
  using Parts = std::vector<std::string>;
  const std::string lora = "adapter.kind=lora";
  const Parts t5{lora, "model.family=t5", "model.objective=sequence_to_sequence",
                 "encoder.sequence=16", "model.vocabulary=64"};
  const Parts images{lora,
                     "model.family=llama",
                     "vision.layers=1",
                     "vision.hidden=8",
                     "vision.heads=2",
                     "vision.image=6",
                     "vision.patch=3"};
  const auto with = [](Parts keys, const Parts& more) {
    keys.insert(keys.end(), more.begin(), more.end());
    return keys;
  };
  EXPECT_EQ(parse_deck(example, "a.toml", {lora}).config.model.adapter.parts, Words{"layers"});
  EXPECT_EQ(parse_deck(example, "a.toml", t5).config.model.adapter.parts,
            (Words{"layers", "encoder"}));
  EXPECT_EQ(parse_deck(example, "a.toml", images).config.model.adapter.parts, Words{"layers"});
  EXPECT_TRUE(parse_deck(example, "a.toml").config.model.adapter.parts.empty());
  parse_deck(example, "a.toml",
             with(images, {"adapter.parts=layers,vision",
                           "adapter.targets=feed_forward.gate_up,feed_forward.up"}));
  const std::vector<std::pair<Parts, const char*>> refusals{
      {{lora, "adapter.parts=encoder"},
       "names encoder, but the deck has [encoder] layers = 0 (default); set layers, or leave "
       "encoder "
       "out"},
      {{lora, "adapter.parts=vision"}, "names vision, but the deck has [vision] layers = 0"},
      {{lora, "adapter.parts="}, "names no part; choose parts = [\"layers\"]"},
      {{lora, "adapter.parts=layers,layers"}, "names layers twice; name it once"},
      {{lora, "adapter.targets=cross_attention.query"},
       "names cross_attention.query, but [encoder] layers = 0 (default); set layers, or choose "
       "products of attention"},
      {with(t5, {"adapter.parts=encoder", "adapter.targets=attention.query,cross_attention.query"}),
       "leave out the layers that have it; add layers to parts, or choose products of attention"},
      {with(images, {"adapter.parts=vision,layers", "adapter.targets=feed_forward.gate_up"}),
       "names vision, which has none of the products in [adapter] targets = "
       "[\"feed_forward.gate_up\"] (command line); leave it out, or add feed_forward.up"},
      {with(images, {"adapter.parts=vision", "adapter.targets=feed_forward.gate_up"}),
       "names feed_forward.gate_up, which an encoder of images does not have; choose "
       "feed_forward.up"}};
  for (const auto& [keys, message] : refusals) expect_contains(mistakes_of(example, keys), message);
}

TEST(Checks, RateFactorsHaveAFactorAndAPattern) {
  const Config c =
      parse_deck(example, "a.toml", {"optimizer.rate_factors=0.1 embedding,2e0  layers.0-3"})
          .config;
  EXPECT_EQ(c.optimizer.rate_factors, (Words{"0.1 embedding", "2e0  layers.0-3"}));
  EXPECT_EQ(rate_factor_of("2e0  layers.0-3")->factor, 2);
  EXPECT_EQ(rate_factor_of("2e0  layers.0-3")->pattern, "layers.0-3");
  for (const std::string entry :
       {"embedding", "0.1", "0 embedding", "-1 embedding", "nan embedding", "inf embedding",
        "0.1x embedding", "0.1 embedding layers"})
    expect_contains(mistakes_of(example, {"optimizer.rate_factors=" + entry}),
                    "[optimizer] rate_factors = [\"" + entry + "\"] (command line): \"" + entry +
                        "\" is not a factor above 0, a space and a pattern of names of arrays; "
                        "write an entry such as \"0.1 embedding\"");
}

TEST(Checks, Tf32NeedsFp32) {
  EXPECT_TRUE(parse_deck(example, "a.toml", {"precision.tf32=true"}).config.precision.tf32);
  EXPECT_FALSE(parse_deck(example, "a.toml").config.precision.tf32);
  expect_contains(mistakes_of(example, {"precision.tf32=true", "precision.compute=bf16"}),
                  "[precision] tf32 = true (command line) applies to fp32, but the deck has "
                  "[precision] compute = \"bf16\" (command line); remove it, or choose compute = "
                  "\"fp32\"");
}

TEST(Checks, LibraryAttentionNeedsNarrowTypesWithoutDropout) {
  const auto chosen = [](const std::vector<std::string>& overrides) {
    return parse_deck(example, "a.toml", overrides).config.precision.attention;
  };
  EXPECT_EQ(chosen({}), AttentionKind::automatic);
  EXPECT_EQ(chosen({"precision.attention=portable"}), AttentionKind::portable);
  EXPECT_EQ(chosen({"precision.attention=cudnn", "precision.compute=bf16"}), AttentionKind::cudnn);
  expect_contains(
      mistakes_of(example, {"precision.attention=tensor_cores"}),
      "[precision] attention = \"tensor_cores\" (command line) supports bf16 and fp16, "
      "not [precision] compute = \"fp32\" (default); choose attention = \"auto\", or compute "
      "= \"bf16\" or \"fp16\"");
  expect_contains(
      mistakes_of(example,
                  {"precision.attention=cudnn", "precision.compute=fp16", "model.dropout=0.1"}),
      "[precision] attention = \"cudnn\" (command line) draws dropout masks that depend "
      "on the layout, so it cannot be used with [model] dropout = 0.1 (command line); choose "
      "dropout = 0, or attention = \"auto\"");
}

TEST(Checks, Fp8NeedsBf16AndMultiplesOf16) {
  const std::vector<std::string> fits{"precision.products=fp8", "precision.compute=bf16",
                                      "model.hidden=64", "model.feed_forward=192"};
  const auto with = [&](const char* other) {
    std::vector<std::string> overrides = fits;
    overrides.push_back(other);
    return overrides;
  };
  const PrecisionConfig found = parse_deck(example, "a.toml", fits).config.precision;
  EXPECT_EQ(found.products, Products::fp8);
  EXPECT_EQ(found.fp8_history, 1024);
  EXPECT_EQ(found.fp8_algorithm, Fp8Algorithm::max);
  EXPECT_NO_THROW(parse_deck(example, "a.toml", with("parallel.tensor=4")));
  const std::string or_else = ", or products = \"compute\"";
  const std::string needs =
      " not a multiple of 16, which [precision] products = \"fp8\" (command line) needs; ";
  expect_contains(mistakes_of(example, with("precision.compute=fp32")),
                  "[precision] products = \"fp8\" (command line) needs bf16, but the deck has "
                  "[precision] compute = \"fp32\" (command line); choose compute = \"bf16\"" +
                      or_else);
  expect_contains(mistakes_of(example, with("model.hidden=40")),
                  "[model] hidden = 40 (command line) is" + needs + "choose 32 or 48" + or_else);
  expect_contains(mistakes_of(example, with("model.heads=8")),
                  "[model] heads = 8 (command line) gives a head size of 8," + needs +
                      "set head_size, or choose other heads" + or_else);
  expect_contains(
      mistakes_of(example, with("model.feed_forward=200")),
      "[model] feed_forward = 200 (command line) over [parallel] tensor = 1 (default) gives parts "
      "that are" +
          needs + "choose 192 or 208" + or_else);
  expect_contains(
      mistakes_of(example,
                  {"precision.products=fp8", "precision.compute=bf16", "model.hidden=64",
                   "model.feed_forward=192", "parallel.tensor=4", "model.feed_forward=96"}),
      "[model] feed_forward = 96 (command line) over [parallel] tensor = 4 (command line) gives "
      "parts that are" +
          needs + "choose 64 or 128, another tensor" + or_else);
  expect_contains(mistakes_of(example, with("model.sequence=12")),
                  "[batch] micro = 2 (a.toml:8) · [model] sequence = 12 (command line) = 24 is" +
                      needs + "choose a micro of 4 or a multiple of it" + or_else);
}

TEST(Checks, RejectSizesThatOverflow) {
  expect_contains(mistakes_of(example, {"model.layers=65536", "model.hidden=16777216"}),
                  "[model] has ");
  expect_contains(mistakes_of(example, {"batch.micro=1073741824", "batch.global=1073741824",
                                        "model.sequence=16777216"}),
                  "[batch] micro = 1073741824 (command line) need ");
}

TEST(Checks, LearningRatesAndStepsMustBeOrdered) {
  expect_contains(
      mistakes_of(example, {"optimizer.minimum_learning_rate=0.5"}),
      "[optimizer] minimum_learning_rate = 0.5 (command line) is larger than [optimizer] "
      "learning_rate = 3e-4 (default); choose at most 3e-04");
  expect_contains(mistakes_of(example, {"optimizer.warmup_steps=101"}),
                  "[optimizer] warmup_steps = 101 (command line) is larger than [optimizer] "
                  "decay_steps = 100 (default)");
}

TEST(Checks, PhasesOfTheLearningRateMustBeOrdered) {
  const std::string stable = "optimizer.schedule=warmup_stable_decay";
  const auto cooldown = [&](const std::vector<std::string>& overrides) {
    return parse_deck(example, "a.toml", overrides).config.optimizer.cooldown_steps;
  };
  EXPECT_EQ(cooldown({}), 0);
  EXPECT_EQ(cooldown({stable}), 10);  // of 100 steps
  EXPECT_EQ(cooldown({stable, "optimizer.decay_steps=5"}), 1);
  EXPECT_EQ(cooldown({stable, "optimizer.warmup_steps=40", "optimizer.cooldown_steps=60"}), 60);
  expect_contains(
      mistakes_of(example, {stable, "optimizer.warmup_steps=40", "optimizer.cooldown_steps=61"}),
      "[optimizer] warmup_steps = 40 (command line) and [optimizer] cooldown_steps = 61 (command "
      "line) together exceed [optimizer] decay_steps = 100 (default); choose a cooldown_steps of "
      "at "
      "most 60, or more decay_steps");
  expect_contains(mistakes_of(example, {stable, "optimizer.cooldown_steps=0"}),
                  "needs [optimizer] cooldown_steps = 0 (command line) to be 1 or more");
  expect_contains(mistakes_of(example, {"optimizer.cooldown_steps=5"}),
                  "[optimizer] cooldown_steps = 5 (command line) applies to the schedule "
                  "warmup_stable_decay, not to [optimizer] schedule = \"cosine\" (default)");
  expect_contains(mistakes_of(example, {"optimizer.schedule=linear", "optimizer.warmup_steps=101"}),
                  "is larger than [optimizer] decay_steps");
  // Schedules that do not decay have no limit on the warm-up.
  for (const char* schedule : {"constant", "inverse_square_root"})
    parse_deck(example, "a.toml",
               {std::string("optimizer.schedule=") + schedule, "optimizer.warmup_steps=101"});
}

TEST(Checks, NesterovNeedsSgdWithMomentum) {
  const std::string nesterov = "optimizer.nesterov=true";
  parse_deck(example, "a.toml", {"optimizer.kind=sgd", nesterov});
  expect_contains(mistakes_of(example, {nesterov}),
                  "[optimizer] nesterov = true (command line) needs [optimizer] kind = \"sgd\" or "
                  "\"muon\"");
  expect_contains(mistakes_of(example, {"optimizer.kind=sgd", "optimizer.momentum=0", nesterov}),
                  "[optimizer] momentum = 0.0 (command line)");
}

TEST(Checks, StateOfRowsNeedsWholeTablesAndOneWorker) {
  const std::string kind = "optimizer.kind=adafactor";
  parse_deck(example, "a.toml", {kind});
  const std::string message =
      "[optimizer] kind = \"adafactor\" (command line) cannot be combined with ";
  expect_contains(mistakes_of(example, {kind, "parallel.vocabulary=pipeline"}),
                  message + "[parallel] vocabulary = \"pipeline\" (command line)");
  expect_contains(mistakes_of(example, {kind, "local.workers=2"}),
                  message + "[local] workers = 2 (command line)");
}

TEST(Checks, MomentsInBf16NeedWiderMasterWeights) {
  const std::string moments = "optimizer.moments=bf16";
  for (const char* compute : {"precision.compute=fp32", "precision.compute=bf16"})
    parse_deck(example, "a.toml", {moments, compute});
  expect_contains(mistakes_of(example, {moments, "precision.compute=fp64"}),
                  "[optimizer] moments = \"bf16\" (command line) needs master weights in fp32");
}

TEST(Checks, SegmentPairsNeedRoomAndThreeIds) {
  const std::string bert = "model.family=bert";
  expect_contains(mistakes_of(example, {bert, "model.sequence=4"}),
                  "[model] sequence = 4 (command line) has no room for two segments");
  expect_contains(
      mistakes_of(example, {bert, "model.vocabulary=100", "data.mask_token=100"}),
      "[data] mask_token = 100 (command line) is not a token id of [model] vocabulary = 100");
  expect_contains(mistakes_of(example, {bert, "model.vocabulary=100", "data.class_token=98"}),
                  "class_token = 98, separator_token = 98 and mask_token = 99 are not three "
                  "different token ids");
  parse_deck(example, "a.toml",
             {bert, "model.vocabulary=100", "data.class_token=1", "data.separator_token=2",
              "data.mask_token=3"});
}

TEST(Checks, NamesTheMostHeadsForAHeadOfKeysAndValues) {
  const std::vector<std::string> large = {"model.hidden=65536", "model.heads=65536"};
  const auto with = [&](const char* key_value_heads) {
    std::vector<std::string> all = large;
    all.push_back(key_value_heads);
    return all;
  };
  expect_contains(
      mistakes_of(example, with("model.key_value_heads=2")),
      "[model] heads = 65536 (command line) has more than 32767 heads for each of [model] "
      "key_value_heads = 2 (command line); choose more key_value_heads");
  EXPECT_NO_THROW(parse_deck(example, "a.toml", with("model.key_value_heads=4")));
}

TEST(Checks, KeyValueHeadsMustDivideHeadsInAnyFamily) {
  for (const Family family : {Family::gpt, Family::llama, Family::bert}) {
    const std::string chosen = text("model.family=", name_of(family));
    expect_contains(
        mistakes_of(example, {chosen, "model.key_value_heads=3"}),
        "[model] key_value_heads = 3 (command line) does not divide [model] heads = 4 (a.toml:4); "
        "choose 1, 2 or 4 key_value_heads");
    EXPECT_NO_THROW(
        parse_deck(example, "a.toml", {chosen, "model.key_value_heads=1", "parallel.tensor=3"}))
        << "tensor ranks may share a head of keys and values";
    EXPECT_EQ(parse_deck(example, "a.toml", {chosen}).config.model.key_value_heads, 4);
  }
}

TEST(Checks, RotaryPositionsNeedAnEvenHeadSize) {
  const std::string rotary = "model.positions=rotary";
  expect_contains(mistakes_of(example, {rotary, "model.heads=8"}),
                  "[model] hidden = 40 (a.toml:3) / [model] heads = 8 (command line) is a head "
                  "size of 5, and rotary positions need an even one; choose 1, 2, 4, 5, 10 or 20 "
                  "heads, or set head_size");
  expect_contains(
      mistakes_of(replaced(example, "heads = 4", "heads = 4\nhead_size = 15"), {rotary}),
      "[model] head_size = 15 (a.toml:5) is odd, and rotary positions need an even number; choose "
      "16");
  expect_contains(mistakes_of(example, {rotary, "model.hidden=45", "model.heads=5"}),
                  "is a head size of 9, and rotary positions need an even one; set an even "
                  "head_size, or choose an even hidden");
  parse_deck(example, "a.toml", {"model.heads=8"});  // learned positions take any size
  parse_deck(example, "a.toml", {rotary, "model.heads=8", "model.head_size=6"});
}

TEST(Checks, AnExplicitHeadSizeNeedNotDivideHidden) {
  const auto size = [](const std::vector<std::string>& overrides) {
    return parse_deck(example, "a.toml", overrides).config.model.head_size();
  };
  EXPECT_EQ(size({}), 10);
  EXPECT_EQ(size({"model.heads=7", "model.head_size=12"}), 12);
  expect_contains(mistakes_of(example, {"model.heads=7"}), "heads, or set head_size");
}

TEST(Checks, RejectAMaskThatRevealsTheTarget) {
  expect_contains(
      mistakes_of(replaced(example, "heads = 4", "heads = 4\nmask = \"full\"")),
      "[model] mask = \"full\" (a.toml:5) lets each token see the token that [model] objective = "
      "\"next_token\" (default) predicts; choose mask = \"causal\", or objective = "
      "\"masked_token\"");
  expect_contains(mistakes_of(example, {"model.family=bert", "model.objective=next_token"}),
                  "[model] mask = \"full\" (default) lets each token see");
  parse_deck(example, "a.toml", {"model.mask=full", "model.objective=masked_token"});
  parse_deck(example, "a.toml", {"model.objective=masked_token"});
}

TEST(Checks, AWindowNeedsACausalMask) {
  expect_contains(
      mistakes_of(replaced(example, "heads = 4", "heads = 4\nwindow = 8"), {"model.family=bert"}),
      "[model] window = 8 (a.toml:5) needs mask = \"causal\", but [model] mask = "
      "\"full\" (default); choose window = 0, or mask = \"causal\"");
  EXPECT_EQ(parse_deck(example, "a.toml", {"model.window=8"}).config.model.window, 8);
}

TEST(Checks, PropertiesNeedThePropertyTheyModify) {
  for (const auto& [line, message] : std::vector<std::pair<const char*, const char*>>{
           {"zero_centered_gains = true",
            "[model] zero_centered_gains = true (a.toml:5) needs norm = \"rms\", but the deck has "
            "[model] norm = \"layer\" (default); choose zero_centered_gains = false, or change "
            "norm"},
           {"full_attention_every = 2",
            "[model] full_attention_every = 2 (a.toml:5) needs a window, but the deck has [model] "
            "window = 0 (default); choose full_attention_every = 0, or change window"}})
    EXPECT_EQ(mistakes_of(replaced(example, "heads = 4", text("heads = 4\n", line))), message);
  EXPECT_EQ(parse_deck(example, "a.toml", {"model.family=gemma3", "model.positions=learned"})
                .config.model.window_rope_theta,
            0)
      << "a preset that another key excludes";
}

TEST(Checks, PackedDocumentsNeedACausalNextTokenModel) {
  expect_contains(
      mistakes_of(example, {"model.family=bert", "data.packing=documents"}),
      "[data] packing = \"documents\" (command line) needs objective = \"next_token\", but [model] "
      "objective = \"masked_token\" (default) trains on pairs of segments; set packing = \"none\"");
  expect_contains(
      mistakes_of(example, {"model.mask=full", "data.packing=documents"}),
      "[data] packing = \"documents\" (command line) needs mask = \"causal\", but [model] "
      "mask = \"full\" (command line); choose packing = \"none\", or mask = \"causal\"");
  expect_contains(mistakes_of(example, {"data.packing=samples"}), "none");
  EXPECT_FALSE(parse_deck(example, "a.toml").config.model.packs_documents());
  EXPECT_TRUE(
      parse_deck(example, "a.toml", {"data.packing=documents"}).config.model.packs_documents());
}

TEST(Checks, SharedLayersMustNotExceedLayers) {
  expect_contains(
      mistakes_of(replaced(example, "heads = 4", "heads = 4\nshared_layers = 3")),
      "[model] shared_layers = 3 (a.toml:5) is more than [model] layers = 2 (a.toml:2); "
      "choose at most 2");
  for (const char* shared : {"model.shared_layers=0", "model.shared_layers=2"})
    parse_deck(example, "a.toml", {shared});
}

TEST(Checks, ImagesNeedSizesThatFit) {
  const std::vector<std::string> images{"vision.layers=2", "vision.hidden=24", "vision.heads=3",
                                        "vision.image=12", "vision.patch=4"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = images;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const ModelConfig m = parse_deck(example, "a.toml", images).config.model;
  EXPECT_EQ(m.all_layers(), 5) << "of the encoder, the projector, and of the model";
  EXPECT_EQ(m.vision.feed_forward, 96);
  EXPECT_EQ(m.vision.tokens(), 9);
  EXPECT_EQ(m.source_rows(), 10);
  EXPECT_EQ(m.most_tensor_ranks(), 3);
  for (
      const auto& [key, message] : std::vector<std::pair<const char*, const char*>>{
          {"vision.heads=5",
           "[vision] heads = 5 (command line) does not divide [vision] hidden = 24 (command line); "
           "choose 2, 3, 4, 6, 8 or 12 heads"},
          {"vision.hidden=0",
           "[vision] layers = 2 (command line) needs [vision] hidden = 0 (command line) to be 1 or "
           "more; set it"},
          {"vision.patch=5",
           "[vision] patch = 5 (command line) does not divide [vision] image = 12 (command line); "
           "choose a patch of 1, 2, 3, 4, 6 or 12"},
          {"vision.patch=1",
           "[model] sequence = 16 (a.toml:5) is less than the 144 tokens of an image with [vision] "
           "image = 12 (command line) and [vision] patch = 1 (command line)"},
          {"parallel.tensor=4",
           "[parallel] tensor = 4 (command line) is larger than [vision] heads = 3 (command line)"},
          {"parallel.context=2", "choose context = 1"},
          {"data.packing=documents", "choose packing = \"none\""},
          {"model.predicts=2", "choose predicts = 1"},
          {"model.norm_placement=post", "choose norm_placement = \"pre\""},
          {"parallel.layout=auto", "choose layout = \"given\""},
          {"parallel.partition=[1, 3]", "has 4 layers in all"}})
    expect_contains(mistakes_of(example, with({key})), message);
  for (const auto& [key, message] : std::vector<std::pair<std::string, std::string>>{
           {"vision.pool=2",
            "[vision] pool = 2 (command line) has no effect with [vision] family = \"clip\""},
           {"vision.family=gemma3",
            "does not divide the 3 patches of a side of [vision] image = 12 (command line); choose "
            "1 or 3"}})
    expect_contains(mistakes_of(example, with({key})), message);
  const ModelConfig pooled =
      parse_deck(example, "a.toml",
                 {"vision.layers=2", "vision.hidden=24", "vision.heads=3", "vision.image=16",
                  "vision.patch=1", "vision.family=gemma3"})
          .config.model;
  EXPECT_EQ(pooled.vision.pool, 4);
  EXPECT_EQ(pooled.vision.tokens(), 16);
  expect_contains(mistakes_of(example, {"vision.hidden=24"}),
                  "[vision] hidden = 24 (command line) has no effect with [vision] layers = 0 "
                  "(default); set layers, or remove hidden");
  expect_contains(
      mistakes_of(example, {"model.family=t5", "encoder.sequence=512", "model.sequence=114",
                            images[0], images[1], images[2], images[3], images[4]}),
      "[vision] layers = 2 (command line) cannot be combined with [encoder] layers = 2");
}

TEST(Checks, AnEncoderNeedsLengthsThatFit) {
  const std::vector<std::string> t5{"model.family=t5", "encoder.sequence=512",
                                    "model.sequence=114"};
  const ModelConfig m = parse_deck(example, "a.toml", t5).config.model;
  EXPECT_EQ(m.encoder.layers, 2);
  EXPECT_EQ(m.all_layers(), 4);
  EXPECT_EQ(m.text_tokens(), 568);
  EXPECT_TRUE(m.scaled_logits);
  EXPECT_FALSE(parse_deck(example, "a.toml", {t5[0], t5[1], t5[2], "model.tied_embeddings=false"})
                   .config.model.scaled_logits);
  expect_contains(
      mistakes_of(example, {t5[0], t5[1], "model.sequence=120"}),
      "[model] sequence = 120 (command line), but 512 source tokens with noise 0.15 and "
      "span 3 give 114; choose sequence = 114");
  expect_contains(
      mistakes_of(example, {t5[0]}),
      "[encoder] layers = 2 (default) needs [encoder] sequence = 0 (default) to be 3 or "
      "more");
  for (const auto& [key, message] : std::vector<std::pair<const char*, const char*>>{
           {"parallel.context=2",
            "cannot be combined with [parallel] context = 2 (command line); "
            "choose context = 1"},
           {"model.norm_placement=post", "needs norm_placement = \"pre\""},
           {"experts.number=4", "cannot be combined with [experts] number = 4"},
           {"data.packing=documents", "cannot be combined with [data] packing"},
           {"parallel.partition=[1, 1]",
            "has 2 layers in all, but [encoder] layers = 2 (default) "
            "and [model] layers = 2"}})
    expect_contains(mistakes_of(example, {t5[0], t5[1], t5[2], key}), message);
  for (const auto& [key, message] : std::vector<std::pair<const char*, const char*>>{
           {"encoder.noise=0.5",
            "[encoder] noise = 0.5 (command line) has no effect with [encoder] "
            "layers = 0 (default); set layers, or remove noise"},
           {"model.positions=relative", "needs an encoder, but the deck has [encoder] layers = 0"},
           {"model.objective=corrupted_spans", "needs an encoder"},
           {"model.objective=sequence_to_sequence", "needs an encoder"}})
    expect_contains(mistakes_of(example, {key}), message);
}

TEST(Checks, PairsHaveFreeLengthsAndNoSpans) {
  const std::vector<std::string> pairs{"model.family=t5", "encoder.sequence=2", "model.sequence=90",
                                       "model.objective=sequence_to_sequence"};
  const auto with = [&](const char* key) {
    std::vector<std::string> keys = pairs;
    keys.emplace_back(key);
    return keys;
  };
  EXPECT_EQ(
      parse_deck(example, "a.toml", with("data.packing=documents")).config.model.text_tokens(), 90);
  for (const auto& [key, message] : std::vector<std::pair<const char*, const char*>>{
           {"encoder.sequence=0", "needs [encoder] sequence = 0 (command line) to be 1 or more"},
           {"encoder.noise=0.3",
            "[encoder] noise = 0.3 (command line) has no effect with [model] objective = "
            "\"sequence_to_sequence\" (command line), which corrupts no spans; remove noise"},
           {"encoder.span=4", "[encoder] span = 4.0 (command line) has no effect"}})
    expect_contains(mistakes_of(example, with(key)), message);
}

TEST(Checks, IdsOfAnEncoderAreInTheVocabularyAndApart) {
  const std::vector<std::string> t5{"model.family=t5", "encoder.sequence=512", "model.sequence=114",
                                    "model.vocabulary=400"};
  const Config config = parse_deck(example, "a.toml", t5).config;
  const SpanIds ids = span_ids(config);
  EXPECT_EQ(ids.start, 399);
  EXPECT_EQ(ids.end, 398);
  EXPECT_EQ(ids.sentinel, 397);
  for (const auto& [key, message] : std::vector<std::pair<const char*, const char*>>{
           {"data.start_token=400",
            "[data] start_token = 400 (command line) is not a token id of [model] vocabulary = 400 "
            "(command line); choose at most 399, or a larger vocabulary"},
           {"data.end_token=400", "[data] end_token = 400 (command line) is not a token id"},
           {"data.sentinel_token=500", "[data] sentinel_token = 500 (command line) is not a token"},
           {"data.sentinel_token=26",
            "[data] sentinel_token = 26 (command line) leaves ids for 27 of the 28 sentinels of a "
            "sample; choose 27 or more"},
           {"data.end_token=380",
            "[data] end_token = 380 is one of the sentinels 371 to 398 of a sample"}}) {
    std::vector<std::string> keys = t5;
    keys.emplace_back(key);
    expect_contains(mistakes_of(example, keys), message);
  }
}

TEST(Checks, ModulesOfFurtherTokensNeedADecoder) {
  const ModelConfig m = parse_deck(example, "a.toml", {"model.predicts=3"}).config.model;
  EXPECT_EQ(m.modules(), 2);
  EXPECT_EQ(m.all_layers(), 4);
  EXPECT_EQ(m.module_weight(), 0.15);
  expect_contains(mistakes_of(example, {"model.predict_weight=0.1"}),
                  "[model] predict_weight = 0.1 (command line) has no effect with [model] "
                  "predicts = 1 (default); choose predicts = 2, or remove predict_weight");
  expect_contains(mistakes_of(example, {"model.predicts=0"}), "model.predicts");
  expect_contains(mistakes_of(example, {"model.predicts=9"}), "model.predicts");
  for (const auto& [key, message] : std::vector<std::pair<const char*, const char*>>{
           {"model.family=bert",
            "needs objective = \"next_token\", but the deck has [model] "
            "objective = \"masked_token\" (default); choose predicts = 1"},
           {"model.norm_placement=post",
            "cannot be combined with [model] norm_placement = \"post\" (command line); choose "
            "norm_placement = \"pre\", or predicts = 1"},
           {"model.shared_layers=1", "cannot be combined with [model] shared_layers = 1"},
           {"adapter.kind=lora", "cannot be combined with [adapter] kind = \"lora\""},
           {"parallel.vocabulary=pipeline", "cannot be combined with [parallel] vocabulary"},
           {"model.sequence=1", "is more than [model] sequence = 1 (command line); choose at most"},
           {"parallel.partition=[2]",
            "has 2 layers in all, but [model] layers = 2 (a.toml:2), and [model] predicts = 2 "
            "(command line) adds 1; change one of the stages"}})
    expect_contains(mistakes_of(example, {"model.predicts=2", key}), message);
}

TEST(Checks, AnInvalidKeyIsReportedOnce) {
  const std::string message = mistakes_of(example, {"model.heads=0"});
  EXPECT_EQ(message.find("does not divide"), std::string::npos) << message;
}

}  // namespace
}  // namespace trireme::deck
