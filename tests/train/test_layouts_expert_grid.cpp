// Every size of the axes that divide a model with experts, together: all of them as a soak test.
#include "train/layouts.hpp"

#include <array>

namespace trireme::train {
namespace {

constexpr std::int64_t grid_steps = 10;

/// Losses, norms, terms of the loss and loads of all steps, and weights after the last one.
struct Numbers {
  std::vector<double> steps;
  std::vector<double> weights;
};

class ExpertGrid : public ::testing::Test {
 protected:
  /// Models with each rule of the balance, all with at least one expert per rank of tensor 4 and
  /// expert 3, or with divided experts.
  static const std::vector<std::pair<Family, std::vector<std::string>>>& models() {
    static const std::vector<std::pair<Family, std::vector<std::string>>> all{
        {Family::mixtral, {"experts.number=13", "experts.z_weight=0.01"}},
        {Family::qwen2_moe,
         {"experts.number=13", "experts.active=3", "experts.shared_feed_forward=17",
          "experts.balance=batch", "model.key_value_heads=2"}},
        {Family::deepseek_v3,
         {"experts.number=12", "experts.active=2", "experts.groups=3", "experts.active_groups=2",
          "experts.first_layer=1", "experts.bias_rate=0.01", "model.key_value_rank=12",
          "model.query_rank=18", "model.rotary_size=4", "model.value_size=6"}},
        {Family::mixtral, {"experts.number=13", "experts.capacity=0.9"}},
        {Family::gpt_oss,
         {"experts.number=13", "experts.active=2", "experts.rows=0.6", "model.window=17",
          "model.key_value_heads=2"}},
        {Family::qwen3_moe,
         {"experts.number=5", "experts.active=2", "experts.split=true", "experts.first_layer=1",
          "experts.every=2", "model.head_size=8", "experts.balance=batch"}}};
    return all;
  }

  Numbers train(std::size_t model, const std::vector<std::string>& layout,
                grid::Communicator& world) const {
    const auto& [family, properties] = models()[model];
    std::vector<std::string> keys{text("model.family=", name_of(family)),
                                  "model.layers=6",
                                  "model.heads=6",
                                  "model.sequence=25",
                                  "experts.feed_forward=12",
                                  "parallel.bucket_bytes=20000"};
    if (family != Family::deepseek_v3) keys.emplace_back("experts.balance_weight=0.1");
    keys.insert(keys.end(), properties.begin(), properties.end());
    keys.insert(keys.end(), layout.begin(), layout.end());
    Rig rig(small_config(24, 1, world.size(), keys), tokens_, world);
    Numbers numbers;
    for (std::int64_t step = 1; step <= grid_steps; ++step) {
      rig.engine->train_step(step, rig.samples);
      const StepResult found = rig.engine->result();
      numbers.steps.insert(numbers.steps.end(), {found.loss, found.gradient_norm});
      for (const NamedLoss& other : found.other_losses) numbers.steps.push_back(other.mean);
      for (const auto* more : {&found.expert_loads, &found.dropped_choices})
        numbers.steps.insert(numbers.steps.end(), more->begin(), more->end());
    }
    numbers.weights = weights_of(whole_arrays(*rig.engine, world));
    return numbers;
  }

  const TemporaryFolder folder_;
  const data::TokenFile tokens_{write_tokens(folder_, 20000)};
};

/// Sizes of the axes; the ranks of `expert` are replicas besides those of `data`.
struct Sizes {
  int tensor, expert, context, pipeline, data;
  int ranks() const { return tensor * expert * context * pipeline * data; }
};

std::vector<Sizes> sizes_of(int ranks) {
  std::vector<Sizes> all;
  for (int tensor = 1; tensor <= 4; ++tensor)
    for (int expert = 1; expert <= 4; ++expert)
      for (int context = 1; context <= 2; ++context)
        for (int pipeline = 1; pipeline <= 3; ++pipeline)
          for (int data = 1; data <= 2; ++data) {
            const Sizes sizes{tensor, expert, context, pipeline, data};
            if (sizes.ranks() == ranks) all.push_back(sizes);
          }
  return all;
}

/// The i-th word, cyclically.
template <std::size_t count>
const char* in_turn(const std::array<const char*, count>& words, std::size_t i) {
  return words[i % count];
}

TEST_F(ExpertGrid, MatchesOneRank) {
  if (std::getenv("TRIREME_SOAK") == nullptr) GTEST_SKIP() << "set TRIREME_SOAK";
  std::array<Numbers, 6> alone;
  std::size_t i = static_cast<std::size_t>(runtime().ranks());
  for (const Sizes& s : sizes_of(runtime().ranks()))
    for (std::size_t turn = 0; turn < 3; ++turn, ++i) {
      const std::size_t model = i % models().size();
      const std::size_t other = i / models().size();
      const char* schedule =
          s.pipeline == 1 ? "1f1b" : in_turn(std::array{"1f1b", "zb-h1", "zb-v", "gpipe"}, other);
      const std::vector<std::string> layout{
          text("parallel.tensor=", s.tensor),
          text("parallel.expert=", s.expert),
          text("parallel.context=", s.context),
          text("parallel.pipeline=", s.pipeline),
          text("parallel.schedule=", schedule),
          text("parallel.chunks=", std::string_view(schedule) == "zb-v" ? 2 : 1),
          text("parallel.sequence_parallel=", s.tensor > 1 && other % 2 == 0 ? "true" : "false"),
          text("parallel.recompute=", in_turn(std::array{"none", "full", "selective"}, other)),
          text("parallel.shard=",
               in_turn(std::array{"none", "weights", "optimizer", "gradients"}, other + turn))};
      SCOPED_TRACE(text("model ", model, ": ", join(layout, " ")));
      const Numbers found = train(model, layout, runtime().world());
      if (runtime().rank() > 0) continue;
      Numbers& expected = alone[model];
      if (expected.steps.empty()) {
        const auto self = grid::Communicator::self();
        expected = train(model, {}, *self);
      }
      ASSERT_EQ(found.steps.size(), expected.steps.size());
      for (std::size_t n = 0; n < expected.steps.size(); ++n)
        EXPECT_NEAR(found.steps[n], expected.steps[n], 1e-10 * std::abs(expected.steps[n])) << n;
      ASSERT_EQ(found.weights.size(), expected.weights.size());
      double largest = 0;
      double difference = 0;
      for (std::size_t n = 0; n < expected.weights.size(); ++n) {
        largest = std::max(largest, std::abs(expected.weights[n]));
        difference = std::max(difference, std::abs(found.weights[n] - expected.weights[n]));
      }
      EXPECT_LE(difference, 1e-10 * largest) << "weights after the last step";
    }
}

}  // namespace
}  // namespace trireme::train
