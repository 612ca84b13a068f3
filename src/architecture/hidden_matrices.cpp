// Finds the matrices in a rank's arrays by the products that use them, and divides the work on
// them.
#include <trireme/architecture/hidden_matrices.hpp>

#include <trireme/base/check.hpp>

#include <algorithm>
#include <map>
#include <string>

namespace trireme::architecture {
namespace {

/// Elements, over all workers, of the messages that collect a round's parts.
constexpr std::int64_t message_elements = std::int64_t{1} << 22;

/// The sides that the tensor axis splits, by the names of the layers' arrays.
std::map<std::string, Cut> cuts_of(const Architecture& architecture) {
  std::map<std::string, Cut> cuts;
  for (const LayerDescription& layer : architecture.layer_kinds())
    for (const Operation& op : layer.operations)
      if (op.kind == OperationKind::linear)
        for (const ArraySpec& array : op.arrays) cuts[array.name] = op.cut;
  return cuts;
}

}  // namespace

MatrixRounds::MatrixRounds(const Architecture& architecture, const Shard& shard,
                           const std::vector<LocalArray>& arrays, int workers)
    : tensor_(shard.tensor_size), workers_(workers) {
  const auto cuts = cuts_of(architecture);
  for (std::size_t local = 0; local < arrays.size(); ++local) {
    const ArraySpec& spec = architecture.arrays[arrays[local].number];
    if (!is_hidden_matrix(spec, architecture.model.layers)) continue;
    const auto cut = cuts.find(spec.name.substr(architecture.block_of(spec.layer).prefix.size()));
    check(cut != cuts.end() && cut->second != Cut::none && spec.split_axis >= 0,
          "no product of the layers has the matrix ", spec.name);
    const auto axis = static_cast<std::size_t>(spec.split_axis);
    const std::size_t dimensions = spec.shape.size();
    HiddenMatrix m;
    m.local = local;
    m.split_rows = cut->second == Cut::outputs;
    // [blocks, split, inner, inputs] or [outputs, split, inner]
    const std::int64_t blocks = m.split_rows ? product(spec.shape, 0, axis) : 1;
    const std::int64_t unit = m.split_rows ? product(spec.shape, axis + 1, dimensions - 1)
                                           : product(spec.shape, axis + 1, dimensions);
    const std::int64_t split = spec.shape[axis] * unit;
    m.rows = m.split_rows ? split : spec.shape.front();
    m.columns = m.split_rows ? spec.shape.back() : split;
    for (Shard other = shard; std::ssize(m.parts) < tensor_;) {
      other.tensor_rank = static_cast<int>(std::ssize(m.parts));
      const layout::Slice part = other.groups(spec.shape[axis], spec.group);
      m.parts.push_back({part.offset * unit, part.extent * unit});
    }
    for (std::int64_t block = 0; block < blocks; ++block) {
      m.first = block * m.elements_on(shard.tensor_rank);
      matrices_.push_back(m);
    }
  }
  std::ranges::stable_sort(matrices_, std::greater<>(), &HiddenMatrix::elements);
  std::int64_t longest = 0;
  for (const HiddenMatrix& m : matrices_) {
    whole_elements_ = std::max(whole_elements_, m.elements());
    gram_elements_ = std::max(gram_elements_, m.side() * m.side());
    std::int64_t joined = 0;
    for (int rank = 0; rank < tensor_; ++rank) {
      longest = std::max(longest, m.elements_on(rank));
      joined += m.elements_on(rank);
    }
    joined_elements_ = std::max({joined_elements_, joined, m.elements()});
  }
  part_elements_ = tensor_ * longest;
  chunk_ = std::min(longest, std::max(norm_block, message_elements / workers_));
}

int MatrixRounds::rounds() const {
  const int each = tensor_ * workers_;
  return (static_cast<int>(std::ssize(matrices_)) + each - 1) / each;
}

const HiddenMatrix* MatrixRounds::matrix(int round, int worker, int tensor_rank) const {
  const auto number = static_cast<std::size_t>((round * workers_ + worker) * tensor_ + tensor_rank);
  return number < matrices_.size() ? &matrices_[number] : nullptr;
}

std::int64_t MatrixRounds::most_elements(int round, int tensor_rank, int part) const {
  std::int64_t most = 0;
  for (int worker = 0; worker < workers_; ++worker)
    if (const HiddenMatrix* m = matrix(round, worker, tensor_rank))
      most = std::max(most, m->elements_on(part));
  return most;
}

}  // namespace trireme::architecture
