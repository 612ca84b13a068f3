#include <trireme/architecture/architecture.hpp>
#include <trireme/architecture/bert.hpp>
#include <trireme/architecture/gpt.hpp>
#include <trireme/architecture/llama.hpp>
#include <trireme/base/check.hpp>

namespace trireme::architecture {

std::int64_t ArraySpec::elements() const {
  std::int64_t n = 1;
  for (const std::int64_t extent : shape) n *= extent;
  return n;
}

std::int64_t Architecture::parameters() const {
  std::int64_t n = 0;
  for (const ArraySpec& array : arrays) n += array.elements();
  return n;
}

std::int64_t Architecture::layer_parameters() const {
  std::int64_t n = 0;
  for (const ArraySpec& array : arrays)
    if (array.layer >= 0 && array.layer < model.layers && array.decay) n += array.elements();
  return n;
}

double Architecture::head_products() const {
  const auto V = static_cast<double>(model.vocabulary);
  const auto D = static_cast<double>(model.hidden);
  if (!model.predicts_masked_tokens()) return V * D;                      // logits, tied or not
  const double sentence = model.has_sentence_head() ? D * D + 2 * D : 0;  // pooler and classifier
  return (static_cast<double>(model.targets()) * (V * D + D * D) + sentence) /
         static_cast<double>(model.sequence);
}

double Architecture::attention_products() const {
  const double whole =
      static_cast<double>(model.layers) * static_cast<double>(model.hidden * model.sequence) * 2;
  return model.causal() ? whole / 2 : whole;
}

double Architecture::model_flops_per_token() const {
  return 6 * (static_cast<double>(layer_parameters()) + head_products() + attention_products());
}

Architecture describe(const deck::ModelConfig& model) {
  check(model.vocabulary > 0, "the vocabulary is not resolved");
  if (model.predicts_masked_tokens()) return {model, bert_arrays(model)};
  if (model.norm == NormKind::rms) return {model, llama_arrays(model)};
  return {model, gpt_arrays(model)};
}

}  // namespace trireme::architecture
