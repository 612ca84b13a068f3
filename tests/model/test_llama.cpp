#include <trireme/deck/families.hpp>
#include <trireme/model/decoder.hpp>
#include <trireme/model/rank_model.hpp>

#include "model/whole_model.hpp"
#include "support/small_gpt.hpp"
#include "support/source_folder.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <sstream>

/// The families llama, qwen2, qwen3, mistral, gemma, gemma2, gemma3, olmo2, mixtral, qwen3_moe,
/// olmoe, qwen2_moe, gpt_oss and deepseek_v3 against Hugging Face transformers' classes
/// (tests/golden/llama_fp64/make.py, decoders_fp64/make.py), and their generation against their
/// forward pass.
namespace trireme::model {
namespace {

using namespace trireme::testing;

constexpr std::int64_t llama_samples = 2;

/// A model whose numbers make.py has written, as `file`.txt and `file`.f64.
struct Case {
  Family family;
  bool tied;
  const char* file;
  std::int64_t stored_stride;    ///< of the gradients' elements
  bool packed = false;           ///< samples hold several documents
  std::int64_t first_layer = 0;  ///< first of 2 layers with experts, if there are experts

  std::string name() const {
    return text(name_of(family), tied ? "_tied" : "_untied", packed ? "_packed" : "",
                first_layer > 0 ? "_dense" : "", is_plain() ? "_plain" : "");
  }
  bool is_plain() const { return std::string_view(file).ends_with("_plain"); }
  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.name(); }
};

const auto all_cases = ::testing::Values(
    Case{Family::llama, true, "llama_fp64/tied", 29},
    Case{Family::llama, false, "llama_fp64/untied", 29},
    Case{Family::qwen2, true, "decoders_fp64/qwen2", 97},
    Case{Family::qwen3, false, "decoders_fp64/qwen3", 97},
    Case{Family::mistral, false, "decoders_fp64/mistral", 97},
    Case{Family::gemma, true, "decoders_fp64/gemma", 97},
    Case{Family::gemma2, true, "decoders_fp64/gemma2", 97},
    Case{Family::gemma3, false, "decoders_fp64/gemma3", 97},
    Case{Family::olmo2, false, "decoders_fp64/olmo2", 97},
    Case{Family::mixtral, false, "decoders_fp64/mixtral", 97},
    Case{Family::qwen3_moe, false, "decoders_fp64/qwen3_moe", 97},
    Case{Family::qwen3_moe, false, "decoders_fp64/qwen3_moe_dense", 97, false, 1},
    Case{Family::olmoe, false, "decoders_fp64/olmoe", 97},
    Case{Family::qwen2_moe, false, "decoders_fp64/qwen2_moe", 97},
    Case{Family::gpt_oss, false, "decoders_fp64/gpt_oss", 97},
    Case{Family::deepseek_v3, false, "decoders_fp64/deepseek_v3", 97, false, 1},
    Case{Family::deepseek_v3, false, "decoders_fp64/deepseek_v3_plain", 97, false, 1});

deck::ModelConfig model_of(const Case& c) {
  deck::ModelConfig m;
  deck::set_family(m, c.family);
  m.layers = 2;
  m.hidden = 144;
  m.heads = 6;
  m.key_value_heads = 3;
  m.feed_forward = 100;
  m.sequence = 61;
  m.vocabulary = 503;
  m.tied_embeddings = c.tied;
  if (c.packed) m.packing = Packing::documents;
  if (c.family == Family::llama) m.norm_epsilon = 1e-6;
  if (c.family == Family::qwen3 || c.family == Family::qwen3_moe) m.explicit_head_size = 32;
  if (m.experts.present()) {
    m.experts.number = 5;
    m.experts.active = 2;
    m.experts.feed_forward = 24;
    if (m.experts.shared_gate) m.experts.shared_feed_forward = 28;
    m.experts.first_layer = c.first_layer;
    m.experts.balance = ExpertBalance::none;
  }
  if (c.family == Family::mistral) m.window = 17;
  if (m.zero_centered_gains) m.explicit_head_size = 32;
  if (m.full_attention_every > 0) {
    m.window = 17;
    m.full_attention_every = 2;
  }
  if (c.family == Family::gemma2) {
    m.query_pre_attention_scalar = 20;
    m.attention_softcap = 0.7;
    m.logit_softcap = 1.5;
  }
  if (c.family == Family::gpt_oss) {
    m.explicit_head_size = 32;
    m.activation_limit = 2.5;
    m.rope_theta = 1000;
    m.rope_scaling = RotaryScalingKind::yarn;
    m.rope_factor = 4;
    m.rope_beta_fast = 1.5;
    m.rope_beta_slow = 0.05;
    m.rope_truncate = false;
    m.rope_original_sequence = 16;
  }
  if (c.family == Family::deepseek_v3) {
    m.layers = 3;
    m.key_value_heads = 6;
    m.key_value_rank = 36;
    m.explicit_head_size = 32;
    m.rotary_size = 12;
    m.value_size = 24;
    m.experts.number = 6;
    if (c.is_plain()) {
      m.query_rank = 0;
      m.rope_interleaved = false;
      m.rope_theta = 1e4;
      m.experts.groups = m.experts.active_groups = 1;
      m.experts.normalised = false;
      m.experts.shared_feed_forward = 48;
    } else {
      m.query_rank = 40;
      m.rope_theta = 100;
      m.rope_scaling = RotaryScalingKind::yarn;
      m.rope_factor = 4;
      m.rope_beta_fast = 0.8;
      m.rope_beta_slow = 0.1;
      m.rope_mscale = m.rope_mscale_all = 1;
      m.rope_original_sequence = 16;
      m.experts.groups = 3;
      m.experts.active_groups = 2;
      m.experts.shared_feed_forward = 24;
    }
  }
  if (c.family == Family::gemma3) {
    m.rope_scaling = RotaryScalingKind::linear;
    m.rope_factor = 8;
  }
  return m;
}

/// Of sample b at position s.
std::int32_t llama_token(std::int64_t b, std::int64_t s) {
  return static_cast<std::int32_t>((7919 + b * 104729 + s * 1299709 + s * s * (b + 31)) % 503);
}

template <class P>
void set_tokens(const WholeModel<P>& stage) {
  std::vector<std::int32_t> tokens, targets;
  for (std::int64_t b = 0; b < llama_samples; ++b)
    for (std::int64_t s = 0; s < 61; ++s) {
      tokens.push_back(llama_token(b, s));
      targets.push_back(llama_token(b, s + 1));
    }
  set_values(stage.tokens(0), tokens);
  set_values(stage.targets(0), targets);
}

/// Documents of tokens that have a next one; the last sample is one document, and the first one
/// ends with padding.
const std::vector<std::vector<std::int64_t>> packed_lengths{{20, 1, 33}, {61}};

template <class P>
void set_packed_tokens(const WholeModel<P>& stage) {
  std::vector<std::int32_t> tokens(llama_samples * 61), targets(llama_samples * 61, -1),
      positions(llama_samples * 61);
  for (std::int64_t b = 0; b < llama_samples; ++b) {
    std::int64_t s = 0;
    for (const std::int64_t length : packed_lengths[static_cast<std::size_t>(b)])
      for (std::int64_t i = 0; i < length; ++i, ++s) {
        const auto at = static_cast<std::size_t>(b * 61 + s);
        tokens[at] = llama_token(b, s);
        targets[at] = llama_token(b, i + 1 < length ? s + 1 : s + 100);
        positions[at] = static_cast<std::int32_t>(i);
      }
  }
  set_values(stage.tokens(0), tokens);
  set_values(stage.targets(0), targets);
  set_values(stage.field(0, "positions"), positions);
}

/// Targets of both samples that count.
std::int64_t counted(const Case& c) {
  return c.packed ? 20 + 1 + 33 + 61 : llama_samples * 61;
}

MicroContext llama_context(double dropout = 0) {
  MicroContext c;
  c.seed = 7;
  c.step = 3;
  c.sequence = 61;
  c.dropout = dropout;
  c.token_weight = 1.0 / static_cast<double>(llama_samples * 61);
  return c;
}

/// What make.py has written, line by line.
struct LlamaGolden {
  double loss = 0;
  std::vector<std::string> names;  ///< of the arrays, in the order that numbers them for weights
  std::map<std::string, std::array<double, 3>> sums;  ///< Σ g, Σ g·noise, Σ g²
  std::vector<double> logits;
  std::vector<double> gradients;  ///< every stored_stride-th element of each array

  explicit LlamaGolden(const Case& c) {
    const std::string stem = golden_file(c.file);
    std::ifstream in(stem + ".txt");
    for (std::string line; std::getline(in, line);) {
      std::istringstream words(line);
      std::string name;
      words >> name;
      if (name == "loss")
        words >> loss;
      else if (name == "logits")
        for (double x = 0; words >> x;) logits.push_back(x);
      else {
        names.push_back(name);
        for (double& sum : sums[name]) words >> sum;
      }
    }
    gradients = read_doubles(stem + ".f64");
  }

  std::int64_t number(const std::string& name) const {
    return std::ranges::find(names, name) - names.begin();
  }
};

template <class P>
void set_weights(const Parameters<P>& parameters, const LlamaGolden& golden,
                 const deck::ModelConfig& m) {
  for (const auto& entry : parameters.entries()) {
    const std::string& name = entry.spec->name;
    std::vector<typename P::Compute> values;
    for (std::int64_t i = 0; i < entry.weight.elements(); ++i)
      values.push_back(
          static_cast<typename P::Compute>(golden_weight(golden.number(name), name, i) -
                                           (name.ends_with("gain") ? m.gain_offset() : 0)));
    set_values(entry.weight.data, values);
  }
}

/// (model, recompute, split backward pass)
class Llama : public ::testing::TestWithParam<std::tuple<Case, Recompute, bool>> {};
std::string case_name(const ::testing::TestParamInfo<std::tuple<Case, Recompute, bool>>& test) {
  const Case& c = std::get<0>(test.param);
  return text(c.name(), "_", name_of(std::get<1>(test.param)),
              std::get<2>(test.param) ? "_split" : "");
}
INSTANTIATE_TEST_SUITE_P(All, Llama,
                         ::testing::Combine(all_cases,
                                            ::testing::Values(Recompute::none, Recompute::selective,
                                                              Recompute::full),
                                            ::testing::Bool()),
                         case_name);
/// tests/golden/packed_fp64/make.py
INSTANTIATE_TEST_SUITE_P(
    Packed, Llama,
    ::testing::Combine(::testing::Values(Case{Family::llama, false, "packed_fp64/llama", 97, true}),
                       ::testing::Values(Recompute::none, Recompute::full), ::testing::Bool()),
    case_name);

TEST_P(Llama, LossAndGradientsMatchTransformers) {
  const auto& [which, recompute, split] = GetParam();
  const LlamaGolden golden(which);
  const auto architecture = architecture::describe(model_of(which));
  Parameters<Fp64> parameters(architecture, architecture::whole_model(architecture), true);
  set_weights(parameters, golden, architecture.model);
  const WholeModel<Fp64> stage(architecture, parameters,
                               {llama_samples, 1, true, split, recompute});
  const kernels::Handle handle;
  if (which.packed)
    set_packed_tokens(stage);
  else
    set_tokens(stage);
  MicroContext micro = llama_context();
  micro.token_weight = 1.0 / static_cast<double>(counted(which));
  stage.zero_loss(handle);
  stage.forward(handle, 0, micro);
  if (split) {
    stage.backward_input(handle, 0, micro);
    stage.backward_weight(handle, 0, micro, [](std::int64_t) {});
  } else {
    stage.backward(handle, 0, micro, [](std::int64_t) {});
  }
  const double mean = value_of(stage.loss()) / static_cast<double>(counted(which));
  EXPECT_NEAR(mean, golden.loss, (which.packed ? 1e-10 : 1e-9) * golden.loss);

  double largest = 0;  // over the model: the norm of design promise 1
  for (const double g : golden.gradients) largest = std::max(largest, std::abs(g));
  ASSERT_EQ(golden.sums.size(), architecture.arrays.size());
  const std::int64_t stride = which.stored_stride;
  std::map<std::string, std::int64_t> first;  // of an array's stored gradients
  std::int64_t stored = 0;
  for (const std::string& name : golden.names) {
    first[name] = stored;
    const auto spec = std::ranges::find(architecture.arrays, name, &architecture::ArraySpec::name);
    ASSERT_NE(spec, architecture.arrays.end()) << name;
    stored += (spec->elements() + stride - 1) / stride;
  }
  ASSERT_EQ(stored, std::ssize(golden.gradients));
  for (const auto& entry : parameters.entries()) {
    std::vector<double> g = values_of(entry.gradient.data);
    if (which.tied && entry.spec->name == "embedding.token") {
      const auto& second = parameters.tied_gradient();
      const auto logits = values_of(View1<double>(second.data(), second.size()));
      for (std::size_t i = 0; i < g.size(); ++i) g[i] += logits[i];
    }
    double sum = 0, projection = 0, squares = 0;
    for (std::size_t i = 0; i < g.size(); ++i) {
      sum += g[i];
      projection += g[i] * golden_noise(static_cast<std::int64_t>(i));
      squares += g[i] * g[i];
      const auto k = static_cast<std::int64_t>(i);
      if (k % stride != 0) continue;
      const auto at = static_cast<std::size_t>(first.at(entry.spec->name) + k / stride);
      ASSERT_NEAR(g[i], golden.gradients[at], 1e-9 * largest) << entry.spec->name << ", " << i;
    }
    // Each of n elements may be off by 1e-9 of the largest.
    const auto n = static_cast<double>(g.size());
    const auto& expected = golden.sums.at(entry.spec->name);
    EXPECT_NEAR(sum, expected[0], 1e-9 * largest * n) << entry.spec->name;
    EXPECT_NEAR(projection, expected[1], 1e-9 * largest * n) << entry.spec->name;
    EXPECT_NEAR(std::sqrt(squares), std::sqrt(expected[2]), 1e-9 * largest * std::sqrt(n))
        << entry.spec->name;
  }
}

class LlamaDecoder : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Models, LlamaDecoder, all_cases,
                         [](const auto& model) { return model.param.name(); });

/// Passes the samples' tokens, and calls f(position) after each.
template <class P, class F>
void feed(Decoder<P>& decoder, const F& f) {
  for (std::int32_t s = 0; s < 61; ++s) {
    decoder.run(kernels::Handle(),
                std::vector<CachedToken>{{0, llama_token(0, s), s}, {1, llama_token(1, s), s}},
                PassWidth::narrow, true);
    f(s);
  }
}

TEST_P(LlamaDecoder, Fp32LogitsMatchTransformers) {
  const LlamaGolden golden(GetParam());
  const auto architecture = architecture::describe(model_of(GetParam()));
  Parameters<Fp32> parameters(architecture, architecture::whole_model(architecture), false);
  set_weights(parameters, golden, architecture.model);
  const auto alone = grid::Communicator::self();
  Decoder<Fp32> decoder(architecture, parameters, *alone, {llama_samples, llama_samples});
  std::vector<double> found;  // the first 16 behind the last 3 tokens of the first sequence
  feed(decoder, [&](std::int64_t s) {
    const auto logits = values_of(decoder.logits());
    if (s >= 58) found.insert(found.end(), logits.begin(), logits.begin() + 16);
  });
  ASSERT_EQ(found.size(), golden.logits.size());
  double largest = 0;
  for (const double x : golden.logits) largest = std::max(largest, std::abs(x));
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], golden.logits[i], 1e-4 * largest) << i;
}

TEST_P(LlamaDecoder, TokenByTokenMatchesTheLossOfTheWholeText) {
  const auto architecture = architecture::describe(model_of(GetParam()));
  Parameters<Fp64> parameters(architecture, architecture::whole_model(architecture), false);
  set_weights(parameters, LlamaGolden(GetParam()), architecture.model);
  const kernels::Handle handle;
  const WholeModel<Fp64> stage(architecture, parameters, {llama_samples, 1, false, false});
  set_tokens(stage);
  stage.zero_loss(handle);
  stage.evaluate(handle, 0, llama_context(), llama_samples);
  const auto alone = grid::Communicator::self();
  Decoder<Fp64> decoder(architecture, parameters, *alone, {llama_samples, llama_samples});
  double nats = 0;
  feed(decoder, [&](std::int64_t s) {
    const std::vector<double> logits = values_of(decoder.logits());
    for (std::int64_t b = 0; b < llama_samples; ++b) {
      const double* row = logits.data() + b * 503;
      double sum = 0;
      for (std::int64_t v = 0; v < 503; ++v) sum += std::exp(row[v]);
      nats += std::log(sum) - row[llama_token(b, s + 1)];
    }
  });
  EXPECT_NEAR(nats, value_of(stage.loss()), 1e-12 * nats);
}

TEST_P(LlamaDecoder, GradientsWithDropoutMatchFiniteDifferences) {
  const auto architecture = architecture::describe(model_of(GetParam()));
  Parameters<Fp64> parameters(architecture, architecture::whole_model(architecture), true);
  set_weights(parameters, LlamaGolden(GetParam()), architecture.model);
  const WholeModel<Fp64> stage(architecture, parameters, {llama_samples, 1, true, false});
  const kernels::Handle handle;
  MicroContext micro = llama_context(0.2);
  // A mask with which the small changes below change no token's choice of experts.
  if (architecture.model.experts.present()) micro.step = 4;
  const auto loss = [&] {
    set_tokens(stage);
    stage.zero_loss(handle);
    stage.forward(handle, 0, micro);
    return value_of(stage.loss()) / (llama_samples * 61);
  };
  loss();
  stage.backward(handle, 0, micro, [](std::int64_t) {});
  expect_derivatives(parameters, loss);
}

TEST_P(LlamaDecoder, PlannedBytesMatchTheAllocation) {
  for (const std::int64_t feed_forward : {100, 200})
    expect_planned_bytes(model_of(GetParam()), [&](deck::ModelConfig& model, bool split) {
      if (split) model.packing = Packing::documents;
      model.feed_forward = feed_forward;
    });
}

}  // namespace
}  // namespace trireme::model
