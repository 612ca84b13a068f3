// The arrays of adapters, and the parts of products to which they add.
#include <trireme/architecture/adapter.hpp>

#include <algorithm>
#include <cmath>

namespace trireme::architecture {
namespace {

/// Number of matrices in one array: 2 for keys and values, or gate and up.
std::int64_t blocks_of(const ArraySpec& weight) {
  const std::string_view name = weight.name;
  return name.ends_with("attention.key_value") || name.ends_with("gate_up") ? 2 : 1;
}

/// A [blocks, rank, inputs], uniform in ±1/√inputs as in PEFT (Kaiming uniform with a = √5).
ArraySpec array_a(const std::string& name, std::int64_t blocks, std::int64_t rank,
                  const std::vector<std::int64_t>& inputs, bool split) {
  ArraySpec a{name + std::string(adapter_a), {}};
  if (blocks > 1) a.shape = {blocks};
  a.shape.push_back(rank);
  std::int64_t columns = 1;
  for (const std::int64_t n : inputs) {
    a.shape.push_back(n);
    columns *= n;
  }
  a.cuts = tensor_cuts(split ? 1 : -1);
  a.partial_gradient = !split;
  a.initialisation = Initialisation::uniform;
  a.standard_deviation = 1 / std::sqrt(static_cast<double>(columns));
  return a;
}

/// B has a row for each output of the weight, and `rank` columns. It is split like the weight's
/// outputs, and whole if the weight's inputs are split.
ArraySpec array_b(const ArraySpec& weight, std::int64_t rank, Cut cut) {
  ArraySpec b{weight.name + std::string(adapter_b), {}};
  if (cut == Cut::inputs) {
    b.shape = {weight.shape.front(), rank};
    b.partial_gradient = true;
    return b;
  }
  b.shape = weight.shape;
  b.shape.back() = rank;
  b.cuts = weight.cuts;
  return b;
}

/// Magnitudes: one value for each output of the weight. They are split like the outputs, and whole
/// if the weight's inputs are split.
ArraySpec array_m(const ArraySpec& weight, Cut cut) {
  ArraySpec m{weight.name + std::string(adapter_m), {}};
  m.initialisation = Initialisation::row_norms;
  if (cut == Cut::inputs) {
    m.shape = {weight.shape.front()};
    m.partial_gradient = true;
    return m;
  }
  m.shape.assign(weight.shape.begin(), weight.shape.end() - 1);
  m.cuts = weight.cuts;
  return m;
}

void add_adapters_of(Operation& op, const deck::AdapterConfig& adapter) {
  const std::size_t weights = op.arrays.size();
  const bool fused =
      op.arrays.front().name == "attention.query" && adapter.targets_product(fused_target);
  const auto add = [&op](ArraySpec spec, bool decay = true) {
    spec.adapter = true;
    spec.decay = decay;
    op.arrays.push_back(std::move(spec));
    return op.arrays.size() - 1;
  };
  std::size_t a = 0;
  if (fused)
    a = add(array_a(fused_target, 1, adapter.rank, {op.arrays.front().shape.back()}, false));
  int output = 0;
  for (std::size_t w = 0; w < weights; ++w) {
    const ArraySpec weight = op.arrays[w];
    if (!weight.decay) continue;
    const std::int64_t blocks = blocks_of(weight);
    if (fused || adapter.targets_product(weight.name)) {
      const bool split = op.cut == Cut::inputs;
      std::vector<std::int64_t> inputs{weight.shape.back()};
      if (split) inputs.assign(weight.shape.begin() + 1, weight.shape.end());
      if (!fused) a = add(array_a(weight.name, blocks, adapter.rank, inputs, split));
      const std::size_t b = add(array_b(weight, adapter.rank, op.cut));
      const bool scaled = has_magnitudes(adapter);
      const std::size_t m = scaled ? add(array_m(weight, op.cut), false) : 0;
      for (std::int64_t block = 0; block < blocks; ++block)
        op.adapter.push_back({a, fused ? 0 : block, b, block, output + static_cast<int>(block), m});
    }
    output += static_cast<int>(blocks);
  }
}

std::int64_t blocks_of_a(const Operation& op, std::size_t a) {
  std::int64_t blocks = 0;
  for (const AdapterPart& part : op.adapter)
    if (part.a == a) blocks = std::max(blocks, part.a_block + 1);
  return blocks;
}

}  // namespace

std::string_view part_of_layer(const deck::ModelConfig& m, std::int64_t number) {
  if (!m.in_encoder(number)) return "layers";
  return m.vision.present() ? "vision" : "encoder";
}

void add_adapters(BlockDescription& layer, const deck::AdapterConfig& adapter,
                  std::string_view part) {
  if (!adapter.adapts(part)) return;
  for (Operation& op : layer.operations)
    if (op.kind == OperationKind::linear) add_adapters_of(op, adapter);
}

layout::Slice adapter_columns(const BlockDescription& layer, const Operation& op,
                              const AdapterPart& part, const RankSizes& n) {
  const Columns& columns = layer.tensors[at(op.output)].columns;
  std::int64_t first = 0;
  for (std::size_t before = 0; before < at(part.output); ++before)
    first += columns_of(columns.parts[before], n);
  return {first, columns_of(columns.parts[at(part.output)], n)};
}

std::int64_t first_adapter_row(const Operation& op, std::size_t a, std::int64_t rank) {
  std::int64_t rows = 0;
  for (std::size_t before = 0; before < a; ++before) rows += blocks_of_a(op, before) * rank;
  return rows;
}

std::int64_t adapter_rows(const Operation& op, std::int64_t rank) {
  return first_adapter_row(op, op.arrays.size(), rank);
}

double adapter_products(const BlockDescription& layer, const Operation& op, const RankSizes& n,
                        std::int64_t rank) {
  const std::int64_t in = columns_of(layer.tensors[at(op.input())].columns, n);
  std::int64_t products = adapter_rows(op, rank) * in;
  for (const AdapterPart& part : op.adapter)
    products += rank * adapter_columns(layer, op, part, n).extent;
  return static_cast<double>(products);
}

void AdapterScratch::include(const AdapterScratch& other) {
  rows = std::max(rows, other.rows);
  columns = std::max(columns, other.columns);
  scaled = std::max(scaled, other.scaled);
}

AdapterScratch adapter_scratch(const BlockDescription& layer, const RankSizes& n,
                               const deck::AdapterConfig& adapter) {
  AdapterScratch scratch;
  for (const Operation& op : layer.operations) {
    if (op.adapter.empty()) continue;
    const std::int64_t in = columns_of(layer.tensors[at(op.input())].columns, n);
    scratch.rows = std::max(scratch.rows, adapter_rows(op, adapter.rank));
    if (adapter.dropout > 0) scratch.columns = std::max(scratch.columns, in);
    if (!has_magnitudes(adapter)) continue;
    const std::int64_t out = columns_of(layer.tensors[at(op.output)].columns, n);
    constexpr std::int64_t rows = 64;  // minimum number of rows of W + factor · B A at a time
    scratch.scaled =
        std::max({scratch.scaled, product_rows(layer, op, n) * out, std::min(rows, out) * in});
  }
  return scratch;
}

std::vector<ScaledProduct> scaled_products(const BlockDescription& layer, const RankSizes& n) {
  std::vector<ScaledProduct> products;
  for (const Operation& op : layer.operations)
    if (!op.adapter.empty() && op.adapter.front().m > 0)
      products.push_back(
          {columns_of(layer.tensors[at(op.output)].columns, n), op.cut == Cut::inputs});
  return products;
}

}  // namespace trireme::architecture
