// Keys and tensors of the family t5. Encoder and decoder have the same tensors under two prefixes,
// but only the decoder has cross-attention.
#include <trireme/hugging_face/format.hpp>

#include <trireme/architecture/operation.hpp>
#include <trireme/base/text.hpp>
#include <trireme/hugging_face/config_key.hpp>

#include <algorithm>
#include <array>
#include <utility>

namespace trireme::hugging_face {
namespace {

using M = deck::ModelConfig;

constexpr const char* table = "shared.weight";
constexpr const char* head = "lm_head.weight";

ConfigKey encoder_layers() {
  ConfigKey key;
  key.name = "num_layers";
  key.deck = "layers";
  key.section = "encoder";
  key.write = [](const M& m) { return json(m.encoder.layers); };
  key.read = [](const json& value, M& m) {
    if (!value.is_number_integer() || value < 1 || value > layers_limit) return false;
    m.encoder.layers = value.get<std::int64_t>();
    return true;
  };
  key.expected = text("a whole number from 1 to ", layers_limit);
  return key;
}

/// transformers' names of the feed-forward: "relu", or "gated-silu" with a gate. Version 1.0 has
/// "relu", version 1.1 "gated-gelu", whose GELU is the approximation with tanh.
struct FeedForward {
  Activation activation;
  const char* name;      ///< feed_forward_proj
  const char* function;  ///< dense_act_fn
};
constexpr std::array feed_forwards{FeedForward{Activation::relu, "relu", "relu"},
                                   FeedForward{Activation::geglu, "gated-gelu", "gelu_new"},
                                   FeedForward{Activation::swiglu, "gated-silu", "silu"},
                                   FeedForward{Activation::gelu, "gelu_new", "gelu_new"}};

/// Null for an activation that no file has.
const FeedForward* feed_forward_of(const M& m) {
  const auto found = std::ranges::find(feed_forwards, m.activation, &FeedForward::activation);
  return found == feed_forwards.end() ? nullptr : &*found;
}

ConfigKey feed_forward() {
  ConfigKey key;
  key.name = "feed_forward_proj";
  key.deck = "activation";
  key.write = [](const M& m) {
    const FeedForward* const found = feed_forward_of(m);
    return found != nullptr ? json(found->name) : json(name_of(m.activation));
  };
  key.read = [](const json& value, M& m) {
    const auto found = std::ranges::find(feed_forwards, value, &FeedForward::name);
    if (found == feed_forwards.end()) return false;
    m.activation = found->activation;
    return true;
  };
  key.expected = R"("relu", "gated-gelu", "gated-silu" or "gelu_new")";
  key.in_deck = [](const M& m) { return text('"', name_of(m.activation), '"'); };
  return std::move(key).without("relu");
}

/// transformers writes these keys, which follow from feed_forward_proj, and obeys them.
ConfigKey follows_feed_forward(const char* name, json (*value)(const FeedForward&)) {
  ConfigKey key = implied(name, [value](const M& m) {
    const FeedForward* const found = feed_forward_of(m);
    return found != nullptr ? value(*found) : json();
  });
  key.write = {};
  key.expected = "the value that follows from feed_forward_proj";
  return key;
}

ConfigKey head_size() {
  ConfigKey key = whole("d_kv", "head_size", &M::explicit_head_size, size_limit);
  key.write = [](const M& m) { return json(m.head_size()); };
  key.read = [read = key.read](const json& value, M& m) {
    if (!read(value, m)) return false;
    if (m.explicit_head_size * m.heads == m.hidden) m.explicit_head_size = 0;
    return true;
  };
  key.in_deck = [](const M& m) {
    return m.explicit_head_size > 0 ? text(m.explicit_head_size) : std::string();
  };
  return std::move(key).without(64);
}

/// Relative positions have no longest sequence. This key, on which no weight depends, sets the
/// lengths of the samples.
ConfigKey sequence() {
  ConfigKey key;
  key.name = "n_positions";
  key.deck = "sequence";
  key.section = "encoder";
  key.write = [](const M& m) { return json(m.encoder.sequence); };
  key.read = [](const json& value, M& m) {
    if (!value.is_number_integer() || value < 3 || value > size_limit) return false;
    m.encoder.sequence = value.get<std::int64_t>();
    m.encoder.sequence = m.spans().source;
    m.sequence = m.spans().target;
    return true;
  };
  key.expected = text("a whole number from 3 to ", size_limit);
  key.in_deck = [](const M& m) { return text(m.encoder.sequence); };
  return std::move(key).without(512).free();
}

std::vector<ConfigKey> keys() {
  return {
      encoder_layers(),
      whole("num_decoder_layers", "layers", &M::layers, layers_limit)
          .without([](const M& m) { return json(m.encoder.layers); })
          .with_null([](const M& m) { return json(m.encoder.layers); }),
      whole("d_model", "hidden", &M::hidden, size_limit),
      whole("num_heads", "heads", &M::heads, size_limit),
      head_size(),
      whole("d_ff", "feed_forward", &M::feed_forward, 4 * size_limit),
      whole("vocab_size", "vocabulary", &M::vocabulary, vocabulary_limit),
      feed_forward(),
      follows_feed_forward("dense_act_fn", [](const FeedForward& f) { return json(f.function); }),
      follows_feed_forward("is_gated_act",
                           [](const FeedForward& f) {
                             return json(std::string_view(f.name).starts_with("gated-"));
                           }),
      whole("relative_attention_num_buckets", "relative_buckets", &M::relative_buckets, 1024)
          .without(32),
      whole("relative_attention_max_distance", "relative_distance", &M::relative_distance,
            size_limit)
          .without(128),
      positive("layer_norm_epsilon", "norm_epsilon", &M::norm_epsilon).without(1e-6),
      dropout("dropout_rate", &M::dropout).without(0.1),
      flag("tie_word_embeddings", "tied_embeddings", &M::tied_embeddings).without(true),
      flag("scale_decoder_outputs", "scaled_logits", &M::scaled_logits).without([](const M& m) {
        return json(m.tied_embeddings);
      }),
      sequence(),
      fixed("is_encoder_decoder", {true}),
      fixed("is_decoder", {false})};
}

class List {
 public:
  explicit List(const M& model) : m_(model) {}

  void add(std::string name, Extents shape, std::string array, Extents place = {}) {
    out_.push_back({std::move(name), std::move(shape), {{std::move(array), std::move(place)}}});
  }
  /// The matrices of an attention, and the norm before it.
  void attention(const std::string& theirs, const char* kind, const std::string& ours,
                 const char* name) {
    const std::int64_t D = m_.hidden, N = m_.heads * m_.head_size();
    const std::string of = theirs + kind + ".";
    add(of + "q.weight", {N, D}, ours + name + ".query");
    add(of + "k.weight", {N, D}, ours + name + ".key_value", {0});
    add(of + "v.weight", {N, D}, ours + name + ".key_value", {1});
    add(of + "o.weight", {D, N}, ours + name + ".output");
    add(theirs + "layer_norm.weight", {D}, ours + name + "_norm.gain");
  }
  void feed_forward(const std::string& theirs, const std::string& ours) {
    const std::int64_t D = m_.hidden, F = m_.feed_forward;
    const std::string of = theirs + "DenseReluDense.";
    if (m_.gated()) {
      add(of + "wi_0.weight", {F, D}, ours + "feed_forward.gate_up", {0});
      add(of + "wi_1.weight", {F, D}, ours + "feed_forward.gate_up", {1});
    } else {
      add(of + "wi.weight", {F, D}, ours + "feed_forward.up");
    }
    add(of + "wo.weight", {D, F}, ours + "feed_forward.down");
    add(theirs + "layer_norm.weight", {D}, ours + "feed_forward_norm.gain");
  }
  void layer(std::int64_t number) {
    const bool encoder = m_.in_encoder(number);
    const std::string theirs = encoder
                                   ? text("encoder.block.", number, ".layer.")
                                   : text("decoder.block.", number - m_.encoder.layers, ".layer.");
    const std::string ours = architecture::prefix_of_layer(m_, number);
    attention(theirs + "0.", "SelfAttention", ours, "attention");
    if (!encoder) attention(theirs + "1.", "EncDecAttention", ours, "cross_attention");
    feed_forward(theirs + (encoder ? "1." : "2."), ours);
  }
  std::vector<Tensor> take() { return std::move(out_); }

 private:
  const M& m_;
  std::vector<Tensor> out_;
};

std::vector<Tensor> tensors(const M& m) {
  const std::int64_t D = m.hidden;
  List list(m);
  list.add(table, {m.vocabulary, D}, "embedding.token");
  for (const char* stack : {"encoder", "decoder"})
    list.add(text(stack, ".block.0.layer.0.SelfAttention.relative_attention_bias.weight"),
             {m.relative_buckets, m.heads},
             text(std::string_view(stack) == "encoder" ? "encoder." : "", "relative_bias"));
  for (std::int64_t layer = 0; layer < m.all_layers(); ++layer) list.layer(layer);
  list.add("encoder.final_layer_norm.weight", {D},
           architecture::prefix_of_layer(m, m.encoder.layers - 1) + "final_norm.gain");
  list.add("decoder.final_layer_norm.weight", {D}, "final_norm.gain");
  if (!m.tied_embeddings) list.add(head, {m.vocabulary, D}, "output.weight");
  return list.take();
}

std::vector<Copy> copies(const M& m) {
  std::vector<Copy> copies{{"encoder.embed_tokens.weight", table},
                           {"decoder.embed_tokens.weight", table}};
  if (m.tied_embeddings) copies.push_back({head, table});
  return copies;
}

/// Old files have a table of biases for cross-attention, which transformers does not use.
std::string today(std::string_view name, const M&) {
  return name.ends_with("EncDecAttention.relative_attention_bias.weight") ? std::string()
                                                                          : std::string(name);
}

void check_model(const json&, const M& m, Complaints& complaints) {
  if (feed_forward_of(m) == nullptr)
    complaints.add("[model] activation = \"", name_of(m.activation),
                   "\", expected \"relu\", \"geglu\", \"swiglu\" or \"gelu\"");
  if (!m.encoder.present()) complaints.add("[encoder] layers = 0, expected at least 1");
}

}  // namespace

const Format& t5_format() {
  static const Format format{
      .family = Family::t5,
      .model_type = "t5",
      .keys = with_general_keys(keys()),
      .model_class = [](const M&) { return std::string("T5ForConditionalGeneration"); },
      .check = check_model,
      .tensors = tensors,
      .copies = copies,
      .today = today,
      // transformers 5 writes "tie_word_embeddings": true for all models.
      .own_output = head};
  return format;
}

}  // namespace trireme::hugging_face
