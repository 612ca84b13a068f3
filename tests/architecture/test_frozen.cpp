#include <trireme/architecture/adapter.hpp>
#include <trireme/architecture/frozen.hpp>
#include <trireme/architecture/placement.hpp>
#include <trireme/base/check.hpp>

#include <gtest/gtest.h>

#include <algorithm>

namespace trireme::architecture {
namespace {

deck::Deck deck_with(const std::vector<std::string>& overrides) {
  return deck::parse_deck(R"([run]
steps = 1
[model]
layers = 4
hidden = 24
heads = 4
sequence = 16
vocabulary = 31
[batch]
global = 1
micro = 1
[data]
train = "unused.h5"
)",
                          "test.toml", overrides);
}

std::string mistake(const std::vector<std::string>& overrides) {
  try {
    expect_trainable(deck_with(overrides));
  } catch (const UsageError& error) {
    return error.what();
  }
  return "none";
}

void expect_mistake(const std::vector<std::string>& overrides, const std::string& words) {
  const std::string found = mistake(overrides);
  EXPECT_NE(found.find(words), std::string::npos) << found;
}

TEST(Frozen, PatternsMatchPartsOfNames) {
  EXPECT_TRUE(matches("layers.0-3", "layers.3.attention.query"));
  EXPECT_FALSE(matches("layers.0-3", "layers.4.attention.query"));
  EXPECT_FALSE(matches("layers.1", "layers.10.attention.query"));
  EXPECT_TRUE(matches("layers.*.attention", "layers.10.attention.query_bias"));
  EXPECT_TRUE(matches("layers.*.attention.query", "layers.10.attention.query"));
  EXPECT_FALSE(matches("layers.*.attention.query", "layers.10.attention.query_bias"));
  EXPECT_TRUE(matches("embedding", "embedding.token"));
  EXPECT_FALSE(matches("embedding.token.more", "embedding.token"));
  EXPECT_FALSE(matches("", "embedding.token"));
}

TEST(Frozen, ReportsMistakesWithARemedy) {
  EXPECT_EQ(mistake({}), "none");
  EXPECT_EQ(mistake({"optimizer.frozen=embedding,layers.0-1"}), "none");
  EXPECT_EQ(mistake({"adapter.kind=lora"}), "none");
  EXPECT_EQ(mistake({"adapter.kind=dora", "parallel.shard=weights"}), "none");
  expect_mistake({"optimizer.frozen=layers.4"}, "\"layers.4\" names no array of the model");
  expect_mistake({"adapter.kind=lora", "adapter.also_trained=output.weight"},
                 "[adapter] also_trained = [\"output.weight\"] (command line): \"output.weight\" "
                 "names no array");
  expect_mistake({"optimizer.frozen=embedding,layers,final_norm"}, "nothing would be trained");
  expect_mistake({"adapter.kind=lora", "optimizer.frozen=layers"}, "that [adapter] trains");
  expect_mistake({"optimizer.frozen=layers.2.attention.query"},
                 "names layers.2.attention.query, not layers.2.attention.key_value");
  expect_mistake({"optimizer.frozen=final_norm.gain"}, "not final_norm.bias");
  expect_mistake({"optimizer.frozen=layers.0", "model.shared_layers=2"}, "shared_layers = 0");
  expect_mistake({"adapter.kind=lora", "parallel.pipeline=2", "parallel.vocabulary=pipeline"},
                 "vocabulary = \"stage\"");
}

TEST(Frozen, FrozenArraysFollowTrainedArrays) {
  const Architecture a = describe(
      deck_with({"optimizer.frozen=embedding,layers.1,layers.*.feed_forward"}).config.model);
  EXPECT_EQ(a.first_trained, block_of_layer(0));
  const Shard shard = whole_model(a);
  const auto arrays = rank_arrays(a, shard);
  const Placement placement = place(a, shard, arrays);
  EXPECT_LT(placement.trained, placement.elements);
  EXPECT_EQ(placement.tied_elements, 0);
  EXPECT_EQ(placement.gradient_elements, placement.trained);
  for (std::size_t i = 0; i < arrays.size(); ++i)
    EXPECT_EQ(placement.offset[i] >= placement.trained, a.arrays[arrays[i].number].frozen)
        << a.arrays[arrays[i].number].name;
  EXPECT_LT(a.model_flops_per_token(), a.all_flops_per_token());
}

TEST(Frozen, OmitsWeightGradientsOfFrozenProducts) {
  const BlockDescription layer =
      describe_layer(deck_with({"optimizer.frozen=layers.*.feed_forward"}).config.model, 1);
  for (const Operation& op : layer.operations)
    if (op.kind == OperationKind::linear) {
      EXPECT_EQ(has_pass(op, Pass::backward_weight), !op.name.starts_with("feed_forward"))
          << op.name;
    }
}

TEST(RateFactors, BelongToTheArraysOfTheirPatterns) {
  const deck::Config c =
      deck_with({"optimizer.rate_factors=0.5 layers.1-2.attention,3 embedding.token"}).config;
  const Architecture a = describe(c.model);
  const std::vector<double> factors = rate_factors(a, c.optimizer);
  ASSERT_EQ(factors.size(), a.arrays.size());
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const std::string& name = a.arrays[i].name;
    const bool half =
        name.starts_with("layers.1.attention.") || name.starts_with("layers.2.attention.");
    EXPECT_EQ(factors[i], half ? 0.5 : name == "embedding.token" ? 3 : 1) << name;
  }
  EXPECT_TRUE(rate_factors(a, deck_with({}).config.optimizer).empty());
}

TEST(RateFactors, NameTrainedArraysOnce) {
  expect_mistake({"optimizer.rate_factors=0.1 embedding,0.2 layers,3 final_norm"}, "none");
  expect_mistake({"optimizer.rate_factors=0.1 vision"},
                 "rate_factors = [\"0.1 vision\"] (command line): \"vision\" names no array of the "
                 "model; examples of names are embedding.token");
  expect_mistake({"optimizer.rate_factors=0.1 layers.0-2,0.2 layers.*.attention"},
                 "\"0.1 layers.0-2\" and \"0.2 layers.*.attention\" both name "
                 "layers.0.attention.query; let each array have one factor");
  expect_mistake({"optimizer.rate_factors=0.1 embedding", "optimizer.frozen=embedding"},
                 "\"embedding\" names only arrays that are not trained by a learning rate; remove "
                 "\"0.1 embedding\", or train them ([optimizer] frozen = [\"embedding\"]");
  expect_mistake({"optimizer.rate_factors=0.1 layers", "optimizer.frozen=layers.0"}, "none");
  expect_mistake(
      {"optimizer.rate_factors=16 layers.*.attention.query.adapter_b", "adapter.kind=lora"},
      "none");
}

TEST(Adapters, OneFactorIsSplitAndTheOtherIsWhole) {
  const Architecture a =
      describe(deck_with({"adapter.kind=lora", "adapter.rank=3", "model.family=llama",
                          "model.key_value_heads=2",
                          "adapter.targets=attention.query,attention.key_value,attention.output,"
                          "feed_forward.gate_up,feed_forward.down"})
                   .config.model);
  const auto shape_of = [&](const char* name) {
    return std::ranges::find(a.arrays, std::string("layers.1.") + name, &ArraySpec::name)->shape;
  };
  using Shape = std::vector<std::int64_t>;
  EXPECT_EQ(shape_of("attention.query.adapter_a"), (Shape{3, 24}));
  EXPECT_EQ(shape_of("attention.query.adapter_b"), (Shape{4, 6, 3}));
  EXPECT_EQ(shape_of("attention.key_value.adapter_a"), (Shape{2, 3, 24}));
  EXPECT_EQ(shape_of("attention.key_value.adapter_b"), (Shape{2, 2, 6, 3}));
  EXPECT_EQ(shape_of("attention.output.adapter_a"), (Shape{3, 4, 6}));
  EXPECT_EQ(shape_of("attention.output.adapter_b"), (Shape{24, 3}));
  EXPECT_EQ(shape_of("feed_forward.gate_up.adapter_b"), (Shape{2, 96, 3}));
  EXPECT_EQ(shape_of("feed_forward.down.adapter_a"), (Shape{3, 96}));
  for (const ArraySpec& array : a.arrays) {
    EXPECT_EQ(array.frozen, !array.adapter) << array.name;
    if (array.adapter) {
      EXPECT_NE(array.tensor_cut() != nullptr, array.partial_gradient) << array.name;
    }
  }
}

}  // namespace
}  // namespace trireme::architecture
