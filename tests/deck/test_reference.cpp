#include <trireme/deck/deck.hpp>

#include <trireme/deck/table.hpp>

#include <gtest/gtest.h>

#include <set>

#include "deck/example.hpp"
#include "support/temporary_folder.hpp"

namespace trireme::deck {
namespace {

TEST(Reference, DocumentedPageMatchesTheTable) {
  EXPECT_TRUE(testing::read_file(TRIREME_SOURCE_DIR "/docs/deck.md") == reference_markdown())
      << "update with: trireme help deck --markdown > docs/deck.md";
}

TEST(Reference, TextNamesEveryKeyOfEverySection) {
  const std::string help = reference_text();
  for (const Section& section : sections()) expect_contains(help, "\n[" + section.name + "]");
  for (const Key& key : keys()) {
    expect_contains(help, "\n  " + key.name + " ");
    EXPECT_FALSE(key.help.empty()) << key.full_name();
  }
}

TEST(Table, EveryKeyHasASectionAndIsDeclaredOnce) {
  std::set<std::string> names, known;
  for (const Section& section : sections()) known.insert(section.name);
  for (const Key& key : keys()) {
    EXPECT_TRUE(known.contains(key.section)) << key.full_name();
    EXPECT_TRUE(names.insert(key.full_name()).second) << key.full_name();
    EXPECT_EQ(find_key(key.section, key.name), &key);
  }
}

TEST(Table, EveryKeyHasItsOwnField) {
  for (const Key& changed : keys()) {
    if (changed.type != KeyType::integer) continue;
    Config config;
    changed.store(config, Value(std::int64_t{12345}));
    for (const Key& key : keys())
      if (key.type == KeyType::integer && &key != &changed) {
        EXPECT_NE(key.load(config), Value(std::int64_t{12345}))
            << changed.full_name() << " " << key.full_name();
      }
  }
}

/// Rotary positions may be scaled for longer sequences from some step on.
bool scales_rotary(const Key& key) {
  return key.name.starts_with("rope_") && key.name != "rope_theta";
}

std::set<std::string> keys_with(Effect effect) {
  std::set<std::string> names;
  for (const Key& key : keys())
    if (key.effect == effect) names.insert(key.full_name());
  return names;
}

/// Training and evaluation refuse a checkpoint whose deck has other values for these keys.
TEST(Table, RecordsWhichKeysDefineTheModel) {
  std::set<std::string> expected{"data.class_token",
                                 "data.separator_token",
                                 "data.mask_token",
                                 "experts.number",
                                 "experts.shared_feed_forward",
                                 "experts.shared_gate",
                                 "experts.feed_forward",
                                 "experts.first_layer",
                                 "experts.every",
                                 "experts.score",
                                 "experts.choice_bias",
                                 "encoder.layers",
                                 "vision.family",
                                 "vision.layers",
                                 "vision.hidden",
                                 "vision.heads",
                                 "vision.feed_forward",
                                 "vision.image",
                                 "vision.patch",
                                 "vision.pool",
                                 "data.start_token",
                                 "data.end_token",
                                 "data.sentinel_token"};
  for (const Key& key : keys())
    if (key.section == "model" && key.name != "dropout" && key.name != "masked_share" &&
        key.name != "predict_weight" && key.name != "sequence" && !scales_rotary(key))
      expected.insert(key.full_name());
  EXPECT_EQ(keys_with(Effect::model), expected);
  for (const char* property : {"norm", "head_size", "window", "shared_layers", "objective"})
    EXPECT_TRUE(expected.contains(std::string("model.") + property)) << property;
}

TEST(Table, RecordsWhichKeysChangeResults) {
  std::set<std::string> training{
      "model.dropout",        "model.predict_weight",          "adapter.dropout",
      "precision.loss_scale", "precision.loss_scale_interval", "experts.balance_weight",
      "experts.z_weight"};
  std::set<std::string> both{"run.seed",      "model.masked_share", "data.packing", "experts.rows",
                             "encoder.noise", "encoder.span",       "vision.images"};
  std::set<std::string> function{"experts.active", "experts.normalised",    "experts.scale",
                                 "experts.groups", "experts.active_groups", "experts.capacity"};
  for (const Key& key : keys()) {
    if (key.section == "optimizer" || key.section == "local") training.insert(key.full_name());
    if (key.section == "precision" && !training.contains(key.full_name()))
      both.insert(key.full_name());
    if (scales_rotary(key)) function.insert(key.full_name());
  }
  EXPECT_EQ(both.erase("precision.compute"), 1u);
  for (const char* other : {"optimizer.kind", "optimizer.momentum", "optimizer.frozen"})
    EXPECT_EQ(training.erase(other), 1u) << other;
  EXPECT_EQ(keys_with(Effect::training), training);
  EXPECT_EQ(keys_with(Effect::numbers), both);
  EXPECT_EQ(keys_with(Effect::function), function);
  EXPECT_EQ(keys_with(Effect::length),
            (std::set<std::string>{"model.sequence", "encoder.sequence"}));
  EXPECT_EQ(
      keys_with(Effect::state),
      (std::set<std::string>{"optimizer.kind", "optimizer.momentum", "optimizer.frozen",
                             "experts.balance", "experts.bias_rate", "adapter.also_trained"}));
  EXPECT_EQ(keys_with(Effect::adapter),
            (std::set<std::string>{"adapter.kind", "adapter.rank", "adapter.alpha",
                                   "adapter.scaling", "adapter.targets", "adapter.parts"}));
  EXPECT_EQ(keys_with(Effect::storage), std::set<std::string>{"precision.compute"});
  EXPECT_EQ(keys_with(Effect::samples), std::set<std::string>{"data.train"});
  EXPECT_EQ(keys_with(Effect::batches),
            (std::set<std::string>{"batch.global", "batch.ramp_start", "batch.ramp_increment",
                                   "batch.ramp_samples"}));
  EXPECT_EQ(keys_with(Effect::place),
            (std::set<std::string>{"run.directory", "checkpoint.directory", "checkpoint.local",
                                   "checkpoint.restart"}));
}

/// The layout never changes the answer.
TEST(Table, LayoutKeysDoNotChangeResults) {
  for (const Key& key : keys())
    if (key.section == "parallel") {
      EXPECT_EQ(key.effect, Effect::none) << key.full_name();
    }
}

}  // namespace
}  // namespace trireme::deck
