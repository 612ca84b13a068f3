#pragma once

#include <trireme/deck/families.hpp>

#include "support/pairs.hpp"
#include "support/training.hpp"
#include "support/whole_arrays.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>

/// Promise 1: the layout never changes the result. Every layout of these ranks trains the same
/// model as one rank, with sizes that are not divisible, and dropout.
namespace trireme::train {

using namespace trireme::testing;

/// The second step is the first one with a state of the optimizer.
inline constexpr std::int64_t layout_steps = 2;
inline constexpr std::int64_t layout_sequence = 25;
/// Keys of the models without an encoder that are trained in many layouts.
inline constexpr const char* short_sequence = "model.sequence=17";

/// Models with experts.
inline constexpr const char* five_experts = "experts.number=5 experts.feed_forward=24";
inline constexpr const char* five_split_experts =
    "experts.number=5 experts.feed_forward=23 experts.split=true";
inline constexpr const char* five_experts_in_rounds =
    "experts.number=5 experts.feed_forward=24 experts.rows=0.6";
inline constexpr const char* five_limited_experts =
    "experts.number=5 experts.feed_forward=24 experts.capacity=0.9";
/// The experts of a rank process fewer tokens than it has itself, on 2 tensor ranks of 2 replicas.
inline constexpr const char* many_limited_experts =
    "experts.number=13 experts.feed_forward=24 experts.capacity=0.9";
inline constexpr const char* five_and_a_shared_expert =
    "experts.number=5 experts.active=2 experts.feed_forward=24 experts.shared_feed_forward=17";
inline constexpr const char* experts_and_windows =
    "model.window=11 experts.number=5 experts.active=2 experts.feed_forward=24";
inline constexpr const char* latent_and_groups =
    "model.key_value_rank=12 model.query_rank=18 model.rotary_size=4 model.value_size=6 "
    "experts.number=6 experts.active=2 experts.feed_forward=24 experts.groups=3 "
    "experts.active_groups=2 experts.first_layer=1";
/// An encoder of 3 layers, whose targets have layout_sequence tokens.
inline constexpr const char* encoder_of_three =
    "encoder.layers=3 encoder.sequence=29 encoder.noise=0.45 encoder.span=3";
/// Version 1.1 of t5.
inline constexpr const char* gated_encoder_of_three =
    "encoder.layers=3 encoder.sequence=29 encoder.noise=0.45 encoder.span=3 "
    "model.activation=geglu model.scaled_logits=false model.head_size=10";
/// Layers 1 and 3 of the model's 5 layers have experts.
inline constexpr const char* experts_in_some_layers =
    "model.head_size=8 experts.number=5 experts.active=2 experts.feed_forward=24 "
    "experts.first_layer=1 experts.every=2";

/// Result of a run, on rank 0.
struct Outcome {
  Trace trace;
  std::vector<double> weights;  ///< of all arrays, by name
};

inline std::vector<double> weights_of(const std::map<std::string, std::vector<double>>& arrays) {
  std::vector<double> values;
  for (const auto& [name, array] : arrays)
    if (!name.starts_with("optimizer.")) values.insert(values.end(), array.begin(), array.end());
  return values;
}

/// Whether the family is llama or derived from it.
inline bool has_groups(Family family) {
  return deck::preset(family).positions == Positions::rotary;
}

struct Layout {
  int tensor = 1;
  int pipeline = 1;
  int data = 1;
  std::string schedule = "1f1b";
  int chunks = 1;
  bool sequence_parallel = false;
  bool tied = true;
  Recompute recompute = Recompute::none;
  Sharding shard = Sharding::none;
  OptimizerKind optimizer = OptimizerKind::adamw;
  Family family = Family::gpt;
  int key_value_heads = 3;    ///< with rotary positions; of 6 heads
  std::string property = {};  ///< more keys of the model: "model.window=17 experts.number=5"
  std::string order = {};     ///< order of the axes among the ranks
  int context = 1;
  std::vector<std::string> more = {};     ///< keys
  std::vector<std::string> trained = {};  ///< keys that change results, also for one rank
  std::int64_t steps = layout_steps;

  std::string name() const {
    return text(name_of(family), has_groups(family) ? text(' ', key_value_heads) : "", ' ',
                property, ", tensor ", tensor, " · pipeline ", pipeline, " · data ", data, ", ",
                schedule, ", chunks ", chunks, sequence_parallel ? ", sequence parallel" : "",
                tied ? ", tied" : ", untied", ", recompute ", name_of(recompute), ", shard ",
                name_of(shard), ", ", name_of(optimizer), order.empty() ? "" : ", order " + order,
                context > 1 ? text(", context ", context) : "", more.empty() ? "" : ", ",
                join(more, ", "), trained.empty() ? "" : ", ", join(trained, ", "));
  }
  int ranks() const { return tensor * pipeline * data * context; }
  /// The same model and optimizer on one rank.
  Layout on_one_rank() const {
    Layout one;
    one.tied = tied;
    one.family = family;
    one.key_value_heads = key_value_heads;
    one.optimizer = optimizer;
    if (property.starts_with("model.") || property.starts_with("experts.") ||
        property.starts_with("encoder.") || property.starts_with("vision."))
      one.property = property;
    one.trained = trained;
    one.steps = steps;
    return one;
  }
  std::vector<std::string> overrides() const {
    std::vector<std::string> all = keys_of(property);
    const std::vector<std::string> others{
        text("model.family=", name_of(family)),
        text("model.key_value_heads=", has_groups(family) ? key_value_heads : 6),
        text("model.vocabulary=", family == Family::bert ? 261 : 257),
        "model.layers=5",
        "model.heads=6",
        text("model.sequence=", layout_sequence),
        text("model.tied_embeddings=", tied ? "true" : "false"),
        text("parallel.tensor=", tensor),
        text("parallel.pipeline=", pipeline),
        text("parallel.context=", context),
        "parallel.schedule=" + schedule,
        text("parallel.chunks=", chunks),
        "parallel.order=" + order,
        text("parallel.recompute=", name_of(recompute)),
        text("parallel.shard=", name_of(shard)),
        text("parallel.sequence_parallel=", sequence_parallel ? "true" : "false"),
        text("optimizer.kind=", name_of(optimizer)),
        text("optimizer.nesterov=", optimizer == OptimizerKind::sgd ? "true" : "false"),
        "optimizer.trust_coefficient=1",
        "parallel.bucket_bytes=20000"};
    all.insert(all.end(), others.begin(), others.end());
    all.insert(all.end(), more.begin(), more.end());
    all.insert(all.end(), trained.begin(), trained.end());
    return all;
  }
};

/// A token file of ids of few values. `write(writer, random)` appends them; random() is a number
/// of 31 bits.
template <class Write>
std::string write_random_tokens(const std::string& path, const Write& write) {
  data::TokenFileWriter writer(path, "bytes", 257);
  std::uint64_t state = 88172645463325252ull;
  write(writer, [&] {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return static_cast<std::int64_t>(state >> 33);
  });
  writer.commit("test");
  return path;
}

class Layouts : public ::testing::Test {
 protected:
  /// Trains on a file, the first steps.
  static Outcome run_on(const data::TokenFile& file, const Layout& layout,
                        grid::Communicator& world, std::int64_t steps) {
    const deck::Config config =
        small_config(12, layout.data == 3 ? 2 : 1, world.size(), layout.overrides());
    Rig rig(config, file, world);
    Outcome outcome;
    outcome.trace = rig.run(1, steps);
    outcome.weights = weights_of(whole_arrays(*rig.engine, world));
    return outcome;
  }
  Outcome run(const Layout& layout, grid::Communicator& world) {
    return run_on(tokens_, layout, world, layout.steps);
  }
  using Run = std::function<Outcome(const Layout&, grid::Communicator&)>;

  /// Each layout of as many ranks as there are gives the answer of one rank, which is computed once
  /// for all layouts of a model.
  static void expect_the_answer_of_one_rank(const std::vector<Layout>& layouts, const Run& run) {
    std::map<std::string, Outcome> alone;
    for (const Layout& layout : layouts) {
      if (layout.ranks() != runtime().ranks()) continue;
      SCOPED_TRACE(layout.name());
      const Outcome found = run(layout, runtime().world());
      if (runtime().rank() > 0) continue;
      const Layout one = layout.on_one_rank();
      Outcome& expected = alone[text(one.name(), ", steps ", one.steps)];
      if (expected.weights.empty()) {
        const auto self = grid::Communicator::self();
        expected = run(one, *self);
      }
      expect_the_same(found, expected);
    }
  }
  /// Schedules of two stages give the same bits.
  static void expect_the_same_bits_of_schedules(const Run& run) {
    if (runtime().ranks() != 2) return;
    const Outcome expected = run({1, 2, 1, "1f1b"}, runtime().world());
    for (const char* schedule : {"gpipe", "zb-h1"}) {
      const Outcome found = run({1, 2, 1, schedule}, runtime().world());
      if (runtime().rank() > 0) continue;
      EXPECT_EQ(found.trace, expected.trace) << schedule;
      EXPECT_EQ(found.weights, expected.weights) << schedule;
    }
  }

  /// The outcome of the same model and optimizer on one rank; computed once, and known only on rank
  /// 0.
  const Outcome& alone(const Layout& layout) {
    static std::map<std::tuple<bool, Family, int, OptimizerKind, std::string>, Outcome> outcomes;
    Outcome& outcome = outcomes[{layout.tied, layout.family, layout.key_value_heads,
                                 layout.optimizer, layout.property + join(layout.trained, " ")}];
    if (runtime().rank() == 0 && outcome.weights.empty()) {
      const auto self = grid::Communicator::self();
      outcome = run(layout.on_one_rank(), *self);
    }
    return outcome;
  }

  /// Runs on the first ranks, as many as the layout has.
  Outcome run_on_some(const Layout& layout) {
    const int used = layout.ranks();
    const auto part =
        runtime().world().split(runtime().rank() < used ? 0 : 1, runtime().rank(), "some ranks");
    return runtime().rank() < used ? run(layout, *part) : Outcome{};
  }

  void expect_the_same_answer(const Layout& layout) {
    SCOPED_TRACE(layout.name());
    const Outcome& expected = alone(layout);
    runtime().world().barrier("the reference");
    const Outcome found = run(layout, runtime().world());
    if (runtime().rank() == 0) expect_the_same(found, expected);
  }

  /// Expects that losses and norms agree to rounding, and weights normwise over the model.
  static void expect_the_same(const Outcome& found, const Outcome& expected) {
    ASSERT_EQ(found.trace.losses.size(), expected.trace.losses.size());
    for (std::size_t i = 0; i < found.trace.losses.size(); ++i) {
      EXPECT_NEAR(found.trace.losses[i], expected.trace.losses[i], 1e-10 * expected.trace.losses[i])
          << "loss of step " << i + 1;
      EXPECT_NEAR(found.trace.norms[i], expected.trace.norms[i], 1e-10 * expected.trace.norms[i])
          << "norm of step " << i + 1;
    }
    ASSERT_EQ(found.weights.size(), expected.weights.size());
    double largest = 0;
    double difference = 0;
    for (std::size_t i = 0; i < found.weights.size(); ++i) {
      largest = std::max(largest, std::abs(expected.weights[i]));
      difference = std::max(difference, std::abs(found.weights[i] - expected.weights[i]));
    }
    EXPECT_LE(difference, 1e-10 * largest) << "weights after the last step";
  }

  /// The i-th of the orders of the axes, cyclically, so that every layout has one of them.
  static std::string order(std::size_t i) {
    constexpr std::array<const char*, 6> orders{
        "",     "tensor, data, pipeline", "pipeline, tensor", "pipeline, data, tensor",
        "data", "data, pipeline"};
    return orders[i % orders.size()];
  }

  /// A family, the number of key/value heads, and more keys of the model.
  struct Model {
    Family family;
    int key_value_heads = 3;
    const char* property = "";
  };

  /// Every layout of this many ranks. With shared key/value heads, there are up to as many tensor
  /// ranks as query heads, more than `key_value_heads`, or as experts. With one stage, only
  /// schedules that differ there.
  static std::vector<Layout> all_layouts(int ranks, const Model& model) {
    using Schedules = std::vector<std::pair<std::string, int>>;
    const Schedules of_one_stage{{"1f1b", 1}, {"interleaved", 2}, {"auto", 1}};
    const Schedules of_more{{"gpipe", 1},       {"1f1b", 1},   {"interleaved", 2}, {"zb-v", 2},
                            {"interleaved", 3}, {"v-half", 2}, {"zb-h1", 1},       {"auto", 1},
                            {"auto", 2},        {"v-min", 2},  {"dualpipe-v", 2}};
    std::vector<Layout> layouts;
    const bool experts = deck::preset(model.family).experts.present();
    for (int tensor = 1; tensor <= (experts ? 5 : has_groups(model.family) ? 6 : 4); ++tensor)
      for (int pipeline = 1; pipeline <= 4; ++pipeline) {
        const int data = ranks / (tensor * pipeline);
        if (tensor * pipeline * data != ranks || data > 3) continue;
        for (const auto& [schedule, chunks] : pipeline == 1 ? of_one_stage : of_more)
          for (const bool sequence_parallel : {false, true})
            for (const bool tied : {true, false}) {
              if (sequence_parallel && tensor == 1) continue;
              layouts.push_back(
                  {tensor, pipeline, data, schedule, chunks, sequence_parallel, tied});
              layouts.back().family = model.family;
              layouts.back().key_value_heads = model.key_value_heads;
              layouts.back().property = model.property;
              layouts.back().order = order(layouts.size());
              if (!std::string_view(model.property).starts_with("encoder."))
                layouts.back().trained = {short_sequence};
            }
      }
    return layouts;
  }

  /// Number of models that the soak test trains in each layout; 0 in the default form.
  static int models_per_layout() {
    const char* number = std::getenv("TRIREME_ALL_LAYOUTS");
    return number ? std::atoi(number) : 0;
  }

  /// Models whose layouts are compared with one rank.
  static const std::vector<Model>& models() {
    static const std::vector<Model> all{{Family::gpt},
                                        {Family::llama},
                                        {Family::qwen2, 2},
                                        {Family::qwen3, 2, "model.head_size=8"},
                                        {Family::mistral, 3, "model.window=11"},
                                        {Family::gemma2, 2, "model.window=11"},
                                        {Family::olmo2, 3},
                                        {Family::qwen3_moe, 2, experts_in_some_layers},
                                        {Family::olmoe, 2, "experts.number=5 experts.active=3"},
                                        {Family::qwen2_moe, 2, five_and_a_shared_expert},
                                        {Family::gpt_oss, 2, experts_and_windows},
                                        {Family::deepseek_v3, 6, latent_and_groups},
                                        {Family::gpt, 3, "model.shared_layers=2"},
                                        {Family::qwen2, 2, "model.shared_layers=2"},
                                        {Family::bert, 3, "model.shared_layers=2"},
                                        {Family::t5, 6, encoder_of_three},
                                        {Family::t5, 6, gated_encoder_of_three},
                                        {Family::bert}};
    return all;
  }

  /// The kind of a schedule, by its properties that a model's passes depend on: whether backward
  /// passes are split, and the places of the chunks.
  static std::string kind_of(const Layout& l) {
    const bool in_v = l.schedule.starts_with("v-") || l.schedule == "zb-v" ||
                      l.schedule == "dualpipe-v" || (l.schedule == "auto" && l.chunks > 1);
    return in_v ? "v" : l.chunks > 1 ? "interleaved" : l.schedule == "zb-h1" ? "split" : "whole";
  }

  /// Layouts that cover each pair of a model, a size of an axis, a schedule, an order of the axes
  /// and the other options of all_layouts(), on the numbers of ranks that tests/CMakeLists.txt
  /// lists for these tests. A model is paired with the kinds of schedules, not with each one.
  static const std::vector<Layout>& chosen_layouts() {
    static const std::vector<Layout> chosen = [] {
      std::vector<Layout> all;
      std::vector<Combination> cases;
      for (std::size_t model = 0; model < models().size(); ++model)
        for (const int ranks : {1, 2, 3, 4, 6, 8, 12})
          for (Layout& layout : all_layouts(ranks, models()[model])) {
            const auto number = [](const std::string& word) {
              return static_cast<std::int64_t>(std::hash<std::string>{}(word));
            };
            cases.push_back(
                {{static_cast<std::int64_t>(model), layout.tensor, layout.pipeline, layout.data,
                  number(layout.schedule) + layout.chunks, layout.sequence_parallel, layout.tied,
                  number(layout.order), number(kind_of(layout))},
                 2 + ranks});  // a model's work, and waiting of each rank
            all.push_back(std::move(layout));
          }
      const std::vector<bool> picked = cover_pairs(cases, {0, 4});
      std::vector<Layout> some;
      for (std::size_t i = 0; i < all.size(); ++i)
        if (picked[i]) some.push_back(std::move(all[i]));
      return some;
    }();
    return chosen;
  }

  /// Tests the chosen layouts of these ranks with models for which `of(family, property)` is true.
  template <class Of>
  void expect_the_same_answer_of_layouts(const Of& of) {
    for (const Layout& layout : chosen_layouts())
      if (layout.ranks() == runtime().ranks() && of(layout.family, layout.property))
        expect_the_same_answer(layout);
  }

  /// Properties on which the bits may depend.
  struct Fixed {
    int tensor;
    int data;
    bool sequence_parallel;
    bool tied;
    Family family = Family::gpt;
    int key_value_heads = 3;
    const char* property = "";
  };
  /// Tests layouts that need all ranks.
  void expect_the_same_bits(const Fixed& f) {
    const int ranks = runtime().ranks();
    if (ranks % (f.tensor * f.data) != 0) return;
    Layout reference{f.tensor, 1, f.data, "1f1b", 1, f.sequence_parallel, f.tied};
    reference.family = f.family;
    reference.key_value_heads = f.key_value_heads;
    reference.property = f.property;
    std::vector<Layout> others;
    const int pipeline = ranks / (f.tensor * f.data);
    if (pipeline == 1)
      for (const Recompute recompute : {Recompute::selective, Recompute::full})
        others.push_back({f.tensor, 1, f.data, "1f1b", 1, f.sequence_parallel, f.tied, recompute,
                          recompute == Recompute::full ? Sharding::optimizer : Sharding::none});
    if (pipeline > 1 && pipeline <= 4)
      for (const auto& [schedule, chunks, recompute] :
           std::vector<std::tuple<std::string, int, Recompute>>{{"gpipe", 1, Recompute::none},
                                                                {"gpipe", 1, Recompute::full},
                                                                {"1f1b", 1, Recompute::selective},
                                                                {"interleaved", 3, Recompute::full},
                                                                {"zb-v", 2, Recompute::none},
                                                                {"zb-h1", 1, Recompute::none},
                                                                {"auto", 2, Recompute::none},
                                                                {"v-min", 2, Recompute::full},
                                                                {"dualpipe-v", 2, Recompute::full},
                                                                {"dualpipe-v", 2, Recompute::none},
                                                                {"zb-h1", 1, Recompute::full}})
        others.push_back({f.tensor, pipeline, f.data, schedule, chunks, f.sequence_parallel, f.tied,
                          recompute,
                          recompute == Recompute::none ? Sharding::optimizer : Sharding::none});
    const Outcome expected = run_on_some(reference);
    const std::size_t stride = models_per_layout() > 0 ? 1 : 2;
    for (std::size_t i = others.size() % stride; i < others.size(); i += stride) {
      Layout other = others[i];
      other.family = f.family;
      other.key_value_heads = f.key_value_heads;
      other.property = f.property;
      other.order = order(i);
      SCOPED_TRACE(other.name());
      const Outcome found = run_on_some(other);
      if (runtime().rank() > 0) continue;
      EXPECT_EQ(found.trace, expected.trace);
      EXPECT_EQ(found.weights, expected.weights);
    }
  }

  TemporaryFolder folder_;
  data::TokenFile tokens_{write_tokens(folder_, 20000)};
};

}  // namespace trireme::train
