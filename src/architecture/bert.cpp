#include <trireme/architecture/bert.hpp>
#include <trireme/architecture/section.hpp>
#include <trireme/base/text.hpp>

namespace trireme::architecture {
namespace {

void add_norm(Section& section, const std::string& name, std::int64_t hidden) {
  section.vector(name + ".gain", {hidden}, -1, Initialisation::ones);
  section.vector(name + ".bias", {hidden}, -1, Initialisation::zeros);
}

void add_layer(std::vector<ArraySpec>& arrays, const deck::ModelConfig& m, std::int64_t layer) {
  const std::int64_t D = m.hidden;
  const std::int64_t H = m.heads;
  const std::int64_t K = m.head_size();
  const std::int64_t F = m.feed_forward;
  const auto zeros = Initialisation::zeros;
  Section s(arrays, text("layers.", layer, "."), layer);
  add_norm(s, "attention_norm", D);
  s.matrix("attention.query", {H, K, D}, 0, weight_deviation);
  s.matrix("attention.key_value", {2, H, K, D}, 1, weight_deviation, true);
  s.vector("attention.query_bias", {H, K}, 0, zeros);
  s.vector("attention.key_value_bias", {2, H, K}, 1, zeros, true);
  s.matrix("attention.output", {D, H, K}, 1, weight_deviation);
  s.vector("attention.output_bias", {D}, -1, zeros);
  add_norm(s, "feed_forward_norm", D);
  s.matrix("feed_forward.up", {F, D}, 0, weight_deviation);
  s.vector("feed_forward.up_bias", {F}, 0, zeros);
  s.matrix("feed_forward.down", {D, F}, 1, weight_deviation);
  s.vector("feed_forward.down_bias", {D}, -1, zeros);
}

}  // namespace

std::vector<ArraySpec> bert_arrays(const deck::ModelConfig& m) {
  const std::int64_t D = m.hidden;
  const auto zeros = Initialisation::zeros;
  std::vector<ArraySpec> arrays;
  Section before(arrays, "embedding.", -1);
  before.matrix("token", {m.vocabulary, D}, 0, weight_deviation);
  before.matrix("position", {m.sequence, D}, -1, weight_deviation);
  before.matrix("segment", {2, D}, -1, weight_deviation);
  for (std::int64_t layer = 0; layer < m.layers; ++layer) add_layer(arrays, m, layer);
  Section after(arrays, "", m.layers);
  add_norm(after, "final_norm", D);
  after.matrix("masked_head.dense", {D, D}, -1, weight_deviation);
  after.vector("masked_head.dense_bias", {D}, -1, zeros);
  add_norm(after, "masked_head.norm", D);
  if (!m.tied_embeddings) after.matrix("output.weight", {m.vocabulary, D}, 0, weight_deviation);
  after.vector("output.bias", {m.vocabulary}, 0, zeros);
  if (!m.has_sentence_head()) return arrays;
  after.matrix("sentence_head.dense", {D, D}, -1, weight_deviation);
  after.vector("sentence_head.dense_bias", {D}, -1, zeros);
  after.matrix("sentence_head.output", {2, D}, -1, weight_deviation);
  after.vector("sentence_head.output_bias", {2}, -1, zeros);
  return arrays;
}

}  // namespace trireme::architecture
