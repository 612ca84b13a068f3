#include <trireme/deck/families.hpp>
#include <trireme/plan/traffic.hpp>

#include <gtest/gtest.h>

#include <map>

#include "plan/example.hpp"

namespace trireme::plan {
namespace {

using testing::Axes;
using testing::config_of;

constexpr Bytes tokens_bytes = 64 * 32 * 8;  // [T, D] in fp64
constexpr std::int64_t micro_batches = 4;

std::vector<TrafficRow> traffic(const Axes& axes, int pipeline_rank = 0, int tensor_rank = 0) {
  const auto config = config_of(axes);
  const auto a = architecture::describe(config.model);
  return step_traffic(config, a, testing::shard_of(config, a, pipeline_rank, tensor_rank), false,
                      Machine{});
}

std::map<std::string, TrafficRow> by_what(const std::vector<TrafficRow>& rows) {
  std::map<std::string, TrafficRow> map;
  for (const TrafficRow& row : rows) {
    EXPECT_FALSE(map.contains(row.axis + " " + row.what)) << row.what;
    map[row.axis + " " + row.what] = row;
  }
  return map;
}

void expect_row(const std::map<std::string, TrafficRow>& rows, const std::string& what,
                std::int64_t operations, Bytes bytes) {
  const auto found = rows.find(what);
  ASSERT_NE(found, rows.end()) << what;
  EXPECT_EQ(found->second.operations, operations) << what;
  EXPECT_EQ(found->second.bytes, bytes) << what;
}

TEST(Traffic, OneRankSendsNothing) {
  EXPECT_EQ(traffic({}), std::vector<TrafficRow>{});
  EXPECT_EQ(traffic({.sequence_parallel = true}), std::vector<TrafficRow>{});
}

TEST(Traffic, TensorAxisReducesTwicePerLayerAndPass) {
  const auto rows = by_what(traffic({.tensor = 2}));
  const std::int64_t n = 2 * 4 * micro_batches;
  expect_row(rows, "tensor layers forward: all-reduce", n, n * tokens_bytes);
  expect_row(rows, "tensor layers backward: all-reduce", n, n * tokens_bytes);
  expect_row(rows, "tensor embedding forward: all-reduce", 4, 4 * tokens_bytes);
  expect_row(rows, "tensor cross entropy: all-gather", 4, 4 * (2 * 64 * 3 * 8));
  expect_row(rows, "tensor logits backward: all-reduce", 4, 4 * tokens_bytes);
  EXPECT_EQ(rows.size(), 6u) << "and the norm";
}

TEST(Traffic, SequenceParallelismGathersAndScatters) {
  const auto rows = by_what(traffic({.tensor = 4, .sequence_parallel = true}));
  const std::int64_t n = 2 * 4 * micro_batches;
  for (const char* what :
       {"tensor layers forward: all-gather", "tensor layers forward: reduce-scatter",
        "tensor layers backward: all-gather", "tensor layers backward: reduce-scatter",
        "tensor layers backward: all-gather of inputs"})
    expect_row(rows, what, n, n * tokens_bytes);
  expect_row(rows, "tensor embedding forward: reduce-scatter", 4, 4 * tokens_bytes);
  expect_row(rows, "tensor embedding backward: all-gather", 4, 4 * tokens_bytes);
  expect_row(rows, "tensor logits forward: all-gather", 4, 4 * tokens_bytes);
  expect_row(rows, "tensor logits backward: reduce-scatter", 4, 4 * tokens_bytes);
  // Four norm vectors and two biases of [D] per layer, the final norm and the positions [S, D].
  expect_row(rows, "tensor norms and biases: all-reduce", 1, (4 * 6 * 32 + 2 * 32 + 32 * 32) * 8);
  EXPECT_FALSE(rows.contains("tensor layers forward: all-reduce"));
}

/// Of 2 samples of 32 tokens 5 each are masked: 10 rows for the logits, 2 more for the pairs.
TEST(Traffic, BertHeadSendsOnlyTargetRows) {
  for (const bool sequence_parallel : {false, true}) {
    auto config = config_of({.tensor = 2, .sequence_parallel = sequence_parallel});
    deck::set_family(config.model, Family::bert);
    const auto a = architecture::describe(config.model);
    const auto rows =
        by_what(step_traffic(config, a, testing::shard_of(config, a, 0, 0), false, Machine{}));
    expect_row(rows, "tensor cross entropy: all-gather", 4, 4 * (2 * 10 * 3 * 8));
    expect_row(rows, "tensor logits backward: all-reduce", 4, 4 * 10 * 32 * 8);
    if (sequence_parallel)
      expect_row(rows, "tensor head's rows forward: all-reduce", 4, 4 * 12 * 32 * 8);
    else
      EXPECT_FALSE(rows.contains("tensor head's rows forward: all-reduce"));
    EXPECT_FALSE(rows.contains("tensor logits forward: all-gather"));
  }
}

TEST(Traffic, EachBoundarySendsOnceForwardAndOnceBackward) {
  std::int64_t forward = 0, backward = 0;
  for (int p = 0; p < 4; ++p) {
    const auto rows = by_what(traffic({.pipeline = 4}, p));
    if (p < 3) expect_row(rows, "pipeline activations: send", 4, 4 * tokens_bytes);
    if (p > 0) expect_row(rows, "pipeline gradients: send", 4, 4 * tokens_bytes);
    forward += rows.contains("pipeline activations: send") ? 1 : 0;
    backward += rows.contains("pipeline gradients: send") ? 1 : 0;
    EXPECT_EQ(rows.contains("tied token table's gradient: all-reduce"), p == 0 || p == 3);
    for (const auto& [what, row] : rows) EXPECT_NE(row.axis, "tensor") << what;
  }
  EXPECT_EQ(forward, 3);
  EXPECT_EQ(backward, 3);
  const auto chunks = by_what(traffic({.pipeline = 2, .chunks = 2}, 0));
  expect_row(chunks, "pipeline activations: send", 8, 8 * tokens_bytes);  // stages 0 and 2
  expect_row(chunks, "pipeline gradients: send", 4, 4 * tokens_bytes);    // stage 2
}

TEST(Traffic, TensorRanksSendSlicesAndGather) {
  const Axes axes{.tensor = 3, .pipeline = 2};
  Bytes sent = 0;
  for (int t = 0; t < 3; ++t) {
    const auto rows = by_what(traffic(axes, 0, t));
    sent += rows.at("pipeline activations: send").bytes;
    expect_row(rows, "tensor received gradients: all-gather", 4, 4 * tokens_bytes);
    EXPECT_FALSE(rows.contains("tensor received activations: all-gather"));
  }
  EXPECT_EQ(sent, 4 * tokens_bytes) << "64 tokens in 22, 21 and 21";
  const auto scattered =
      by_what(traffic({.tensor = 3, .pipeline = 2, .sequence_parallel = true}, 0, 0));
  EXPECT_FALSE(scattered.contains("tensor received gradients: all-gather"));
  EXPECT_TRUE(scattered.contains("pipeline activations: send"));
}

TEST(Traffic, DataAxisReducesEachGradientOnceInBuckets) {
  const auto config = config_of({.data = 2});
  const auto a = architecture::describe(config.model);
  const Bytes all = (a.parameters() + 96 * 32) * 8;  // the tied table has two gradients
  const auto rows = by_what(traffic({.data = 2}));
  // The tied table and its second gradient, other arrays that the tensor axis cuts, those that it
  // does not.
  expect_row(rows, "data gradients: all-reduce", 4, all);
  EXPECT_EQ(rows.size(), 1u);
}

/// 4 heads over 2 on 3 ranks: 2, 1, 1 of them, and the last two hold the second head of keys and
/// values; over 1 on 2 ranks both hold it. Keys and values of [8, 32] in each of 4 layers.
TEST(Traffic, GradientsOfSharedHeadsAreSummedOncePerStep) {
  const char* row = "shared gradients of keys and values: all-reduce";
  for (int t = 0; t < 3; ++t) {
    const auto rows = by_what(traffic({.tensor = 3, .key_value_heads = 2}, 0, t));
    EXPECT_EQ(rows.contains(row), t > 0);
    if (t > 0) expect_row(rows, row, 4 * 2, 4 * 2 * 8 * 32 * 8);
    const auto stage = by_what(traffic({.tensor = 3, .pipeline = 2, .key_value_heads = 2}, 1, t));
    if (t > 0) expect_row(stage, row, 2 * 2, 2 * 2 * 8 * 32 * 8);
  }
  for (int t = 0; t < 2; ++t)
    expect_row(by_what(traffic({.tensor = 2, .key_value_heads = 1}, 0, t)), row, 4 * 2,
               4 * 2 * 8 * 32 * 8);
  EXPECT_FALSE(by_what(traffic({.tensor = 2, .key_value_heads = 2})).contains(row));
}

TEST(Traffic, SumsTheAxes) {
  const auto rows = traffic({.tensor = 2, .pipeline = 2, .data = 2});
  Bytes sum = 0;
  std::vector<std::string> axes;
  for (const TrafficRow& axis : per_axis(rows)) {
    sum += axis.bytes;
    axes.push_back(axis.axis);
  }
  EXPECT_EQ(sum, total(rows));
  EXPECT_EQ(axes, (std::vector<std::string>{"tensor", "pipeline", "data", "tied", "model"}));
}

}  // namespace
}  // namespace trireme::plan
