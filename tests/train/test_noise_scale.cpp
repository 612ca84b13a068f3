// The gradient noise scale against the squares of gradients that runs of single batches give.
#include <trireme/architecture/architecture.hpp>
#include <trireme/optim/noise_scale.hpp>

#include "support/training.hpp"
#include "support/whole_arrays.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

namespace trireme::train {
namespace {

using namespace trireme::testing;
using Arrays = std::map<std::string, std::vector<double>>;

constexpr std::int64_t noise_batch = 8;

class NoiseScale : public ::testing::Test {
 protected:
  /// A step of gradient descent changes each weight by 64 times its gradient.
  static std::vector<std::string> keys(std::vector<std::string> more) {
    more.insert(more.end(),
                {"optimizer.kind=sgd", "optimizer.momentum=0", "optimizer.weight_decay=0",
                 "optimizer.learning_rate=64", "optimizer.schedule=constant",
                 "optimizer.warmup_steps=0", "optimizer.clip_norm=0", "model.dropout=0"});
    return more;
  }

  /// Σ over the matrices of the layers of the squares, or of the products, of gradients.
  double square_of(const Arrays& gradient) const {
    double sum = 0;
    for (const auto& [name, numbers] : gradient)
      for (const double x : numbers) sum += x * x;
    return sum;
  }

  /// The gradient of samples [first, first + count), for the arrays that show the noise.
  Arrays gradient_of(std::int64_t first, std::int64_t count,
                     const std::vector<std::string>& model) const {
    const auto self = grid::Communicator::self();
    const deck::Config config = small_config(count, 1, 1, keys(model));
    Rig rig(config, tokens_, *self);
    const Arrays before = whole_arrays(*rig.engine, *self);
    rig.engine->train_step(first / count + 1, rig.samples);
    const Arrays after = whole_arrays(*rig.engine, *self);
    Arrays gradient;
    for (const auto& spec : architecture::describe(config.model).arrays) {
      if (!optim::shows_noise(spec, config.model.layers)) continue;
      auto& numbers = gradient[spec.name] = before.at(spec.name);
      for (std::size_t i = 0; i < numbers.size(); ++i)
        numbers[i] = (numbers[i] - after.at(spec.name)[i]) / 64;
    }
    return gradient;
  }

  /// The ratio of the paper's equations A.2 and A.3, for one step.
  double expected(int replicas, std::int64_t micro, const std::vector<std::string>& model) const {
    const auto b = static_cast<double>(micro), B = static_cast<double>(noise_batch);
    const double large = square_of(gradient_of(0, noise_batch, model));
    double small = 0;
    for (int r = 0; r < replicas; ++r)
      small += square_of(gradient_of(r * micro, micro, model)) / replicas;
    const double square = (B * large - b * small) / (B - b);
    return (small - large) / (1 / b - 1 / B) / square;
  }

  void expect_noise(std::int64_t micro, std::vector<std::string> layout,
                    const std::vector<std::string>& model = {}) {
    SCOPED_TRACE(text(join(layout, " "), ", micro ", micro, ", ", join(model, " ")));
    layout.insert(layout.end(), model.begin(), model.end());
    layout.emplace_back("run.gradient_noise_scale=true");
    const deck::Config config = small_config(noise_batch, micro, runtime().ranks(), keys(layout));
    Rig rig(config, tokens_);
    rig.engine->train_step(1, rig.samples);
    const auto found = rig.engine->result().noise_scale;
    if (runtime().rank() == 0) {
      const double wanted = expected(static_cast<int>(config.parallel.data), micro, model);
      ASSERT_TRUE(std::isfinite(wanted));
      EXPECT_EQ(found.has_value(), wanted > 0) << wanted;
      // Differences of weights have some 1e-16 / 64 of error, squares of gradients about 1e-4.
      if (found) {
        EXPECT_NEAR(*found, wanted, 1e-8 * wanted);
      }
    }
    runtime().world().barrier("the reference");
  }

  TemporaryFolder folder_;
  data::TokenFile tokens_{write_tokens(folder_, 4000)};
};

TEST_F(NoiseScale, MatchesTheGradientsOfSingleBatches) {
  const int ranks = runtime().ranks();
  if (ranks == 3) return;  // does not divide the batch
  for (const std::int64_t micro : {1, 2}) {
    expect_noise(micro, {});
    expect_noise(micro, {"parallel.shard=weights", "parallel.bucket_bytes=20000"});
    if (ranks == 1) continue;
    expect_noise(
        micro, {"parallel.tensor=2", "parallel.sequence_parallel=true", "parallel.shard=gradients"},
        {"model.heads=6"});
    expect_noise(micro, {"parallel.pipeline=2", "parallel.schedule=zb-h1"},
                 {"model.family=llama", "model.key_value_heads=1"});
    expect_noise(micro,
                 {"parallel.pipeline=2", "parallel.schedule=interleaved", "parallel.chunks=2"},
                 {"model.layers=4"});
  }
  expect_noise(1, {}, {"adapter.kind=lora", "adapter.targets=attention.query,attention.output"});
}

/// The scale of the loss is no part of the estimate: its powers of two change the bits of gradients
/// near the smallest numbers of fp16 only.
TEST_F(NoiseScale, DoesNotDependOnTheLossScale) {
  const auto noise = [&](const char* scale) {
    Rig rig(small_config(noise_batch, 1, runtime().ranks(),
                         {"run.gradient_noise_scale=true", "precision.compute=fp16", scale}),
            tokens_);
    rig.run(1, 4);
    return rig.engine->result().noise_scale;
  };
  if (runtime().ranks() == 3) return;
  const double expected = noise("precision.loss_scale=4096").value();
  EXPECT_NEAR(noise("precision.loss_scale=1024").value(), expected, 1e-3 * expected);
}

}  // namespace
}  // namespace trireme::train
