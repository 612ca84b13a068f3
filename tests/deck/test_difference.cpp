#include <trireme/deck/deck.hpp>
#include <trireme/deck/table.hpp>

#include <gtest/gtest.h>

#include "deck/example.hpp"

namespace trireme::deck {
namespace {

TEST(Difference, IsEmptyForAResolvedDeck) {
  const Deck deck = parse_deck(example, "a.toml", {"run.time_limit=01:00:00", "model.dropout=0.1"});
  EXPECT_TRUE(differences(parse_deck(resolved_toml(deck), "stored/deck.toml"), deck).empty());
}

TEST(Difference, ShowsBothValuesAndTheCurrentOrigin) {
  const Deck stored = parse_deck(example, "stored/deck.toml");
  const Deck current = parse_deck(replaced(example, "heads = 4", "heads = 5"), "a.toml",
                                  {"data.train=other.h5", "run.steps=7"});
  const auto found = differences(stored, current);
  ASSERT_EQ(found.size(), 5u) << "decay_steps follows steps, key_value_heads heads";
  const auto expect = [&](std::size_t i, const std::string& name, const std::string& before,
                          const std::string& now, const std::string& place) {
    EXPECT_EQ(found[i].full_name(), name);
    EXPECT_EQ(found[i].stored, before);
    EXPECT_EQ(found[i].current, now);
    EXPECT_EQ(found[i].place, place);
  };
  expect(0, "run.steps", "100", "7", "command line");
  expect(1, "model.heads", "4", "5", "a.toml:4");
  expect(2, "model.key_value_heads", "4", "5", "default");
  expect(3, "optimizer.decay_steps", "100", "7", "default");
  expect(4, "data.train", "\"data/corpus.h5\"", "\"other.h5\"", "command line");
}

TEST(Difference, OmitsWidthsOfExpertsThatNoDeckHas) {
  const auto deck = [](const std::string& width, const std::string& experts) {
    return parse_deck(
        example, "a.toml",
        {"model.biases=none", "model.feed_forward=" + width, "experts.number=" + experts});
  };
  EXPECT_EQ(differences(deck("8", "0"), deck("9", "0")).size(), 1u);
  EXPECT_EQ(differences(deck("8", "4"), deck("9", "4")).size(), 2u);
}

TEST(Difference, OnlySchedulesThatDelayGradientsAffectTraining) {
  const auto effect = [](const char* before, const char* now) {
    const auto deck = [](const char* schedule) {
      return parse_deck(example, "a.toml", {std::string("parallel.schedule=") + schedule});
    };
    const auto found = differences(deck(before), deck(now));
    EXPECT_EQ(found.size(), 1u);
    return found.front().effect;
  };
  EXPECT_EQ(effect("1f1b", "gpipe"), Effect::none);
  EXPECT_EQ(effect("1f1b", "2bw"), Effect::training);
  EXPECT_EQ(effect("2bw", "zb-h1"), Effect::training);
}

TEST(Difference, AnEncoderHasTheSameWeightsForSpansAndPairs) {
  const auto deck = [](const char* family, const char* objective) {
    return parse_deck(example, "a.toml",
                      {text("model.family=", family), text("model.objective=", objective),
                       "encoder.sequence=512", "model.sequence=114"});
  };
  const auto found = differences(deck("t5", "corrupted_spans"), deck("t5", "sequence_to_sequence"));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found.front().effect, Effect::numbers);
}

TEST(Difference, SequenceAffectsOnlyModelsWithDependentPositions) {
  const auto found = [](const std::string& before, const std::string& now,
                        const std::vector<std::string>& keys) {
    const auto deck = [&](const std::string& sequence) {
      auto all = keys;
      all.push_back("model.sequence=" + sequence);
      return parse_deck(example, "a.toml", all);
    };
    const auto differences = deck::differences(deck(before), deck(now));
    EXPECT_EQ(differences.size(), 1u);
    const auto [effect, reason] =
        effect_of_sequence(deck(before).config.model, deck(now).config.model);
    EXPECT_EQ(differences.front().effect, effect);
    EXPECT_EQ(reason.empty(), effect == Effect::numbers);
    return effect;
  };
  EXPECT_EQ(found("32", "64", {}), Effect::model);
  EXPECT_EQ(found("32", "64", {"model.family=bert"}), Effect::model);
  EXPECT_EQ(found("64", "32", {"model.family=llama"}), Effect::numbers);
  EXPECT_EQ(found("32", "64", {"model.positions=rotary"}), Effect::numbers);
  const auto scaled = [](const std::string& kind) {
    return std::vector<std::string>{"model.family=llama", "model.rope_scaling=" + kind,
                                    "model.rope_factor=4", "model.rope_original_sequence=32",
                                    "model.rope_high_frequency_factor=8"};
  };
  for (const char* kind : {"linear", "yarn", "llama3"})
    EXPECT_EQ(found("64", "128", scaled(kind)), Effect::numbers) << kind;
  EXPECT_EQ(found("64", "128", scaled("dynamic")), Effect::function);
  EXPECT_EQ(found("32", "16", scaled("dynamic")), Effect::numbers)
      << "up to the original sequence the positions are the same";
}

TEST(Difference, DetectsEveryKeyOfTheTable) {
  // Without experts, an encoder or images, the other keys of their sections have no effect.
  Deck stored = parse_deck(example, "stored/deck.toml", {"model.family=mixtral"});
  stored.config.model.encoder.layers = stored.config.model.vision.layers = 2;
  for (const Key& key : keys()) {
    Deck current = stored;
    Value value = key.load(stored.config);
    if (auto* flag = std::get_if<bool>(&value)) *flag = !*flag;
    if (auto* integer = std::get_if<std::int64_t>(&value)) ++*integer;
    if (auto* number = std::get_if<double>(&value))
      *number += key.type == KeyType::duration ? 1 : 1e-9;
    if (auto* string = std::get_if<std::string>(&value)) {
      if (key.choices.empty()) *string += "x";
      for (const auto word : key.choices)
        if (*string != word) {
          *string = word;
          break;
        }
    }
    if (auto* words = std::get_if<Words>(&value)) words->push_back("x");
    if (auto* integers = std::get_if<Integers>(&value)) integers->push_back(1);
    if (value == key.load(stored.config)) continue;  // a choice of one word
    key.store(current.config, value);
    const auto found = differences(stored, current);
    ASSERT_EQ(found.size(), 1u) << key.full_name();
    EXPECT_EQ(found[0].full_name(), key.full_name());
    EXPECT_NE(found[0].stored, found[0].current);
  }
}

}  // namespace
}  // namespace trireme::deck
