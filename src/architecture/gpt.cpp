#include <trireme/architecture/gpt.hpp>
#include <trireme/architecture/section.hpp>
#include <trireme/base/text.hpp>

#include <cmath>

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
  const double output_deviation = weight_deviation / std::sqrt(2.0 * static_cast<double>(m.layers));
  const auto zeros = Initialisation::zeros;
  Section s(arrays, text("layers.", layer, "."), layer);
  add_norm(s, "attention_norm", D);
  s.matrix("attention.query", {H, K, D}, 0, weight_deviation);
  s.matrix("attention.key_value", {2, H, K, D}, 1, weight_deviation, true);
  s.vector("attention.query_bias", {H, K}, 0, zeros);
  s.vector("attention.key_value_bias", {2, H, K}, 1, zeros, true);
  s.matrix("attention.output", {D, H, K}, 1, output_deviation);
  s.vector("attention.output_bias", {D}, -1, zeros);
  add_norm(s, "feed_forward_norm", D);
  s.matrix("feed_forward.up", {F, D}, 0, weight_deviation);
  s.vector("feed_forward.up_bias", {F}, 0, zeros);
  s.matrix("feed_forward.down", {D, F}, 1, output_deviation);
  s.vector("feed_forward.down_bias", {D}, -1, zeros);
}

}  // namespace

std::vector<ArraySpec> gpt_arrays(const deck::ModelConfig& m) {
  std::vector<ArraySpec> arrays;
  Section before(arrays, "embedding.", -1);
  before.matrix("token", {m.vocabulary, m.hidden}, 0, weight_deviation);
  before.matrix("position", {m.sequence, m.hidden}, -1, weight_deviation);
  for (std::int64_t layer = 0; layer < m.layers; ++layer) add_layer(arrays, m, layer);
  Section after(arrays, "", m.layers);
  add_norm(after, "final_norm", m.hidden);
  if (!m.tied_embeddings)
    after.matrix("output.weight", {m.vocabulary, m.hidden}, 0, weight_deviation);
  return arrays;
}

}  // namespace trireme::architecture
