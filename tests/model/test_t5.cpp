#include <trireme/data/token_source.hpp>
#include <trireme/deck/families.hpp>
#include <trireme/model/decoder.hpp>
#include <trireme/model/rank_model.hpp>

#include "model/golden_gradients.hpp"
#include "model/whole_model.hpp"
#include "support/small_gpt.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

/// The family t5 against Hugging Face transformers' T5ForConditionalGeneration
/// (tests/golden/t5_fp64/make.py).
namespace trireme::model {
namespace {

using namespace trireme::testing;

constexpr std::int64_t t5_samples = 3;
constexpr std::int64_t source_tokens = 23;
constexpr std::int64_t target_tokens = 14;
constexpr std::int64_t t5_vocabulary = 53;
constexpr std::int64_t t5_stride = 11;  ///< of the stored elements of gradients

enum class Version : std::uint8_t { v1_0, v1_1 };
const char* name_of_version(Version version) {
  return version == Version::v1_0 ? "v1_0" : "v1_1";
}

/// Form of the golden file's samples: each is a sample of its own without padding, a pair with
/// padding, or one of three pairs of a sample with padding.
enum class Form : std::uint8_t { alone, padded, packed };
const char* name_of_form(Form form) {
  return form == Form::alone ? "alone" : form == Form::padded ? "padded" : "packed";
}

/// Number of samples of a batch, and their lengths.
struct FormSizes {
  std::int64_t samples = t5_samples, source = source_tokens, target = target_tokens;

  explicit FormSizes(Form form) {
    if (form == Form::packed) {
      samples = 1;
      source *= t5_samples;
      target *= t5_samples;
    }
    if (form == Form::alone) return;
    source += 5;
    target += 3;
  }
};

deck::ModelConfig t5_model(Version version, Form form = Form::alone) {
  deck::ModelConfig m;
  deck::set_family(m, Family::t5);
  m.encoder.layers = 2;
  m.encoder.sequence = FormSizes(form).source;
  if (form != Form::alone) m.objective = Objective::sequence_to_sequence;
  if (form == Form::packed) m.packing = Packing::documents;
  m.layers = 3;
  m.hidden = 20;
  m.heads = m.key_value_heads = 4;
  m.explicit_head_size = 7;
  m.feed_forward = 30;
  m.sequence = FormSizes(form).target;
  m.vocabulary = t5_vocabulary;
  m.relative_buckets = 8;
  m.relative_distance = 12;
  m.tied_embeddings = m.scaled_logits = version == Version::v1_0;
  if (version == Version::v1_1) m.activation = Activation::geglu;
  return m;
}

/// Token of sample b at position s; `factor` distinguishes sources and targets.
std::int32_t t5_token(std::int64_t b, std::int64_t s, std::int64_t factor) {
  return static_cast<std::int32_t>((7919 + b * 104729 + s * 1299709 + s * s * (b + factor)) %
                                   t5_vocabulary);
}

/// The decoder reads the targets, shifted by the start token, which is 0. Padding has tokens 9.
template <class P>
void set_t5_batch(const WholeModel<P>& stage, Form form = Form::alone) {
  using Ids = std::vector<std::int32_t>;
  Ids source, tokens, targets, positions, source_begin, source_end, key_begin, key_end;
  const FormSizes n(form);
  std::int32_t begin = 0;  // of the pair's source in its sample
  const auto pad = [&](Ids& ids, std::int64_t length, std::int32_t value) {
    while (std::ssize(ids) % length != 0) ids.push_back(value);
  };
  for (std::int64_t b = 0; b < t5_samples; ++b) {
    const auto end = static_cast<std::int32_t>(begin + source_tokens);
    for (std::int64_t s = 0; s < source_tokens; ++s) {
      source.push_back(t5_token(b, s, 31));
      source_begin.push_back(begin);
      source_end.push_back(end);
    }
    for (std::int64_t s = 0; s < target_tokens; ++s) {
      tokens.push_back(s == 0 ? 0 : t5_token(b, s - 1, 17));
      targets.push_back(t5_token(b, s, 17));
      positions.push_back(static_cast<std::int32_t>(s));
      key_begin.push_back(begin);
      key_end.push_back(end);
    }
    begin = end;
    if (form == Form::packed && b + 1 < t5_samples) continue;
    pad(source, n.source, 9);
    for (Ids* ids : {&source_begin, &source_end}) pad(*ids, n.source, end);
    pad(tokens, n.target, 9);
    pad(targets, n.target, data::uncounted);
    pad(positions, n.target, 0);
    for (Ids* ids : {&key_begin, &key_end}) pad(*ids, n.target, end);
    begin = 0;
  }
  set_values(stage.field(0, "source"), source);
  set_values(stage.tokens(0), tokens);
  set_values(stage.targets(0), targets);
  if (form == Form::packed) set_values(stage.field(0, "positions"), positions);
  if (form == Form::alone) return;
  set_values(stage.field(0, "source_begin"), source_begin);
  set_values(stage.field(0, "source_end"), source_end);
  set_values(stage.field(0, "key_begin"), key_begin);
  set_values(stage.field(0, "key_end"), key_end);
}

MicroContext t5_context(double dropout = 0, Form form = Form::alone) {
  MicroContext c;
  c.seed = 7;
  c.step = 3;
  c.sequence = FormSizes(form).target;
  c.dropout = dropout;
  c.token_weight = 1.0 / static_cast<double>(t5_samples * target_tokens);
  return c;
}

GoldenGradients t5_golden(Version version) {
  return {text("t5_fp64/", name_of_version(version)), t5_stride};
}

/// (version, recompute, split backward pass, form)
class T5 : public ::testing::TestWithParam<std::tuple<Version, Recompute, bool, Form>> {};
INSTANTIATE_TEST_SUITE_P(
    All, T5,
    ::testing::Combine(::testing::Values(Version::v1_0, Version::v1_1),
                       ::testing::Values(Recompute::none, Recompute::selective, Recompute::full),
                       ::testing::Bool(),
                       ::testing::Values(Form::alone, Form::padded, Form::packed)),
    [](const auto& test) {
      return text(name_of_version(std::get<0>(test.param)), "_", name_of(std::get<1>(test.param)),
                  std::get<2>(test.param) ? "_split" : "", "_",
                  name_of_form(std::get<3>(test.param)));
    });

TEST_P(T5, LossAndGradientsMatchTransformers) {
  const auto& [version, recompute, split, form] = GetParam();
  const GoldenGradients golden = t5_golden(version);
  const MicroContext micro = t5_context(0, form);
  golden.expect_batch(
      t5_model(version, form), FormSizes(form).samples, recompute, split, micro,
      [form = form](const auto& stage) { set_t5_batch(stage, form); },
      [&](const auto& stage) { golden.expect_loss(stage, micro); });
}

class T5Form : public ::testing::TestWithParam<std::tuple<Version, Form>> {};
INSTANTIATE_TEST_SUITE_P(Models, T5Form,
                         ::testing::Combine(::testing::Values(Version::v1_0, Version::v1_1),
                                            ::testing::Values(Form::alone, Form::padded,
                                                              Form::packed)),
                         [](const auto& test) {
                           return text(name_of_version(std::get<0>(test.param)), "_",
                                       name_of_form(std::get<1>(test.param)));
                         });

TEST_P(T5Form, EvaluationMatchesTransformers) {
  const auto& [version, form] = GetParam();
  const GoldenGradients golden = t5_golden(version);
  const auto architecture = architecture::describe(t5_model(version, form));
  Parameters<Fp64> parameters(architecture, architecture::whole_model(architecture), false);
  golden.set_weights(parameters);
  const std::int64_t samples = FormSizes(form).samples;
  const WholeModel<Fp64> stage(architecture, parameters, {samples, 1, false, false});
  const kernels::Handle handle;
  set_t5_batch(stage, form);
  stage.zero_loss(handle);
  stage.evaluate(handle, 0, t5_context(0, form), samples);
  const double mean = value_of(stage.loss()) / static_cast<double>(t5_samples * target_tokens);
  EXPECT_NEAR(mean, golden.losses.front(), 1e-10 * golden.losses.front());
}

TEST_P(T5Form, GradientsWithDropoutMatchFiniteDifferences) {
  const auto& [version, form] = GetParam();
  const auto architecture = architecture::describe(t5_model(version, form));
  Parameters<Fp64> parameters(architecture, architecture::whole_model(architecture), true);
  t5_golden(version).set_weights(parameters);
  const WholeModel<Fp64> stage(architecture, parameters, {FormSizes(form).samples, 1, true, false});
  const kernels::Handle handle;
  const MicroContext micro = t5_context(0.2, form);
  const auto loss = [&] {
    set_t5_batch(stage, form);
    stage.zero_loss(handle);
    stage.forward(handle, 0, micro);
    return value_of(stage.loss()) * micro.token_weight;
  };
  loss();
  stage.backward(handle, 0, micro, [](std::int64_t) {});
  expect_derivatives(parameters, loss);
}

using Ids = std::vector<std::int32_t>;

/// Ids of a source or of a text; texts begin with the start token, which is 0.
Ids t5_ids(std::int64_t number, std::int64_t length, std::int64_t factor) {
  Ids ids;
  for (std::int64_t s = 0; s < length; ++s) ids.push_back(t5_token(number, s, factor));
  if (factor == 17) ids.front() = 0;
  return ids;
}

/// Logits [tokens, V] of a pass over a whole source and a whole text.
std::vector<double> t5_logits(deck::ModelConfig model, const GoldenGradients& golden,
                              const Ids& source, const Ids& tokens) {
  model.encoder.sequence = std::ssize(source);
  model.sequence = std::ssize(tokens);
  const auto architecture = architecture::describe(model);
  Parameters<Fp64> parameters(architecture, architecture::whole_model(architecture), false);
  golden.set_weights(parameters);
  const WholeModel<Fp64> stage(architecture, parameters, {1, 1, false, false});
  const kernels::Handle handle;
  set_values(stage.field(0, "source"), source);
  set_values(stage.tokens(0), tokens);
  set_values(stage.targets(0), tokens);
  stage.zero_loss(handle);
  MicroContext context;
  context.sequence = model.sequence;
  stage.evaluate(handle, 0, context, 1);
  const auto logits = stage.rank_model().head_tensor<double>(0, "logits");
  const std::size_t stride = logits.stride(0), rows = logits.extent(0);
  const auto padded = values_of(View1<double>(logits.data(), rows * stride));
  std::vector<double> values;
  for (std::size_t r = 0; r < rows; ++r)
    values.insert(values.end(), padded.begin() + std::ptrdiff_t(r * stride),
                  padded.begin() + std::ptrdiff_t(r * stride + logits.extent(1)));
  return values;
}

/// A text in a cache, and the logits after its tokens so far.
struct CachedText {
  Ids source, tokens;
  std::vector<double> logits = {};

  std::vector<CachedToken> source_rows(std::int32_t place) const {
    std::vector<CachedToken> rows;
    for (const std::int32_t id : source)
      rows.push_back({place, id, static_cast<std::int32_t>(rows.size())});
    return rows;
  }
};

class T5Version : public ::testing::TestWithParam<Version> {};
INSTANTIATE_TEST_SUITE_P(Models, T5Version, ::testing::Values(Version::v1_0, Version::v1_1),
                         [](const auto& test) { return name_of_version(test.param); });

/// Sources of different lengths, alone or together in a pass, and texts that begin at different
/// passes, are longer than a sample, and take the places of other texts.
TEST_P(T5Version, CachedLogitsMatchTheUncachedModel) {
  const GoldenGradients golden = t5_golden(GetParam());
  deck::ModelConfig model = t5_model(GetParam());
  constexpr std::int64_t longest = 90, places = 3, text_tokens = 33;
  const auto text = [](std::int64_t number, std::int64_t source, std::int64_t tokens) {
    return CachedText{t5_ids(number, source, 31), t5_ids(number, tokens, 17)};
  };
  model.encoder.sequence = longest;
  const auto architecture = architecture::describe(model);
  Parameters<Fp64> parameters(architecture, architecture::whole_model(architecture), false);
  golden.set_weights(parameters);
  const auto alone = grid::Communicator::self();
  Decoder<Fp64> decoder(architecture, parameters, *alone, {places, places, text_tokens});
  const kernels::Handle handle;
  const auto expect_whole_passes = [&](const CachedText& t) {
    const auto expected = t5_logits(model, golden, t.source, t.tokens);
    ASSERT_EQ(t.logits.size(), expected.size());
    double largest = 0;
    for (const double x : expected) largest = std::max(largest, std::abs(x));
    for (std::size_t i = 0; i < expected.size(); ++i)
      ASSERT_NEAR(t.logits[i], expected[i], 1e-10 * largest)
          << t.source.size() << " source tokens, logit " << i;
  };

  std::array<CachedText, places> texts{text(0, 31, text_tokens), text(1, longest, 20),
                                       text(2, 7, 9)};
  decoder.run(handle, texts[1].source_rows(1), PassWidth::long_source, false);
  std::vector<CachedToken> together = texts[2].source_rows(2);
  const auto other = texts[0].source_rows(0);
  together.insert(together.end(), other.begin(), other.end());
  decoder.run(handle, together, PassWidth::source, false);
  for (std::size_t pass = 0; pass < 40; ++pass) {
    if (pass == 13) {  // the place of a text that is complete
      ASSERT_EQ(texts[2].logits.size(), texts[2].tokens.size() * t5_vocabulary);
      expect_whole_passes(texts[2]);
      texts[2] = text(3, 1, 25);
      decoder.run(handle, texts[2].source_rows(2), PassWidth::source, false);
    }
    std::vector<CachedToken> rows;
    std::vector<bool> has_token;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const std::size_t next = texts[i].logits.size() / t5_vocabulary;
      has_token.push_back(pass >= 2 * i && next < texts[i].tokens.size());
      rows.push_back(has_token.back()
                         ? CachedToken{static_cast<std::int32_t>(i), texts[i].tokens[next],
                                       static_cast<std::int32_t>(next)}
                         : CachedToken{});
    }
    decoder.run(handle, rows, PassWidth::narrow, true);
    const std::vector<double> logits = values_of(decoder.logits());  // [places, V]
    for (std::size_t i = 0; i < texts.size(); ++i)
      if (has_token[i])
        texts[i].logits.insert(texts[i].logits.end(),
                               logits.begin() + std::ptrdiff_t(i * t5_vocabulary),
                               logits.begin() + std::ptrdiff_t((i + 1) * t5_vocabulary));
  }
  for (const CachedText& each : texts) expect_whole_passes(each);

  using Rows = std::vector<CachedToken>;
  EXPECT_THROW(decoder.run(handle, Rows{{0, 1, text_tokens}}, PassWidth::narrow, true), Error);
  EXPECT_THROW(decoder.run(handle, Rows{{0, 1, 1}}, PassWidth::source, false), Error)
      << "a source without its first token";
  EXPECT_THROW(decoder.run(handle, Rows{{0, 1, 0}, {1, 1, 1}}, PassWidth::source, false), Error);
}

TEST_P(T5Form, PlannedBytesMatchTheAllocation) {
  const auto& [version, form] = GetParam();
  for (const std::int64_t feed_forward : {30, 60})
    expect_planned_bytes(t5_model(version, form), [&](deck::ModelConfig& model, bool) {
      model.feed_forward = feed_forward;
    });
}

}  // namespace
}  // namespace trireme::model
