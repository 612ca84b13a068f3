// Keys and tensors of the family bert.
#include <trireme/hugging_face/format.hpp>

#include <trireme/base/text.hpp>
#include <trireme/hugging_face/config_key.hpp>

#include <utility>

namespace trireme::hugging_face {
namespace {

using M = deck::ModelConfig;

constexpr std::string_view prefix = "bert.";
constexpr const char* table = "bert.embeddings.word_embeddings.weight";
constexpr const char* output = "cls.predictions.decoder.weight";
constexpr const char* output_bias = "cls.predictions.decoder.bias";
constexpr const char* tied_bias = "cls.predictions.bias";

std::string model_class(const M& m) {
  return m.has_sentence_head() ? "BertForPreTraining" : "BertForMaskedLM";
}

/// Key for the sentence head. The file does not name the head's loss: the loss is read as `next`.
ConfigKey heads() {
  ConfigKey key;
  key.name = "architectures";
  key.deck = "sentence_loss";
  key.write = [](const M& m) { return json::array({model_class(m)}); };
  key.read = [](const json& value, M& m) {
    const bool pairs = value == json::array({"BertForPreTraining"});
    m.sentence_loss = pairs ? SentenceLoss::next : SentenceLoss::none;
    return pairs || value == json::array({"BertForMaskedLM"});
  };
  key.expected = R"(["BertForPreTraining"] or ["BertForMaskedLM"])";
  key.in_deck = [](const M& m) { return text('"', name_of(m.sentence_loss), '"'); };
  return std::move(key).without(json::array({"BertForPreTraining"})).free();
}

std::vector<ConfigKey> keys() {
  return {heads(),
          whole("num_hidden_layers", "layers", &M::layers, layers_limit),
          whole("hidden_size", "hidden", &M::hidden, size_limit),
          whole("num_attention_heads", "heads", &M::heads, size_limit),
          whole("intermediate_size", "feed_forward", &M::feed_forward, 4 * size_limit),
          whole("max_position_embeddings", "sequence", &M::sequence, size_limit),
          whole("vocab_size", "vocabulary", &M::vocabulary, vocabulary_limit),
          fixed("type_vocab_size", {2}),
          gelu("hidden_act").without("gelu"),
          positive("layer_norm_eps", "norm_epsilon", &M::norm_epsilon).without(1e-12),
          dropout("hidden_dropout_prob", &M::dropout).without(0.1),
          dropout("attention_probs_dropout_prob", {}).without(0.1),
          flag("tie_word_embeddings", "tied_embeddings", &M::tied_embeddings).without(true),
          fixed("position_embedding_type", {"absolute"}),
          fixed("is_decoder", {false}),
          fixed("add_cross_attention", {false}),
          written("pad_token_id", [](const M&) { return json(); })};
}

void check_config(const json&, const M& m, Complaints& complaints) {
  if (m.hidden % m.heads != 0)
    complaints.add("hidden_size = ", m.hidden,
                   ", expected a multiple of num_attention_heads = ", m.heads);
}

/// A list of tensors, none of which is transposed.
class List {
 public:
  void add(std::string name, Extents shape, std::string array, Extents place = {}) {
    out_.push_back({std::move(name), std::move(shape), {{std::move(array), std::move(place)}}});
  }
  /// Adds a weight matrix and its bias.
  void linear(const std::string& name, std::int64_t rows, std::int64_t columns,
              const std::string& array, Extents place = {}) {
    add(name + ".weight", {rows, columns}, array, place);
    add(name + ".bias", {rows}, array + "_bias", place);
  }
  void norm(const std::string& name, std::int64_t hidden, const std::string& array) {
    add(name + ".weight", {hidden}, array + ".gain");
    add(name + ".bias", {hidden}, array + ".bias");
  }
  std::vector<Tensor> take() { return std::move(out_); }

 private:
  std::vector<Tensor> out_;
};

/// Trireme names a norm after the block that reads its output, transformers after the block whose
/// output it normalizes.
void add_layer(List& list, const M& m, std::int64_t layer) {
  const std::int64_t D = m.hidden;
  const std::int64_t F = m.feed_forward;
  const std::string theirs = text(prefix, "encoder.layer.", layer, ".");
  const std::string ours = layer_prefix(m, layer);
  list.linear(theirs + "attention.self.query", D, D, ours + "attention.query");
  list.linear(theirs + "attention.self.key", D, D, ours + "attention.key_value", {0});
  list.linear(theirs + "attention.self.value", D, D, ours + "attention.key_value", {1});
  list.linear(theirs + "attention.output.dense", D, D, ours + "attention.output");
  list.norm(theirs + "attention.output.LayerNorm", D, ours + "feed_forward_norm");
  list.linear(theirs + "intermediate.dense", F, D, ours + "feed_forward.up");
  list.linear(theirs + "output.dense", D, F, ours + "feed_forward.down");
  const bool last = layer + 1 == m.layers;
  list.norm(theirs + "output.LayerNorm", D,
            last ? "final_norm" : layer_prefix(m, layer + 1) + "attention_norm");
}

std::vector<Tensor> tensors(const M& m) {
  const std::int64_t D = m.hidden;
  List list;
  list.add(table, {m.vocabulary, D}, "embedding.token");
  list.add("bert.embeddings.position_embeddings.weight", {m.sequence, D}, "embedding.position");
  list.add("bert.embeddings.token_type_embeddings.weight", {2, D}, "embedding.segment");
  list.norm("bert.embeddings.LayerNorm", D, "layers.0.attention_norm");
  for (std::int64_t layer = 0; layer < m.layers; ++layer) add_layer(list, m, layer);
  if (m.has_sentence_head()) list.linear("bert.pooler.dense", D, D, "sentence_head.dense");
  list.linear("cls.predictions.transform.dense", D, D, "masked_head.dense");
  list.norm("cls.predictions.transform.LayerNorm", D, "masked_head.norm");
  if (!m.tied_embeddings) list.add(output, {m.vocabulary, D}, "output.weight");
  list.add(m.tied_embeddings ? tied_bias : output_bias, {m.vocabulary}, "output.bias");
  if (m.has_sentence_head()) list.linear("cls.seq_relationship", 2, D, "sentence_head.output");
  return list.take();
}

std::vector<Copy> copies(const M& m) {
  if (m.tied_embeddings) return {{output, table}, {output_bias, tied_bias}};
  return {{tied_bias, output_bias, Copy::Use::none}};
}

std::string today(std::string_view name, const M& m) {
  std::string full = with_prefix(name, prefix, "cls.");
  if (full == "bert.embeddings.position_ids") return {};
  if (!m.has_sentence_head() &&
      (full.starts_with("bert.pooler.") || full.starts_with("cls.seq_relationship.")))
    return {};
  for (const auto& [old, now] : {std::pair(".LayerNorm.gamma", ".LayerNorm.weight"),
                                 std::pair(".LayerNorm.beta", ".LayerNorm.bias")})
    if (full.ends_with(old)) full.replace(full.rfind(old), std::string::npos, now);
  return full;
}

}  // namespace

const Format& bert_format() {
  static const Format format{.family = Family::bert,
                             .model_type = "bert",
                             .keys = with_general_keys(keys()),
                             .model_class = model_class,
                             .check = check_config,
                             .tensors = tensors,
                             .copies = copies,
                             .today = today};
  return format;
}

}  // namespace trireme::hugging_face
