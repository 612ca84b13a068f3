// Keys and tensors of the family gpt. Matrices of GPT-2's Conv1D are transposed.
#include <trireme/hugging_face/format.hpp>

#include <trireme/architecture/architecture.hpp>
#include <trireme/base/text.hpp>
#include <trireme/hugging_face/config_key.hpp>

#include <utility>

namespace trireme::hugging_face {
namespace {

using M = deck::ModelConfig;

constexpr std::string_view prefix = "transformer.";
constexpr const char* table = "transformer.wte.weight";
constexpr const char* head = "lm_head.weight";

std::vector<ConfigKey> keys() {
  const auto sequence = [](const M& m) { return json(m.sequence); };
  return {
      whole("n_layer", "layers", &M::layers, layers_limit),
      whole("n_embd", "hidden", &M::hidden, size_limit),
      whole("n_head", "heads", &M::heads, size_limit),
      whole("n_inner", "feed_forward", &M::feed_forward, 4 * size_limit).without([](const M& m) {
        return json(4 * m.hidden);
      }),
      whole("n_positions", "sequence", &M::sequence, size_limit),
      implied("n_ctx", sequence),
      whole("vocab_size", "vocabulary", &M::vocabulary, vocabulary_limit),
      gelu("activation_function").without("gelu_new"),
      positive("layer_norm_epsilon", "norm_epsilon", &M::norm_epsilon).without(1e-5),
      dropout("resid_pdrop", &M::dropout).without(0.1),
      dropout("embd_pdrop", {}).without(0.1),
      dropout("attn_pdrop", {}).without(0.1),
      flag("tie_word_embeddings", "tied_embeddings", &M::tied_embeddings).without(true),
      fixed("scale_attn_weights", {true}),
      fixed("scale_attn_by_inverse_layer_idx", {false}),
      fixed("reorder_and_upcast_attn", {false}),
      fixed("add_cross_attention", {false})};
}

void check_config(const json&, const M& m, Complaints& complaints) {
  if (m.hidden % m.heads != 0)
    complaints.add("n_embd = ", m.hidden, ", expected a multiple of n_head = ", m.heads);
}

void add_layer(std::vector<Tensor>& out, const M& m, std::int64_t layer) {
  const std::int64_t D = m.hidden;
  const std::int64_t F = m.feed_forward;
  const std::string theirs = text(prefix, "h.", layer, ".");
  const std::string ours = layer_prefix(m, layer);
  const auto add = [&](const char* name, Extents shape, const std::vector<const char*>& arrays) {
    out.push_back({theirs + name, std::move(shape), {}});
    for (const char* array : arrays) out.back().pieces.push_back({ours + array});
  };
  const auto add_transposed = [&](const char* name, std::int64_t inputs, std::int64_t outputs,
                                  const std::vector<const char*>& arrays) {
    add(name, {inputs, outputs}, arrays);
    out.back().extents = {outputs, inputs};
    out.back().axes = {1, 0};
  };
  add("ln_1.weight", {D}, {"attention_norm.gain"});
  add("ln_1.bias", {D}, {"attention_norm.bias"});
  add_transposed("attn.c_attn.weight", D, 3 * D, {"attention.query", "attention.key_value"});
  add("attn.c_attn.bias", {3 * D}, {"attention.query_bias", "attention.key_value_bias"});
  add_transposed("attn.c_proj.weight", D, D, {"attention.output"});
  add("attn.c_proj.bias", {D}, {"attention.output_bias"});
  add("ln_2.weight", {D}, {"feed_forward_norm.gain"});
  add("ln_2.bias", {D}, {"feed_forward_norm.bias"});
  add_transposed("mlp.c_fc.weight", D, F, {"feed_forward.up"});
  add("mlp.c_fc.bias", {F}, {"feed_forward.up_bias"});
  add_transposed("mlp.c_proj.weight", F, D, {"feed_forward.down"});
  add("mlp.c_proj.bias", {D}, {"feed_forward.down_bias"});
}

std::vector<Tensor> tensors(const M& m) {
  const std::int64_t D = m.hidden;
  std::vector<Tensor> out;
  out.push_back({table, {m.vocabulary, D}, {{"embedding.token"}}});
  out.push_back({"transformer.wpe.weight", {m.sequence, D}, {{"embedding.position"}}});
  for (std::int64_t layer = 0; layer < m.layers; ++layer) add_layer(out, m, layer);
  out.push_back({"transformer.ln_f.weight", {D}, {{"final_norm.gain"}}});
  out.push_back({"transformer.ln_f.bias", {D}, {{"final_norm.bias"}}});
  if (!m.tied_embeddings) out.push_back({head, {m.vocabulary, D}, {{"output.weight"}}});
  return out;
}

/// Whether a tensor of this name is a causal mask, such as "transformer.h.3.attn.bias".
bool is_mask(std::string_view name) {
  const std::string_view start = "transformer.h.";
  if (!name.starts_with(start)) return false;
  name.remove_prefix(start.size());
  const auto digits = name.find_first_not_of("0123456789");
  if (digits == 0 || digits == std::string_view::npos) return false;
  name.remove_prefix(digits);
  return name == ".attn.bias" || name == ".attn.masked_bias";
}

std::string today(std::string_view name, const M&) {
  std::string full = with_prefix(name, prefix, "lm_head.");
  return is_mask(full) ? std::string() : full;
}

}  // namespace

const Format& gpt2_format() {
  static const Format format{
      .family = Family::gpt,
      .model_type = "gpt2",
      .keys = with_general_keys(keys()),
      .model_class = [](const M&) { return std::string("GPT2LMHeadModel"); },
      .check = check_config,
      .tensors = tensors,
      .copies =
          [](const M& m) {
            return m.tied_embeddings ? std::vector<Copy>{{head, table}} : std::vector<Copy>{};
          },
      .today = today};
  return format;
}

}  // namespace trireme::hugging_face
