// The fields of a batch that a rank of the context axis takes from those of whole samples.
#include <trireme/architecture/placement.hpp>
#include <trireme/data/batch_reader.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace trireme::data {
namespace {

using Memory = std::vector<std::vector<std::int32_t>>;

std::vector<std::span<std::int32_t>> views(Memory& memory) {
  return {memory.begin(), memory.end()};
}

/// The fields of a batch on each of three context ranks.
struct Cut {
  deck::ModelConfig model;
  std::int64_t micro = 2;
  architecture::TrainingObjective objective = architecture::objective_of(model);
  Memory whole;
  std::vector<Memory> own;
  std::vector<architecture::Shard> shards;

  explicit Cut(const deck::ModelConfig& m) : model(m) {
    objective = architecture::objective_of(model);
    for (const auto& field : objective.fields) {
      whole.emplace_back(static_cast<std::size_t>(micro * field.per_sample));
      std::iota(whole.back().begin(), whole.back().end(), 0);
    }
  }
  void run() {
    for (int rank = 0; rank < 3; ++rank) {
      architecture::Shard shard;
      shard.context_size = 3;
      shard.context_rank = rank;
      const auto sizes = architecture::rank_sizes(model, shard, micro, model.sequence, false,
                                                  architecture::host_logit_elements);
      own.emplace_back();
      for (const auto& field : objective.fields)
        own.back().emplace_back(static_cast<std::size_t>(rows_of(field.rows, sizes)), -7);
      take_own_fields(objective, shard, sizes, model.sequence, views(whole), views(own.back()));
      shards.push_back(shard);
    }
  }
};

deck::ModelConfig model_of(Family family) {
  deck::ModelConfig model;
  model.family = family;
  model.sequence = 11;
  model.vocabulary = 300;
  model.hidden = 8;
  model.heads = 2;
  return model;
}

TEST(ContextFields, HoldTokensAndTargetsOfTheRanksPositions) {
  Cut cut(model_of(Family::gpt));
  cut.run();
  for (std::size_t rank = 0; rank < 3; ++rank) {
    const layout::TokenPlaces places = cut.shards[rank].places(11);
    for (const auto& field : cut.own[rank]) {
      ASSERT_EQ(std::ssize(field), 2 * places.held);
      for (std::int64_t row = 0; row < std::ssize(field); ++row)
        EXPECT_EQ(field[static_cast<std::size_t>(row)], places.row(row));
    }
  }
}

TEST(ContextFields, RanksDivideTargetsAndNumberTheirOwnRows) {
  deck::ModelConfig bert = model_of(Family::bert);
  bert.objective = Objective::masked_token;
  bert.mask = Mask::full;
  bert.sentence_loss = SentenceLoss::next;
  Cut cut(bert);
  const std::size_t rows = cut.objective.field("rows"), targets = cut.objective.field("targets"),
                    pairs = cut.objective.field("pairs");
  for (std::size_t i = 0; i < cut.whole[rows].size(); ++i)  // some tokens of both samples
    cut.whole[rows][i] = static_cast<std::int32_t>(7 * i % 22);
  cut.run();
  std::vector<std::int32_t> all_targets, all_pairs;
  std::vector<int> holders(cut.whole[rows].size());
  for (std::size_t rank = 0; rank < 3; ++rank) {
    const Memory& own = cut.own[rank];
    all_targets.insert(all_targets.end(), own[targets].begin(), own[targets].end());
    all_pairs.insert(all_pairs.end(), own[pairs].begin(), own[pairs].end());
    ASSERT_EQ(own[rows].size(), holders.size());
    for (std::size_t i = 0; i < holders.size(); ++i) {
      if (own[rows][i] < 0) continue;
      ++holders[i];
      EXPECT_EQ(cut.shards[rank].places(11).row(own[rows][i]), cut.whole[rows][i]);
    }
  }
  EXPECT_EQ(all_targets, cut.whole[targets]);
  EXPECT_EQ(all_pairs, cut.whole[pairs]);
  EXPECT_EQ(holders, std::vector<int>(holders.size(), 1));
}

}  // namespace
}  // namespace trireme::data
