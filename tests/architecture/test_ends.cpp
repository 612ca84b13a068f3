#include <trireme/architecture/architecture.hpp>
#include <trireme/architecture/block_program.hpp>
#include <trireme/architecture/ends.hpp>
#include <trireme/architecture/placement.hpp>

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <utility>

#include "architecture/small_model.hpp"

namespace trireme::architecture {
namespace {

constexpr std::int64_t micro = 5;

deck::ModelConfig tied_model(Family family, bool tied = true,
                             SentenceLoss sentence_loss = SentenceLoss::next) {
  deck::ModelConfig m = model_of(family, sentence_loss);
  m.tied_embeddings = tied;
  return m;
}

RankSizes sizes_of_five_samples(const deck::ModelConfig& m, int tensor = 1) {
  Shard shard = whole_model(describe(m));
  shard.tensor_size = tensor;
  return rank_sizes(m, shard, micro, m.sequence, false, host_logit_elements);
}

TEST(Ends, RowsOfAMicroBatchSumOverItsSamples) {
  for (const Family family : {Family::gpt, Family::bert})
    for (const SentenceLoss loss : {SentenceLoss::next, SentenceLoss::none}) {
      const deck::ModelConfig m = tied_model(family, true, loss);
      for (const Rows::Kind rows : {Rows::tokens, Rows::own, Rows::targets, Rows::pairs,
                                    Rows::head_rows, Rows::logit_block}) {
        if (rows == Rows::pairs && !m.has_sentence_head()) continue;
        EXPECT_EQ(rows_of(rows, sizes_of_five_samples(m)), micro * rows_per_sample(rows, m))
            << name_of(family) << ", " << shape_text({"", rows});
      }
    }
}

TEST(Ends, ListEachArrayOnce) {
  for (const Family family : {Family::gpt, Family::llama, Family::bert})
    for (const bool tied : {false, true}) {
      const Architecture a = describe(tied_model(family, tied));
      std::set<std::string> names;
      for (const ArraySpec& array : a.arrays) EXPECT_TRUE(names.insert(array.name).second);
      EXPECT_EQ(names.contains("output.weight"), !tied);
      for (const BlockDescription* part : {&a.embedding(), &a.head()})
        for (const Operation& op : part->operations)
          for (const ArraySpec& array : op.arrays)
            EXPECT_TRUE(names.contains(array.name)) << array.name;
    }
}

TEST(Ends, TiedAndUntiedLogitsCostTheSame) {
  for (const Family family : {Family::gpt, Family::bert})
    EXPECT_EQ(describe(tied_model(family, true)).head_products(),
              describe(tied_model(family, false)).head_products());
}

using Sent = std::multiset<std::string>;

/// "logits backward_input all-reduce [N, D]" of all messages of a part.
Sent sent(const BlockDescription& part, bool cuts_tokens) {
  Sent all;
  for (const Operation& op : part.operations)
    for (const auto& [pass, name] :
         std::map<Pass, std::string>{{Pass::forward, " forward "},
                                     {Pass::backward_input, " backward_input "},
                                     {Pass::backward_weight, " backward_weight "}}) {
      if (const auto message = message_of(op, pass, part.tensors, cuts_tokens))
        all.insert(op.name + name + std::string(name_of(message->collective)) + " " +
                   shape_text(part.tensors[static_cast<std::size_t>(message->tensor)]));
    }
  return all;
}

TEST(Ends, OnlyTableAndLogitsAreSplit) {
  for (const Family family : {Family::gpt, Family::llama, Family::bert}) {
    const auto embedding = describe_embedding(tied_model(family));
    EXPECT_EQ(sent(embedding, false), Sent{"embedding forward all-reduce [R, D]"});
    EXPECT_EQ(sent(embedding, true), (Sent{"embedding forward reduce-scatter [R, D]",
                                           "embedding backward_weight all-gather [R, D]"}));
  }
  const auto next = describe_head(tied_model(Family::gpt));
  EXPECT_EQ(sent(next, false), (Sent{"cross entropy forward all-gather [N', 3 P]",
                                     "logits backward_input all-reduce [R, D]"}));
  EXPECT_EQ(sent(next, true),
            (Sent{"cross entropy forward all-gather [N', 3 P]", "logits forward all-gather [R, D]",
                  "logits backward_input reduce-scatter [R, D]"}));
  // All ranks have the rows of the head of masked tokens.
  const auto masked = describe_head(tied_model(Family::bert));
  EXPECT_EQ(sent(masked, false), (Sent{"cross entropy forward all-gather [N', 3 P]",
                                       "logits backward_input all-reduce [N, D]"}));
  EXPECT_EQ(sent(masked, true), (Sent{"cross entropy forward all-gather [N', 3 P]",
                                      "head's rows forward all-reduce [N + B, D]",
                                      "logits backward_input all-reduce [N, D]"}));
}

Bytes up(Bytes bytes) {
  return (bytes + 63) / 64 * 64;
}

TEST(Ends, LogitScratchHoldsANarrowerGradient) {
  const deck::ModelConfig m = tied_model(Family::llama);
  const auto head = describe_head(m);
  const RankSizes n = sizes_of_five_samples(m, 4);  // 100 targets, in one block; 25 of 100 ids
  const Bytes statistics = up(100 * 8) + up(3 * 100 * 8 * 4) + up(3 * 100 * 8);
  EXPECT_EQ(bytes_at(Home::scratch, head, n, 4, 4), 100 * up(25 * 4) + statistics);
  EXPECT_EQ(bytes_at(Home::scratch, head, n, 2, 4),
            100 * up(25 * 4) + 100 * up(25 * 2) + statistics);
  EXPECT_EQ(bytes_at(Home::batch, head, n, 2, 4), up(100 * 4));
  EXPECT_EQ(bytes_at(Home::slot, head, n, 2, 4), 2 * up(100 * 48 * 2) + up(100 * 4));
}

/// Every number by hand: 15 targets and 5 pairs.
TEST(Ends, CountScratchOfMaskedTokensAndPairs) {
  const deck::ModelConfig m = tied_model(Family::bert);
  const auto head = describe_head(m);
  const RankSizes n = sizes_of_five_samples(m);
  const Bytes logits = 15 * up(100 * 4) + 15 * up(100 * 2) + up(15 * 8) + 2 * up(3 * 15 * 8);
  const Bytes masked = up(20 * 48 * 2) + 3 * up(15 * 48 * 2) + 2 * up(15 * 4);
  const Bytes pairs =
      2 * up(5 * 48 * 2) + up(5 * 2 * 4) + up(5 * 2 * 2) + up(5 * 8) + 2 * up(3 * 5 * 8);
  EXPECT_EQ(bytes_at(Home::scratch, head, n, 2, 4), logits + masked + pairs);
  EXPECT_EQ(bytes_at(Home::batch, head, n, 2, 4), up(15 * 4) + up(20 * 4) + up(5 * 4));
  const auto alone = tied_model(Family::bert, true, SentenceLoss::none);
  const Bytes rows = up(20 * 48 * 2) - up(15 * 48 * 2);
  EXPECT_EQ(bytes_at(Home::scratch, describe_head(alone), sizes_of_five_samples(alone), 2, 4),
            logits + masked - rows);
}

TEST(Ends, OnlyGpipeDelaysTheHeadGradient) {
  deck::ParallelConfig p;
  p.schedule = ScheduleKind::gpipe;
  EXPECT_EQ(head_gradient(p), HeadGradient::with_losses) << "one pipeline rank waits for nobody";
  p.pipeline = 2;
  EXPECT_EQ(head_gradient(p), HeadGradient::kept);
  p.recompute = Recompute::full;
  EXPECT_EQ(head_gradient(p), HeadGradient::again);
  p.recompute = Recompute::automatic;
  EXPECT_EQ(head_gradient(p), HeadGradient::kept);
  p.recomputed = {"q", std::string(logits_name)};
  EXPECT_EQ(head_gradient(p), HeadGradient::again);
  p.schedule = ScheduleKind::zb_v;
  EXPECT_EQ(head_gradient(p), HeadGradient::with_losses);
}

TEST(Ends, BackwardPassGathersTheLogitInputAgain) {
  for (const HeadGradient later : {HeadGradient::kept, HeadGradient::again}) {
    const std::string statistics = "cross entropy forward all-gather [N', 3 P]";
    const auto next = describe_head(tied_model(Family::gpt), later);
    EXPECT_EQ(sent(next, false), (Sent{statistics, "logits backward_input all-reduce [R, D]"}));
    EXPECT_EQ(sent(next, true), (Sent{statistics, "logits forward all-gather [R, D]",
                                      "logits backward_weight all-gather [R, D]",
                                      "logits backward_input reduce-scatter [R, D]"}));
    EXPECT_EQ(sent(describe_head(tied_model(Family::bert), later), true),
              sent(describe_head(tied_model(Family::bert)), true));
  }
}

/// A slot keeps the gradient of all logits in the type of activations, or the statistics; scratch
/// loses what slots gain, but for the gradient of a block where it has memory of its own.
TEST(Ends, SlotsKeepTheInputsOfTheHeadsBackwardPass) {
  for (const Family family : {Family::llama, Family::bert})
    for (const Bytes element : {2, 4}) {
      const deck::ModelConfig m = tied_model(family);
      RankSizes n = sizes_of_five_samples(m);
      n.logit_block = 4;
      const auto bytes = [&](Home home, HeadGradient gradient) {
        return bytes_at(home, describe_head(m, gradient), n, element, 4);
      };
      const Bytes row = up(100 * element);
      const Bytes rest = n.pairs == 0 ? 0  // picked, dense to normed, statistics, pooled
                                      : up(20 * 48 * element) + 3 * up(15 * 48 * element) +
                                            2 * up(15 * 4) + up(5 * 48 * element);
      const Bytes scores = n.pairs == 0 ? 0 : up(5 * 2 * element);
      const auto more = [&](Home home, HeadGradient gradient) {
        return bytes(home, gradient) - bytes(home, HeadGradient::with_losses);
      };
      EXPECT_EQ(more(Home::slot, HeadGradient::kept), n.targets * row + rest + scores);
      EXPECT_EQ(more(Home::slot, HeadGradient::again), up(n.targets * 3 * 8) + rest + scores);
      const bool own = element < 4;  // otherwise in the memory of logits and scores
      EXPECT_EQ(more(Home::scratch, HeadGradient::kept), -(own ? 4 * row + scores : 0) - rest);
      EXPECT_EQ(more(Home::scratch, HeadGradient::again),
                -up(4 * 3 * 8) - rest - (own ? scores : 0));
      EXPECT_EQ(more(Home::batch, HeadGradient::kept), 0);
    }
}

/// Every pass of every operation after the final norm once, from the last to the first, and no step
/// reads a tensor whose memory a gradient has overwritten.
TEST(Ends, HeadProgramsReadBeforeTheyOverwrite) {
  for (const Family family : {Family::llama, Family::bert})
    for (const HeadGradient gradient :
         {HeadGradient::with_losses, HeadGradient::kept, HeadGradient::again})
      for (const Bytes element : {2, 4}) {
        const deck::ModelConfig m = tied_model(family);
        const RankSizes n = sizes_of_five_samples(m);
        const BlockDescription head = describe_head(m, gradient);
        const BlockProgram program = lower_head(head, n, element, 4);
        EXPECT_EQ(program.kept_bytes, bytes_at(Home::slot, head, n, element, 4));
        EXPECT_EQ(program.transient_bytes, bytes_at(Home::scratch, head, n, element, 4));
        using Memory = std::pair<Place::Memory, Bytes>;
        const auto memory = [](const Place& place) { return Memory{place.memory, place.offset}; };
        std::set<Memory> overwritten;
        std::set<std::pair<int, Pass>> done;
        int last = static_cast<int>(head.operations.size());
        for (const OperationCall& call : program.losses.calls) {
          const Operation& op = head.operations[at(call.operation)];
          SCOPED_TRACE(text(op.name, ", pass ", static_cast<int>(call.pass)));
          EXPECT_LE(call.operation, last);
          last = call.operation;
          EXPECT_TRUE(done.insert({call.operation, call.pass}).second);
          EXPECT_TRUE(has_pass(op, call.pass));
          for (const int t : tensors_read(op, call.pass))
            EXPECT_TRUE(head.tensors[at(t)].rows == Rows::head_rows ||  // each reader has its rows
                        !overwritten.contains(memory(program.losses.tensors[at(t)])))
                << head.tensors[at(t)].name;
          if (call.pass != Pass::backward_input) continue;
          overwritten.insert(memory(program.losses.gradients[at(op.input())]));
        }
        std::size_t expected = 0;
        for (std::size_t i = 1; i < head.operations.size(); ++i) {
          const OperationKind kind = head.operations[i].kind;
          if (kind == OperationKind::cross_entropy) continue;
          for (const Pass pass : {Pass::backward_input, Pass::backward_weight})
            expected += has_pass(head.operations[i], pass) &&
                        (kind != OperationKind::logits || pass == Pass::backward_input);
        }
        EXPECT_EQ(done.size(), expected);
        EXPECT_EQ(program.backward_input.calls.size(), 1u);
        EXPECT_EQ(program.backward.calls.size(), 2u);
      }
}

}  // namespace
}  // namespace trireme::architecture
