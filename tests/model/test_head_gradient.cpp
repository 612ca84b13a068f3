#include <trireme/deck/families.hpp>
#include <trireme/model/rank_model.hpp>

#include "support/small_gpt.hpp"

#include <gtest/gtest.h>

#include <vector>

/// The head's gradient in the forward pass, or in the backward pass from what a slot keeps.
namespace trireme::model {
namespace {

using namespace trireme::testing;
using architecture::HeadGradient;

constexpr std::int64_t head_samples = 2;

template <class P>
class HeadGradients : public ::testing::Test {};
using Precisions = ::testing::Types<Fp32, Fp64, MixedBf16, MixedFp16>;
TYPED_TEST_SUITE(HeadGradients, Precisions);

deck::ModelConfig head_model(Family family) {
  deck::ModelConfig m = golden_model();
  deck::set_family(m, family);
  m.key_value_heads = m.heads;
  m.vocabulary = 61;
  m.sequence = family == Family::bert ? 240 : 72;  // more than two blocks of 64 rows, or one
  return m;
}

/// Distinct values below `most`, or rows of the samples' own masked tokens and first tokens.
std::vector<std::int32_t> values_of_field(const architecture::BatchField& field,
                                          const deck::ModelConfig& m, int slot) {
  const std::int64_t S = m.sequence, N = m.targets();
  std::vector<std::int32_t> values;
  if (field.name == "rows") {
    for (std::int64_t b = 0; b < head_samples; ++b)
      for (std::int64_t k = 0; k < N; ++k)
        values.push_back(static_cast<std::int32_t>(b * S + k + 1));
    for (std::int64_t b = 0; b < head_samples; ++b)
      values.push_back(static_cast<std::int32_t>(b * S));
    return values;
  }
  const bool two = field.name == "pairs" || field.name == "segments";
  for (std::int64_t i = 0; i < head_samples * field.per_sample; ++i)
    values.push_back(golden_token(slot, i, 3 * i + 1) % (two ? 2 : 61));
  return values;
}

/// The losses of two micro-batches and the gradients of all arrays, with both forward passes before
/// the backward passes.
template <class P>
std::vector<double> pass(const deck::ModelConfig& m, HeadGradient gradient, bool split) {
  const auto architecture = architecture::describe(m);
  const Parameters<P> parameters(architecture, architecture::whole_model(architecture), true);
  set_golden_weights(parameters);
  typename WholeModel<P>::Shape shape{.micro = head_samples, .slots = 2, .split_backward = split};
  shape.head = gradient;
  shape.logit_elements = 1;  // the shortest blocks
  const WholeModel<P> stage(architecture, parameters, shape);
  EXPECT_LT(stage.rank_model().sizes().logit_block, stage.rank_model().sizes().targets);
  const kernels::Handle handle;
  MicroContext c;
  c.sequence = m.sequence;
  c.token_weight = 0.125;
  stage.zero_loss(handle);
  const auto& fields = stage.rank_model().objective().fields;
  for (int slot = 0; slot < 2; ++slot) {
    for (const architecture::BatchField& field : fields)
      set_values(stage.field(slot, field.name), values_of_field(field, m, slot));
    stage.forward(handle, slot, c);
  }
  for (int slot = 0; slot < 2; ++slot) {
    if (!split) {
      stage.backward(handle, slot, c, [](std::int64_t) {});
      continue;
    }
    stage.backward_input(handle, slot, c);
    stage.backward_weight(handle, slot, c, [](std::int64_t) {});
  }
  std::vector<double> found;
  const auto add = [&found](const auto& values) {
    for (const auto value : values_of(values)) found.push_back(static_cast<double>(value));
  };
  add(stage.rank_model().losses());
  for (const auto& entry : parameters.entries()) add(entry.gradient.data);
  if (m.tied_embeddings) add(flat(parameters.tied_gradient()));
  return found;
}

TYPED_TEST(HeadGradients, HaveTheSameBitsInTheBackwardPass) {
  for (const Family family : {Family::gpt, Family::llama, Family::bert}) {
    const deck::ModelConfig m = head_model(family);
    const std::vector<double> expected = pass<TypeParam>(m, HeadGradient::with_losses, false);
    for (const HeadGradient later : {HeadGradient::kept, HeadGradient::again})
      for (const bool split : {false, true})
        EXPECT_EQ(pass<TypeParam>(m, later, split), expected)
            << name_of(family) << (later == HeadGradient::kept ? " kept" : " again")
            << (split ? ", split" : "");
  }
}

}  // namespace
}  // namespace trireme::model
