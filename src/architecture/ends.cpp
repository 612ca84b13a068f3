// The arrays before and after the layers.
#include <trireme/architecture/ends.hpp>

namespace trireme::architecture {
namespace {

void add_norm(std::vector<ArraySpec>& out, const std::string& name, std::int64_t hidden,
              NormKind kind) {
  out.push_back(vector(name + ".gain", {hidden}, -1, Initialisation::ones));
  if (kind == NormKind::layer) out.push_back(vector(name + ".bias", {hidden}, -1));
}

void add_dense(std::vector<ArraySpec>& out, const std::string& name, std::int64_t outputs,
               std::int64_t inputs) {
  out.push_back(matrix(name, {outputs, inputs}, -1));
  out.push_back(vector(name + "_bias", {outputs}, -1));
}

}  // namespace

std::vector<ArraySpec> embedding_arrays(const deck::ModelConfig& m) {
  std::vector<ArraySpec> out{matrix("embedding.token", {m.vocabulary, m.hidden}, 0)};
  if (m.positions == Positions::learned)
    out.push_back(matrix("embedding.position", {m.sequence, m.hidden}, -1));
  if (m.predicts_masked_tokens()) out.push_back(matrix("embedding.segment", {2, m.hidden}, -1));
  return out;
}

std::vector<ArraySpec> head_arrays(const deck::ModelConfig& m) {
  std::vector<ArraySpec> out;
  add_norm(out, "final_norm", m.hidden, m.norm);
  if (m.predicts_masked_tokens()) {
    add_dense(out, "masked_head.dense", m.hidden, m.hidden);
    add_norm(out, "masked_head.norm", m.hidden, NormKind::layer);
  }
  if (!m.tied_embeddings) out.push_back(matrix("output.weight", {m.vocabulary, m.hidden}, 0));
  if (m.predicts_masked_tokens()) out.push_back(vector("output.bias", {m.vocabulary}, 0));
  if (m.has_sentence_head()) {
    add_dense(out, "sentence_head.dense", m.hidden, m.hidden);
    add_dense(out, "sentence_head.output", 2, m.hidden);
  }
  return out;
}

}  // namespace trireme::architecture
