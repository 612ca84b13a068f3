#include <trireme/architecture/llama.hpp>
#include <trireme/architecture/section.hpp>
#include <trireme/base/check.hpp>
#include <trireme/base/text.hpp>

#include <cmath>

namespace trireme::architecture {
namespace {

void add_layer(std::vector<ArraySpec>& arrays, const deck::ModelConfig& m, std::int64_t layer) {
  const std::int64_t D = m.hidden;
  const std::int64_t H = m.heads;
  const std::int64_t Hkv = m.key_value_heads;
  const std::int64_t K = m.head_size();
  const std::int64_t F = m.feed_forward;
  const double output_deviation = weight_deviation / std::sqrt(2.0 * static_cast<double>(m.layers));
  const auto ones = Initialisation::ones;
  Section s(arrays, text("layers.", layer, "."), layer);
  s.vector("attention_norm.gain", {D}, -1, ones);
  s.matrix("attention.query", {H, K, D}, 0, weight_deviation);
  s.matrix("attention.key_value", {2, Hkv, K, D}, 1, weight_deviation, true).group = H / Hkv;
  s.matrix("attention.output", {D, H, K}, 1, output_deviation);
  s.vector("feed_forward_norm.gain", {D}, -1, ones);
  s.matrix("feed_forward.gate_up", {2, F, D}, 1, weight_deviation);
  s.matrix("feed_forward.down", {D, F}, 1, output_deviation);
}

}  // namespace

std::vector<ArraySpec> llama_arrays(const deck::ModelConfig& m) {
  check(m.key_value_heads > 0 && m.heads % m.key_value_heads == 0, m.heads, " heads over ",
        m.key_value_heads, " key and value heads, expected a divisor");
  std::vector<ArraySpec> arrays;
  Section(arrays, "embedding.", -1).matrix("token", {m.vocabulary, m.hidden}, 0, weight_deviation);
  for (std::int64_t layer = 0; layer < m.layers; ++layer) add_layer(arrays, m, layer);
  Section after(arrays, "", m.layers);
  after.vector("final_norm.gain", {m.hidden}, -1, Initialisation::ones);
  if (!m.tied_embeddings)
    after.matrix("output.weight", {m.vocabulary, m.hidden}, 0, weight_deviation);
  return arrays;
}

}  // namespace trireme::architecture
