#include <trireme/architecture/architecture.hpp>
#include <trireme/architecture/block_program.hpp>
#include <trireme/architecture/builder.hpp>
#include <trireme/architecture/operation_calls.hpp>
#include <trireme/architecture/placement.hpp>
#include <trireme/base/check.hpp>
#include <trireme/base/text.hpp>
#include <trireme/deck/families.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace trireme::architecture {
namespace {

constexpr Bytes element_bytes = 2;
constexpr Bytes accumulated_bytes = 4;

deck::ModelConfig small(Family family) {
  deck::ModelConfig m;
  deck::set_family(m, family);
  m.layers = 3;
  m.hidden = 48;
  m.heads = 6;
  m.key_value_heads = m.positions == Positions::rotary ? 3 : 6;
  m.feed_forward = 112;
  m.sequence = 16;
  m.vocabulary = 64;
  if (m.has_latent_attention()) {
    m.key_value_heads = 6;
    m.key_value_rank = 12;
    m.query_rank = 18;
    m.rotary_size = 4;
    m.value_size = 6;
    m.experts.groups = m.experts.active_groups = 1;
    m.experts.first_layer = 0;
    m.experts.shared_feed_forward = 40;
  }
  if (family == Family::t5) m.encoder = {3, 24};
  if (m.experts.present()) {
    m.experts.number = 5;
    m.experts.active = 2;
    m.experts.feed_forward = 40;
  }
  return m;
}

RankSizes sizes_of_two_samples(const deck::ModelConfig& m, int tensor = 1,
                               bool sequence_parallel = false) {
  Shard shard = whole_model(describe(m));
  shard.tensor_size = tensor;
  return rank_sizes(m, shard, 2, m.sequence, sequence_parallel, host_logit_elements);
}

std::set<std::string> names(const BlockDescription& layer, const Kept& kept) {
  std::set<std::string> out;
  for (std::size_t t = 0; t < kept.size(); ++t)
    if (kept[t]) out.insert(layer.tensors[t].name);
  return out;
}

/// Simulates a phase on a map of memory: every read must find what was last written for that value,
/// and no two values may overlap while both are needed. The kept and work memory lives across
/// phases.
class Replay {
 public:
  Replay(const BlockDescription& layer, const RankSizes& sizes)
      : layer_(layer), sizes_(sizes.of(layer.stream)) {}

  void run(const PhaseProgram& phase, bool with_gradient) {
    memory_.erase(Place::Memory::transient);
    memory_.erase(Place::Memory::stream);
    memory_.erase(Place::Memory::output);
    if (with_gradient) write(phase, {layer_.output, true});
    for (const OperationCall& call : phase.calls) simulate(phase, call);
  }
  /// The caller puts the layer's input there, and values of the model with their gradients.
  void put_input(const PhaseProgram& phase) {
    write(phase, {0, false});
    put_values(phase, false);
  }
  void put_values(const PhaseProgram& phase, bool gradients) {
    for (std::size_t t = 0; t < layer_.tensors.size(); ++t)
      if (layer_.tensors[t].home == Home::value) {
        const Value value{static_cast<int>(t), gradients};
        if (where(phase, value).first.memory != Place::Memory::none) write(phase, value);
      }
  }

 private:
  struct Held {
    Bytes end = 0;
    int tensor = 0;
    bool gradient = false;
  };

  int root(int t) const {
    const int in = layer_.tensors[static_cast<std::size_t>(t)].stored_in;
    return in < 0 ? t : root(in);
  }
  std::pair<Place, Bytes> where(const PhaseProgram& phase, const Value& v) const {
    const auto i = static_cast<std::size_t>(v.tensor);
    const Tensor t = v.gradient ? gradient_of(layer_, v.tensor) : layer_.tensors[i];
    const Bytes number = t.numbers == Numbers::compute ? element_bytes : accumulated_bytes;
    Place place = v.gradient ? phase.gradients[i] : phase.tensors[i];
    // Gradients of values have memory of their own.
    if (place.memory == Place::Memory::value && v.gradient) place.offset += Bytes{1} << 40;
    return {place, rows_of(t.rows, sizes_) * columns_of(t.columns, sizes_) * number};
  }
  /// Values along the residual stream are one value there.
  Value held(const Place& place, Value v) const {
    if (place.memory == Place::Memory::stream) return {layer_.output, true};
    if (!v.gradient) v.tensor = root(v.tensor);
    return v;
  }
  void write(const PhaseProgram& phase, const Value& v) {
    const auto [place, bytes] = where(phase, v);
    ASSERT_NE(place.memory, Place::Memory::none) << name(v);
    if (bytes == 0) return;
    const Value value = held(place, v);
    auto& held_there = memory_[place.memory];
    for (auto it = held_there.begin(); it != held_there.end();) {
      const bool overlaps = it->first < place.offset + bytes && place.offset < it->second.end;
      it = overlaps ? held_there.erase(it) : std::next(it);
    }
    held_there[place.offset] = {place.offset + bytes, value.tensor, value.gradient};
  }
  void read(const PhaseProgram& phase, const Value& v, const OperationCall& call) {
    const auto [place, bytes] = where(phase, v);
    if (bytes == 0) return;
    const Value value = held(place, v);
    const auto& held_there = memory_[place.memory];
    const auto found = held_there.find(place.offset);
    ASSERT_TRUE(found != held_there.end() && found->second.tensor == value.tensor &&
                found->second.gradient == value.gradient)
        << "call of " << layer_.operations[static_cast<std::size_t>(call.operation)].name
        << " finds something else in the place of " << name(v);
  }
  void simulate(const PhaseProgram& phase, const OperationCall& call) {
    std::vector<Value> reads, writes;
    for (const int number : {call.operation, call.fused}) {
      if (number < 0) continue;
      const Operation& op = layer_.operations[static_cast<std::size_t>(number)];
      // The fused norm reads the sum that the same kernel makes.
      const bool made_here = number == call.fused && call.pass == Pass::forward;
      if (!made_here)
        for (const int t : tensors_read(op, call.pass)) reads.push_back({t});
      if (call.pass == Pass::forward)
        for (const int t : tensors_written(op)) writes.push_back({t});
    }
    if (call.pass != Pass::forward) {
      const Operation& op = layer_.operations[static_cast<std::size_t>(call.operation)];
      reads.push_back({op.output, true});
      const int last = call.fused >= 0 ? call.fused : call.operation;
      if (call.pass == Pass::backward_input) {
        const int target = layer_.operations[static_cast<std::size_t>(last)].input();
        writes.push_back({target, true});
        if (const auto other = rule_of(op.kind).other_gradients; other != nullptr)
          for (const int t : other(op)) writes.push_back({t, true});
        if (call.contribution.memory != Place::Memory::none) put_contribution(call, target);
        if (call.accumulates()) reads.push_back({call.sum, true});
      }
    }
    for (const Value& v : reads) read(phase, v, call);
    for (const Value& v : writes) write(phase, v);
  }
  /// The contribution overwrites what is in its memory, before the call reads the sum.
  void put_contribution(const OperationCall& call, int target) {
    const Tensor t = gradient_of(layer_, target);
    const Bytes end =
        call.contribution.offset + bytes_of(t, sizes_, element_bytes, accumulated_bytes);
    std::erase_if(memory_[call.contribution.memory], [&](const auto& held) {
      return held.first < end && call.contribution.offset < held.second.end;
    });
  }
  std::string name(const Value& v) const {
    return (v.gradient ? "the gradient of " : "") +
           layer_.tensors[static_cast<std::size_t>(v.tensor)].name;
  }

  const BlockDescription& layer_;
  const RankSizes sizes_;
  std::map<Place::Memory, std::map<Bytes, Held>> memory_;
};

BlockProgram expect_every_read_is_of_its_value(const BlockDescription& layer, const Kept& kept,
                                               bool split, const RankSizes& sizes) {
  BlockProgram program = lower(layer, sizes, {kept, true, split, element_bytes, accumulated_bytes});
  Replay replay(layer, sizes);
  replay.put_input(program.forward);
  replay.run(program.forward, false);
  replay.put_values(split ? program.backward_input : program.backward, true);
  if (split) {
    replay.run(program.backward_input, true);
    replay.run(program.backward_weight, false);
  } else {
    replay.run(program.backward, true);
  }
  return program;
}

constexpr std::array all_families{
    Family::gpt,    Family::llama,     Family::bert,    Family::qwen2,
    Family::qwen3,  Family::mistral,   Family::gemma,   Family::gemma2,
    Family::gemma3, Family::olmo2,     Family::mixtral, Family::qwen3_moe,
    Family::olmoe,  Family::qwen2_moe, Family::gpt_oss, Family::deepseek_v3};

void expect_values_for_any_kept_tensors(const BlockDescription& layer, const deck::ModelConfig& m) {
  const Kept needed = kept_tensors(layer, Recompute::none);
  std::vector<std::size_t> choices;
  for (std::size_t t = 1; t < needed.size(); ++t)
    if (needed[t] && !is_always_kept(layer, static_cast<int>(t))) choices.push_back(t);
  // All pairs of tensors that are not kept, and all but each pair.
  for (std::size_t i = 0; i < choices.size(); ++i)
    for (std::size_t j = i; j < choices.size(); ++j)
      for (const bool inverse : {false, true})
        for (const bool split : {false, true}) {
          Kept kept = needed;
          for (const std::size_t t : choices)
            kept[t] = ((t != choices[i] && t != choices[j]) != inverse);
          SCOPED_TRACE(text(name_of(m.family), inverse ? ": only " : ": all but ", choices[i],
                            " and ", choices[j], split ? ", split" : ""));
          expect_every_read_is_of_its_value(layer, kept, split, sizes_of_two_samples(m));
          if (::testing::Test::HasFailure()) return;
        }
}

TEST(BlockProgram, StepsReadTheirValuesForAnyKeptTensors) {
  for (const Family family : all_families) {
    const deck::ModelConfig m = small(family);
    expect_values_for_any_kept_tensors(describe_layer(m, 0), m);
  }
}

/// The kinds of layers of an encoder and a decoder: the encoder's last layer ends with a norm, and
/// the decoder reads values of the model.
TEST(BlockProgram, StepsOfEncodersAndDecodersReadTheirValues) {
  const deck::ModelConfig m = small(Family::t5);
  const Architecture a = describe(m);
  ASSERT_EQ(a.layer_kinds().size(), 3U);
  for (const BlockDescription& layer : a.layer_kinds())
    expect_values_for_any_kept_tensors(layer, m);
}

/// The modules that predict further tokens begin with embeddings and the previous block's result.
TEST(BlockProgram, StepsOfModulesReadTheirValues) {
  for (const Family family : {Family::gpt, Family::gemma2, Family::olmo2, Family::deepseek_v3}) {
    deck::ModelConfig m = small(family);
    m.predicts = 3;
    const Architecture a = describe(m);
    for (std::int64_t module = 0; module < 2; ++module) {
      const BlockDescription& layer = a.description(block_of_layer(m.layers + module));
      EXPECT_EQ(a.block(block_of_layer(m.layers + module)).prefix,
                text("predict.", module + 2, "."));
      expect_values_for_any_kept_tensors(layer, m);
    }
  }
}

TEST(BlockProgram, StepsReadTheirValuesOnPartsOfTheTokens) {
  for (const Family family : all_families)
    for (const Recompute r : {Recompute::none, Recompute::selective, Recompute::full})
      for (const bool split : {false, true}) {
        const deck::ModelConfig m = small(family);
        SCOPED_TRACE(text(name_of(family), ", ", name_of(r)));
        const BlockDescription layer = describe_layer(m, 0);
        RankSizes sizes = sizes_of_two_samples(m, 3, true);
        expect_every_read_is_of_its_value(layer, kept_tensors(layer, r), split, sizes);
        if (!m.experts.present()) continue;
        sizes.expert_ranks = 2;  // tensors of copies have elements
        sizes.expert_rank = 1;
        expect_every_read_is_of_its_value(layer, kept_tensors(layer, r), split, sizes);
      }
}

/// y = norm(x), then three feed-forward parts read y, and their results are added to x one by one.
BlockDescription three_parts(const deck::ModelConfig& m) {
  Builder b(m);
  int sum = b.tensor("x", Rows::own, b.hidden());
  const int y = b.norm("norm", sum, b.tensor("y", Rows::own, b.hidden()), NormKind::rms);
  for (const int i : {0, 1, 2}) {
    Operation up{OperationKind::linear,
                 text("up", i),
                 {y},
                 b.tensor(text("h", i), Rows::tokens, divided_columns("F", m.feed_forward))};
    up.cut = Cut::outputs;
    up.arrays = {matrix(up.name, {m.feed_forward, m.hidden}, 0)};
    const int h = b.add(std::move(up));
    const int g =
        b.add({OperationKind::activation,
               "tanh",
               {h},
               b.tensor(text("g", i), Rows::tokens, divided_columns("F", m.feed_forward))});
    Operation down{
        OperationKind::linear, text("down", i), {g}, b.tensor(text("z", i), Rows::own, b.hidden())};
    down.cut = Cut::inputs;
    down.arrays = {matrix(down.name, {m.hidden, m.feed_forward}, 1)};
    const int z = b.add(std::move(down));
    sum = b.add({OperationKind::residual,
                 text("x", i + 1),
                 {z, sum},
                 b.tensor(text("x", i + 1), Rows::own, b.hidden())});
  }
  return b.take();
}

/// The last reader's contribution comes first. The others have memory of their own until they are
/// added.
TEST(BlockProgram, GradientsOfThreeReadersAreSummedFromTheLastReader) {
  const deck::ModelConfig m = small(Family::llama);
  const BlockDescription layer = three_parts(m);
  for (const bool split : {false, true})
    for (const int tensor : {1, 3}) {
      const BlockProgram program =
          expect_every_read_is_of_its_value(layer, kept_tensors(layer, Recompute::none), split,
                                            sizes_of_two_samples(m, tensor, tensor > 1));
      std::vector<std::string> sums;
      for (const OperationCall& call :
           split ? program.backward_input.calls : program.backward.calls) {
        const Operation& op = layer.operations[static_cast<std::size_t>(call.operation)];
        if (call.pass != Pass::backward_input || op.name.find("up") != 0) continue;
        sums.push_back(text(op.name, call.accumulates() ? " added" : ""));
        EXPECT_EQ(call.contribution.memory,
                  call.accumulates() ? Place::Memory::transient : Place::Memory::none);
      }
      EXPECT_EQ(sums, (std::vector<std::string>{"up2", "up1 added", "up0 added"}));
    }
}

/// A residual addition hands its gradient to its operand, and cannot add it to another sum.
TEST(BlockProgram, LaterReadersOfAnOperandOfAResidualAdditionAreRejected) {
  const deck::ModelConfig m = small(Family::llama);
  BlockDescription layer = three_parts(m);
  layer.operations.back().inputs[1] = 0;  // the last addition reads x instead of the second sum
  EXPECT_THROW(
      lower(layer, sizes_of_two_samples(m),
            {kept_tensors(layer, Recompute::none), true, false, element_bytes, accumulated_bytes}),
      Error);
}

TEST(BlockProgram, RecomputeModesKeepTheirDocumentedTensors) {
  const BlockDescription gpt = describe_layer(small(Family::gpt), 0);
  const std::set<std::string> statistics{"attention_norm.mean", "attention_norm.inverse",
                                         "feed_forward_norm.mean", "feed_forward_norm.inverse"};
  std::set<std::string> selective{"x", "qkv", "o", "logsumexp", "x1", "h"};
  selective.insert(statistics.begin(), statistics.end());
  EXPECT_EQ(names(gpt, kept_tensors(gpt, Recompute::selective)), selective);
  std::set<std::string> none = selective;
  none.insert({"y1", "y2", "g"});
  EXPECT_EQ(names(gpt, kept_tensors(gpt, Recompute::none)), none);
  EXPECT_EQ(names(gpt, kept_tensors(gpt, Recompute::full)), std::set<std::string>{"x"});
  // A norm of heads works in place: what it was given is kept beside its result.
  const BlockDescription qwen = describe_layer(small(Family::qwen3), 0);
  EXPECT_TRUE(names(qwen, kept_tensors(qwen, Recompute::selective)).contains("raw_query_key"));
}

TEST(BlockProgram, FullRecomputationOmitsOnlyTheLastProduct) {
  for (const Family family : all_families) {
    const deck::ModelConfig m = small(family);
    const BlockDescription layer = describe_layer(m, 0);
    const BlockProgram whole = lower(layer, sizes_of_two_samples(m),
                                     {kept_tensors(layer, Recompute::full), true, false, 2, 4});
    double all = 0;
    for (const Operation& op : layer.operations)
      all += product_factor(op, Pass::forward) * products_per_token(layer, op, m);
    // A norm reads the last product.
    const bool normed =
        m.norm_placement == NormPlacement::sandwich || m.norm_placement == NormPlacement::output;
    const std::int64_t inner = m.experts.present() ? m.experts.active * m.experts.feed_forward +
                                                         m.experts.shared_feed_forward
                                                   : m.feed_forward;
    const double down = normed ? 0 : static_cast<double>(inner * m.hidden);
    EXPECT_DOUBLE_EQ(products_again(layer, whole.backward, m), all - down) << name_of(family);
    const BlockProgram none = lower(layer, sizes_of_two_samples(m),
                                    {kept_tensors(layer, Recompute::none), true, false, 2, 4});
    EXPECT_EQ(products_again(layer, none.backward, m), 0);
  }
}

/// All buffers of a backward pass side by side, as before lifetimes were known: the gradients at
/// the outputs of the products and norms, and what is computed again.
TEST(BlockProgram, TransientMemoryIsBelowTheSumOfAllValues) {
  for (const Family family : all_families)
    for (const Recompute r : {Recompute::none, Recompute::selective, Recompute::full}) {
      const deck::ModelConfig m = small(family);
      const BlockDescription layer = describe_layer(m, 0);
      const RankSizes n = sizes_of_two_samples(m);
      const BlockProgram program =
          lower(layer, n, {kept_tensors(layer, r), true, false, element_bytes, accumulated_bytes});
      const BlockProgram none = lower(
          layer, n,
          {kept_tensors(layer, Recompute::none), true, false, element_bytes, accumulated_bytes});
      const std::int64_t inner = m.gated() ? 2 * m.feed_forward : m.feed_forward;
      const Bytes gradients = n.tokens *
                              (4 * n.hidden + inner + n.attention() + 2 * n.groups() +
                               std::max(n.attention(), m.gated() ? m.feed_forward : 0)) *
                              element_bytes;
      EXPECT_LE(program.transient_bytes, gradients + none.kept_bytes - program.kept_bytes)
          << name_of(family) << ' ' << name_of(r);
    }
}

/// The least bytes of the first call of `phase` that runs the named operation.
CallBytes bytes_of_call(const BlockDescription& part, const std::vector<OperationCall>& calls,
                        const std::string& name, Pass pass, const RankSizes& sizes) {
  for (const OperationCall& call : calls)
    if (call.pass == pass && part.operations[at(call.operation)].name == name)
      return least_bytes(part, call, sizes, element_bytes, accumulated_bytes);
  ADD_FAILURE() << "no call of " << name;
  return {};
}

TEST(LeastBytes, NormsCountStatisticsAndTheSumOfGradients) {
  const BlockDescription layer = describe_layer(small(Family::gpt), 0);
  const RankSizes n = sizes_of_two_samples(small(Family::gpt));
  const double x = 32 * 48 * 2, statistics = 2 * 32 * 4;
  const std::string norm = layer.operations.front().name;
  const CallBytes forward = bytes_of_call(layer, forward_calls(layer), norm, Pass::forward, n);
  EXPECT_EQ(forward.moved, 2 * x + statistics);
  EXPECT_EQ(forward.resident, forward.moved);
  const std::vector<OperationCall> backward = backward_calls(layer).both;
  const CallBytes input = bytes_of_call(layer, backward, norm, Pass::backward_input, n);
  EXPECT_EQ(input.moved, 4 * x + statistics);  // reads x, dy and the sum; writes the sum
  EXPECT_EQ(input.resident, 3 * x + statistics);
}

TEST(LeastBytes, OperationsInPlaceOmitValues) {
  deck::ModelConfig m = small(Family::qwen3);
  const BlockDescription layer = describe_layer(m, 0);
  const RankSizes n = sizes_of_two_samples(m);
  const double queries_and_keys = 32 * (6 + 3) * 8 * 2, inverse = 32 * (6 + 3) * 4;
  const auto find = [&](OperationKind kind) {
    return *std::ranges::find(layer.operations, kind, &Operation::kind);
  };
  const std::string rotary = find(OperationKind::rotary).name;
  const CallBytes turned = bytes_of_call(layer, forward_calls(layer), rotary, Pass::forward, n);
  EXPECT_EQ(turned.moved, 2 * queries_and_keys);
  EXPECT_EQ(turned.resident, queries_and_keys);
  const Operation& norm = find(OperationKind::head_norm);
  const auto number = static_cast<int>(
      std::ranges::find(layer.operations, norm.name, &Operation::name) - layer.operations.begin());
  const CallBytes weight = least_bytes(layer, {number, Pass::backward_weight}, n, 2, 4);
  EXPECT_EQ(weight.moved, 2 * queries_and_keys + inverse);
}

TEST(LeastBytes, TablesCountTheRowsThatTokensCanName) {
  deck::ModelConfig m = small(Family::gpt);
  m.vocabulary = 20;  // fewer than tokens
  const BlockDescription embedding = describe(m).embedding();
  const RankSizes n = sizes_of_two_samples(m);
  const double x = 32 * 48, ids = 32 * 4, tokens = 20 * 48, positions = 16 * 48;
  const auto forward = [&](const char* name) {
    return bytes_of_call(embedding, forward_calls(embedding), name, Pass::forward, n).moved;
  };
  const auto backward = [&](const char* name) {
    return bytes_of_call(embedding, backward_calls(embedding).both, name, Pass::backward_weight, n)
        .moved;
  };
  EXPECT_EQ(forward("embedding"), 2 * (x + tokens) + ids);
  EXPECT_EQ(backward("embedding"), 2 * x + 2 * 4 * tokens + ids);
  EXPECT_EQ(forward("positions"), 2 * (2 * x + positions));
  EXPECT_EQ(backward("positions"), 2 * x + 2 * 4 * positions);
}

TEST(BlockProgram, CountsVisibleTokensOfWindowsAndMasks) {
  const auto visible = [](std::int64_t window, bool causal = true) {
    Operation op{OperationKind::attention, "attention"};
    op.window = window;
    op.causal = causal;
    op.keys = 16;
    return visible_tokens(op);
  };
  EXPECT_EQ(visible(0), 8);  // half of the full square
  EXPECT_EQ(visible(4), 4 - 16.0 / 32);
  EXPECT_EQ(visible(400), 8);
  EXPECT_EQ(visible(0, false), 16);
  for (const BlockDescription& layer : describe(small(Family::t5)).layer_kinds())
    for (const Operation& op : layer.operations)
      if (op.kind == OperationKind::attention) {
        const bool in_encoder = layer.stream == Stream::source;
        EXPECT_EQ(op.causal, !in_encoder && op.name == "attention");
        EXPECT_EQ(op.keys, in_encoder || op.name == "cross_attention" ? 24 : 16);
      }
}

}  // namespace
}  // namespace trireme::architecture
