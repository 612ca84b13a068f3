// Counts of a model, and its list of arrays in registry order: arrays of the embedding, of every
// layer and of the head.
#include <trireme/architecture/architecture.hpp>
#include <trireme/architecture/ends.hpp>
#include <trireme/architecture/frozen.hpp>
#include <trireme/base/check.hpp>
#include <trireme/base/text.hpp>

#include <algorithm>

namespace trireme::architecture {

std::int64_t Architecture::parameters() const {
  std::int64_t n = 0;
  for (const ArraySpec& array : arrays) n += array.elements();
  return n;
}

/// All layers have equal arrays.
std::int64_t Architecture::layer_parameters() const {
  std::int64_t n = 0;
  for (const Operation& op : layer.operations)
    for (const ArraySpec& array : op.arrays)
      if (!array.tied && array.decay) n += array.elements();
  return n * (model.shared_layers > 0 ? model.shared_layers : model.layers);
}

namespace {

/// Multiplications per token of the head's operations that `counts` selects.
template <class Counts>
double products_of(const Architecture& a, Counts&& counts) {
  double products = 0;  // of a sample; a whole number
  for (const Operation& op : a.head.operations)
    if (counts(op))
      products += product_factor(op, Pass::forward) * products_per_token(op, a.model) *
                  static_cast<double>(rows_per_sample(
                      a.head.tensors[static_cast<std::size_t>(op.output)].rows, a.model));
  return products / static_cast<double>(a.model.sequence);
}

}  // namespace

double Architecture::head_products() const {
  return products_of(*this, [](const Operation&) { return true; });
}

double Architecture::logit_products() const {
  return products_of(*this, [](const Operation& op) { return op.kind == OperationKind::logits; });
}

double Architecture::attention_products() const {
  double products = 0;
  for (const Operation& op : layer.operations)
    if (op.kind == OperationKind::attention) products += products_per_token(op, model);
  return static_cast<double>(model.layers) * products;
}

/// Counts frozen matrices of the layers, and of the head's own matrices.
double Architecture::frozen_products() const {
  double products = 0;
  for (const ArraySpec& array : arrays)
    if (array.frozen && array.decay && array.layer >= 0 && array.layer < model.layers)
      products += static_cast<double>(array.elements());
  if (model.shared_layers > 0)
    products *= static_cast<double>(model.layers) / static_cast<double>(model.shared_layers);
  return products + products_of(*this, [](const Operation& op) {
           return !op.arrays.empty() && op.arrays.front().frozen;
         });
}

double Architecture::model_flops_per_token() const {
  return all_flops_per_token() - 2 * frozen_products();
}

double Architecture::all_flops_per_token() const {
  return 6 * (static_cast<double>(layer_parameters()) + head_products() + attention_products());
}

Architecture describe(const deck::ModelConfig& model) {
  check(model.vocabulary > 0, "the vocabulary is not resolved");
  Architecture a{model, {}, describe_embedding(model), describe_layer(model), describe_head(model)};
  const auto add = [&a](const LayerDescription& part, std::int64_t layer, const std::string& prefix,
                        bool shared) {
    for (const Operation& op : part.operations)
      for (const ArraySpec& array : op.arrays) {
        if (array.tied) continue;
        a.arrays.push_back(array);
        a.arrays.back().name = prefix + array.name;
        a.arrays.back().layer = layer;
        a.arrays.back().shared = shared;
        a.arrays.back().frozen = is_frozen(a.model, a.arrays.back().name);
      }
  };
  const std::int64_t groups = model.shared_layers > 0 ? model.shared_layers : model.layers;
  std::size_t of_layer = 0;
  for (const Operation& op : a.layer.operations) of_layer += op.arrays.size();
  a.arrays.reserve((static_cast<std::size_t>(groups) + 1) * of_layer);
  add(a.embedding, -1, "", false);
  for (std::int64_t layer = 0; layer < groups; ++layer)
    add(a.layer, layer, text("layers.", layer, "."), model.shared_layers > 0);
  add(a.head, model.layers, "", false);
  a.has_frozen = std::ranges::any_of(a.arrays, &ArraySpec::frozen);
  return a;
}

std::map<std::string, ArraySpec> arrays_by_name(const deck::ModelConfig& model) {
  std::map<std::string, ArraySpec> arrays;
  for (const ArraySpec& spec : describe(model).arrays) arrays[spec.name] = spec;
  return arrays;
}

}  // namespace trireme::architecture
