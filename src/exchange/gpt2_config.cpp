#include <trireme/architecture/architecture.hpp>
#include <trireme/base/check.hpp>
#include <trireme/exchange/gpt2_config.hpp>

#include <nlohmann/json.hpp>

#include <string_view>
#include <utility>
#include <vector>

namespace trireme::exchange {
namespace {

using Json = nlohmann::json;

/// PyTorch's name of a type.
const char* torch_name(DType type) {
  switch (type) {
    case DType::fp64:
      return "float64";
    case DType::fp32:
      return "float32";
    case DType::bf16:
      return "bfloat16";
    case DType::fp16:
      return "float16";
    case DType::int64:
    case DType::int32:
    case DType::uint32:
    case DType::uint16:
    case DType::uint8:
      break;
  }
  throw Error(text("weights of type ", name_of(type), "; expected fp64, fp32, bf16 or fp16"));
}

/// Reads keys and collects what is wrong with them.
class Keys {
 public:
  explicit Keys(const Json& json) : json_(json) {}

  /// A size from 1 to `largest`; without one, `otherwise`, or a complaint if that is 0.
  std::int64_t size(const char* key, std::int64_t otherwise, std::int64_t largest) {
    const Json* value = given(key);
    if (value == nullptr) {
      if (otherwise == 0) complain(key, "is missing", "a whole number");
      return otherwise;
    }
    const bool fits = value->is_number_unsigned() && value->get<std::uint64_t>() >= 1 &&
                      value->get<std::uint64_t>() <= static_cast<std::uint64_t>(largest);
    if (fits) return value->get<std::int64_t>();
    complain(key, value->dump(), text("a whole number from 1 to ", largest));
    return 1;
  }

  double share(const char* key) {
    constexpr double gpt2_default = 0.1;
    const Json* value = given(key);
    if (value == nullptr) return gpt2_default;
    if (value->is_number() && value->get<double>() >= 0 && value->get<double>() < 1)
      return value->get<double>();
    complain(key, value->dump(), "a number of at least 0 and below 1");
    return 0;
  }

  bool flag(const char* key, bool otherwise) {
    const Json* value = given(key);
    if (value == nullptr) return otherwise;
    if (!value->is_boolean()) complain(key, value->dump(), "true or false");
    return value->is_boolean() ? value->get<bool>() : otherwise;
  }

  /// What Trireme's models all have; `required`: a file without the key does not have it.
  void expect(const char* key, const std::vector<Json>& allowed, bool required = false) {
    const Json* value = given(key);
    if (value == nullptr && !required) return;
    for (const Json& one : allowed)
      if (value != nullptr && *value == one) return;
    complain(key, value == nullptr ? "is missing" : value->dump(), allowed.front().dump());
  }

  void complain(const char* key, const std::string& value, const std::string& expected) {
    lines_ +=
        text("\n  ", key, value == "is missing" ? " " : " = ",
             value.size() <= 80 ? value : value.substr(0, 77) + "...", ", expected ", expected);
  }

  void raise(const std::string& path) const {
    check_usage(lines_.empty(), path, ": describes a model that Trireme does not have:", lines_);
  }

 private:
  /// Null if the key is not there or is null, which config.json means alike.
  const Json* given(const char* key) const {
    const auto found = json_.find(key);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }

  const Json& json_;
  std::string lines_;
};

Json parse_object(const std::string& content, const std::string& path) {
  Json json = Json::parse(content, nullptr, false);
  check_usage(json.is_object(), path, ": is not a JSON object; expected the config.json of a ",
              "GPT2LMHeadModel");
  return json;
}

}  // namespace

std::string gpt2_config_text(const deck::ModelConfig& m, DType dtype,
                             std::optional<std::int64_t> end_of_document) {
  nlohmann::ordered_json json;
  json["architectures"] = {"GPT2LMHeadModel"};
  json["model_type"] = "gpt2";
  json["n_layer"] = m.layers;
  json["n_embd"] = m.hidden;
  json["n_head"] = m.heads;
  json["n_inner"] = m.feed_forward;
  json["n_positions"] = m.sequence;
  json["n_ctx"] = m.sequence;
  json["vocab_size"] = m.vocabulary;
  json["activation_function"] = "gelu_new";
  json["layer_norm_epsilon"] = m.norm_epsilon;
  json["embd_pdrop"] = m.dropout;
  json["resid_pdrop"] = m.dropout;
  json["attn_pdrop"] = m.dropout;
  json["tie_word_embeddings"] = m.tied_embeddings;
  json["initializer_range"] = architecture::weight_deviation;
  json["scale_attn_weights"] = true;
  json["scale_attn_by_inverse_layer_idx"] = false;
  json["reorder_and_upcast_attn"] = false;
  json["torch_dtype"] = torch_name(dtype);
  // Without these keys transformers would take GPT-2's own 50256.
  for (const char* key : {"bos_token_id", "eos_token_id"})
    json[key] = end_of_document ? nlohmann::ordered_json(*end_of_document) : nullptr;
  return json.dump(2) + "\n";
}

Gpt2Config parse_gpt2_config(const std::string& content, const std::string& path) {
  constexpr std::int64_t size_limit = 16777216;  // those of the deck's keys
  constexpr std::int64_t layers_limit = 65536;
  constexpr std::int64_t vocabulary_limit = 1 << 30;
  const Json json = parse_object(content, path);
  Keys keys(json);
  keys.expect("model_type", {"gpt2"}, true);
  Gpt2Config out;
  deck::ModelConfig& m = out.model;
  m.layers = keys.size("n_layer", 0, layers_limit);
  m.hidden = keys.size("n_embd", 0, size_limit);
  m.heads = m.key_value_heads = keys.size("n_head", 0, size_limit);
  m.feed_forward = keys.size("n_inner", 4 * m.hidden, 4 * size_limit);
  m.sequence = keys.size("n_positions", 0, size_limit);
  m.vocabulary = keys.size("vocab_size", 0, vocabulary_limit);
  m.tied_embeddings = keys.flag("tie_word_embeddings", true);
  out.embedding_dropout = keys.share("embd_pdrop");
  out.residual_dropout = m.dropout = keys.share("resid_pdrop");
  out.attention_dropout = keys.share("attn_pdrop");
  if (m.heads > 0 && m.hidden % m.heads != 0)
    keys.complain("n_embd", text(m.hidden), text("a multiple of n_head = ", m.heads));
  keys.expect("n_ctx", {m.sequence});
  // Two names of the same function: GELU in its tanh form.
  keys.expect("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  keys.expect("layer_norm_epsilon", {deck::ModelConfig{}.norm_epsilon});
  keys.expect("scale_attn_weights", {true});
  keys.expect("scale_attn_by_inverse_layer_idx", {false});
  keys.expect("reorder_and_upcast_attn", {false});
  keys.expect("add_cross_attention", {false});
  keys.raise(path);
  return out;
}

void expect_same_model(const Gpt2Config& config, const std::string& path, const deck::Deck& deck) {
  const deck::ModelConfig& a = config.model;
  const deck::ModelConfig& b = deck.config.model;
  std::string lines;
  const auto compare = [&](const char* theirs, const auto& value, const char* ours,
                           const auto& deck_value) {
    if (value == deck_value) return;
    lines += text("\n  ", theirs, " = ", value, ", the deck has ", deck.cite("model", ours));
  };
  if (b.family != a.family)
    lines += text("\n  model_type = gpt2, the deck has ", deck.cite("model", "family"));
  compare("n_layer", a.layers, "layers", b.layers);
  compare("n_embd", a.hidden, "hidden", b.hidden);
  compare("n_head", a.heads, "heads", b.heads);
  compare("n_inner", a.feed_forward, "feed_forward", b.feed_forward);
  compare("n_positions", a.sequence, "sequence", b.sequence);
  compare("vocab_size", a.vocabulary, "vocabulary", b.vocabulary);
  compare("tie_word_embeddings", a.tied_embeddings, "tied_embeddings", b.tied_embeddings);
  compare("layer_norm_epsilon", a.norm_epsilon, "norm_epsilon", b.norm_epsilon);
  check_usage(lines.empty(), path, ": is another model than the deck's:", lines,
              "\n`trireme import` without a deck prints the [model] section for a file");
}

std::string model_toml(const Gpt2Config& config) {
  const deck::ModelConfig& m = config.model;
  std::string dropout = text("dropout = ", m.dropout);
  if (!config.one_dropout())
    dropout += text("  # resid_pdrop; embd_pdrop = ", config.embedding_dropout,
                    " and attn_pdrop = ", config.attention_dropout, " cannot be set apart");
  return text("[model]\nfamily = \"gpt\"\nlayers = ", m.layers, "\nhidden = ", m.hidden,
              "\nheads = ", m.heads, "\nfeed_forward = ", m.feed_forward,
              "\nsequence = ", m.sequence, "\nvocabulary = ", m.vocabulary, "\n", dropout,
              "\ntied_embeddings = ", m.tied_embeddings);
}

}  // namespace trireme::exchange
