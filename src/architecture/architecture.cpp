#include <trireme/architecture/architecture.hpp>
#include <trireme/architecture/ends.hpp>
#include <trireme/base/check.hpp>
#include <trireme/base/text.hpp>

namespace trireme::architecture {

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
  double products = 0;
  for (const Operation& op : layer.operations)
    if (op.kind == OperationKind::attention) products += products_per_token(op, model);
  return static_cast<double>(model.layers) * products;
}

double Architecture::model_flops_per_token() const {
  return 6 * (static_cast<double>(layer_parameters()) + head_products() + attention_products());
}

Architecture describe(const deck::ModelConfig& model) {
  check(model.vocabulary > 0, "the vocabulary is not resolved");
  Architecture a{model, embedding_arrays(model), describe_layer(model)};
  for (ArraySpec& array : a.arrays) array.layer = -1;
  const std::int64_t groups = model.shared_layers > 0 ? model.shared_layers : model.layers;
  for (std::int64_t layer = 0; layer < groups; ++layer)
    for (const Operation& op : a.layer.operations)
      for (const ArraySpec& array : op.arrays) {
        a.arrays.push_back(array);
        a.arrays.back().name = text("layers.", layer, ".", array.name);
        a.arrays.back().layer = layer;
      }
  for (ArraySpec& array : head_arrays(model)) {
    array.layer = model.layers;
    a.arrays.push_back(std::move(array));
  }
  return a;
}

}  // namespace trireme::architecture
