// Multiplications of a model, and its list of arrays in registry order.
#include <trireme/architecture/architecture.hpp>
#include <trireme/architecture/ends.hpp>
#include <trireme/architecture/frozen.hpp>
#include <trireme/base/check.hpp>
#include <trireme/base/text.hpp>

#include <algorithm>
#include <cmath>
#include <compare>
#include <utility>

namespace trireme::architecture {

std::int64_t Architecture::parameters() const {
  std::int64_t n = 0;
  for (const ArraySpec& array : arrays) n += array.elements();
  return n;
}

std::int64_t Architecture::active_parameters() const {
  double n = 0;
  const auto add = [&](const BlockDescription& part, std::int64_t times) {
    for (const Operation& op : part.operations)
      for (const ArraySpec& array : op.arrays)
        if (!array.tied)
          n += static_cast<double>(times) * op.share * static_cast<double>(array.elements());
  };
  const std::vector<std::int64_t> counts = count_kinds({0, groups()});
  for (std::size_t k = 0; k < counts.size(); ++k) add(layer_kinds()[k], counts[k]);
  add(embedding(), 1);
  add(head(), 1);
  return std::llround(n);
}

std::vector<std::int64_t> Architecture::count_kinds(const layout::Slice& layers) const {
  std::vector<std::int64_t> counts(layer_kinds().size());
  if (counts.size() == 1) return {layers.extent};
  for (std::int64_t layer = layers.offset; layer < layers.end(); ++layer) ++counts[kind_of(layer)];
  return counts;
}

namespace {

/// Multiplications per token of those operations of the embedding or the head for which `counts` is
/// true.
template <class Counts>
double products_of(const Architecture& a, const BlockDescription& end, Counts&& counts) {
  double products = 0;  // multiplications per sample; a whole number
  for (const Operation& op : end.operations)
    if (counts(op))
      products += product_factor(op, Pass::forward) * products_per_row(op) *
                  static_cast<double>(rows_per_sample(
                      end.tensors[static_cast<std::size_t>(op.output)].rows, a.model));
  return products / static_cast<double>(a.model.sequence);
}

/// Sum of the values of all operations of all layers. `value` returns the value of an operation of
/// a kind of layer.
template <class Value>
double sum_of_layers(const Architecture& a, Value&& value) {
  const std::vector<std::int64_t> counts = a.count_kinds({0, a.model.all_layers()});
  double sum = 0;
  for (std::size_t k = 0; k < counts.size(); ++k) {
    double of_kind = 0;
    for (const Operation& op : a.layer_kinds()[k].operations)
      of_kind += value(a.layer_kinds()[k], op);
    sum += static_cast<double>(counts[k]) * of_kind;
  }
  return sum;
}

/// Multiplications per token with elements of an operation's matrices, or of its frozen matrices if
/// `only_frozen`.
double matrix_products(const BlockDescription& layer, const Operation& op,
                       const deck::ModelConfig& m, bool only_frozen) {
  double elements = 0;
  for (const ArraySpec& array : op.arrays)
    if (array.decay && (array.frozen || !only_frozen))
      elements += static_cast<double>(array.elements());
  return op.share * elements * row_ratio(layer, op, m);
}

}  // namespace

double Architecture::layer_products() const {
  return sum_of_layers(*this, [&](const BlockDescription& layer, const Operation& op) {
    return matrix_products(layer, op, model, false);
  });
}

namespace {

bool counts_all(const Operation&) {
  return true;
}
bool counts_frozen(const Operation& op) {
  return !op.arrays.empty() && op.arrays.front().frozen;
}

}  // namespace

double Architecture::embedding_products() const {
  return products_of(*this, embedding(), counts_all);
}

double Architecture::head_products() const {
  return products_of(*this, head(), counts_all);
}

double Architecture::logit_products() const {
  return products_of(*this, head(),
                     [](const Operation& op) { return op.kind == OperationKind::logits; });
}

double Architecture::attention_products() const {
  return sum_of_layers(*this, [&](const BlockDescription& layer, const Operation& op) {
    return op.kind == OperationKind::attention ? products_per_token(layer, op, model) : 0;
  });
}

double Architecture::frozen_products() const {
  return sum_of_layers(*this,
                       [&](const BlockDescription& layer, const Operation& op) {
                         return matrix_products(layer, op, model, true);
                       }) +
         frozen_embedding_products() + frozen_head_products();
}

double Architecture::frozen_embedding_products() const {
  return products_of(*this, embedding(), counts_frozen);
}

double Architecture::frozen_head_products() const {
  return products_of(*this, head(), counts_frozen);
}

double Architecture::model_flops_per_token() const {
  return all_flops_per_token() - 2 * frozen_products();
}

double Architecture::all_flops_per_token() const {
  return 6 * (layer_products() + head_products() + attention_products()) + 4 * embedding_products();
}

namespace {

/// Adds the layers to the chain. A layer that differs from all previous layers begins a new kind.
void add_layers(Architecture& a) {
  const deck::ModelConfig& m = a.model;
  const bool some_frozen = !m.frozen.empty() || !m.adapter.also_trained.empty();
  const deck::EncoderConfig& of_source = a.source_model.encoder;
  const bool first_differs = m.norm_placement == NormPlacement::post;
  // Properties in which the layers of a model may differ.
  struct Properties {
    bool encoder;
    bool projector;
    std::int64_t module;  ///< number of its module, or −1
    std::int64_t window;
    bool experts;
    bool end;  ///< the first or the last layer, if it differs
    std::vector<bool> frozen;
    auto operator<=>(const Properties&) const = default;
  };
  std::map<Properties, std::size_t> known;
  for (std::int64_t layer = 0; layer < m.all_layers(); ++layer) {
    const std::int64_t group = m.shared_layers > 0 ? layer % m.shared_layers : layer;
    Properties properties{m.in_encoder(layer),
                          m.is_projector(layer),
                          m.in_module(layer) ? layer - m.first_decoder_layer() - m.layers : -1,
                          m.window_of(layer),
                          m.has_experts(layer),
                          (first_differs && layer == 0) || (of_source.first_norm && layer == 0) ||
                              (of_source.final_norm && layer + 1 == of_source.layers),
                          {}};
    if (some_frozen)
      for (const Operation& op : describe_layer(m, layer).operations)
        for (const ArraySpec& array : op.arrays) properties.frozen.push_back(array.frozen);
    const auto [found, is_new] = known.try_emplace(std::move(properties), a.kinds.size());
    if (is_new) a.kinds.push_back(describe_layer(m, layer));
    a.blocks.push_back({found->second, prefix_of_layer(m, group)});
  }
}

}  // namespace

namespace {

/// Whether any array is trained from which the encoder's rows are computed.
bool trains_source(const Architecture& a) {
  const auto trains = [](const Operation& op) { return op.trains(); };
  for (const Operation& op : a.embedding().operations)
    if (a.embedding().tensors[at(op.output)].home == Home::value && trains(op)) return true;
  return std::ranges::any_of(a.layer_kinds(), [&](const BlockDescription& layer) {
    return layer.stream == Stream::source && std::ranges::any_of(layer.operations, trains);
  });
}

}  // namespace

Architecture describe(const deck::ModelConfig& model) {
  check(model.vocabulary > 0, "the vocabulary is not resolved");
  Architecture a;
  a.model = model;
  a.source_model = model.of_source();
  a.kinds.push_back(describe_embedding(model));
  a.blocks.push_back({0, ""});
  add_layers(a);
  a.blocks.push_back({a.kinds.size(), ""});
  a.kinds.push_back(describe_head(model));
  const std::int64_t groups = a.groups();
  const auto visit = [&](const auto& visited) {
    for (std::int64_t number = 0; number <= a.head_block(); ++number) {
      // Later layers share the arrays of their group.
      if (a.is_layer(number) && number >= block_of_layer(groups)) continue;
      const Block& block = a.block(number);
      for (const Operation& op : a.kinds[block.kind].operations)
        for (const ArraySpec& array : op.arrays)
          if (!array.tied) visited(array, block, number);
    }
  };
  std::size_t arrays = 0;
  visit([&](const ArraySpec&, const Block&, std::int64_t) { ++arrays; });
  a.arrays.reserve(arrays);
  visit([&](const ArraySpec& array, const Block& block, std::int64_t number) {
    ArraySpec& added = a.arrays.emplace_back(array);
    added.name = block.prefix + array.name;
    added.block = number;
    added.shared = model.shared_layers > 0 && a.is_layer(number);
  });
  a.has_frozen = std::ranges::any_of(a.arrays, &ArraySpec::frozen);
  const auto trained = std::ranges::find(a.arrays, false, &ArraySpec::frozen);
  if (model.shared_layers == 0)
    a.first_trained = trained == a.arrays.end() ? a.head_block() : trained->block;
  a.first_backward = a.first_trained;
  if (model.has_source() && !trains_source(a))
    a.first_backward = std::max(a.first_backward, block_of_layer(model.encoder_layers()));
  return a;
}

bool Architecture::has_backward(std::size_t kind) const {
  for (std::int64_t number = head_block(); number-- > std::max(first_backward, block_of_layer(0));)
    if (block(number).kind == kind + 1) return true;
  return false;
}

std::map<std::string, ArraySpec> arrays_by_name(const deck::ModelConfig& model) {
  std::map<std::string, ArraySpec> arrays;
  for (const ArraySpec& spec : describe(model).arrays) arrays[spec.name] = spec;
  return arrays;
}

}  // namespace trireme::architecture
