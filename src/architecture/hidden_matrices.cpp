// Finds the matrices in a rank's arrays by the products that use them, and divides them among ranks
// and rounds.
#include <trireme/architecture/hidden_matrices.hpp>

#include <trireme/base/check.hpp>

#include <algorithm>
#include <map>
#include <string>

namespace trireme::architecture {
namespace {

/// Intended elements of a message that collects parts of a round's matrices, the parts of all
/// replicas together.
constexpr std::int64_t message_elements = std::int64_t{1} << 22;

/// For the name of each array of a layer's products, the side that the tensor axis splits.
std::map<std::string, Cut> cuts_of(const Architecture& architecture) {
  std::map<std::string, Cut> cuts;
  for (const BlockDescription& layer : architecture.layer_kinds())
    for (const Operation& op : layer.operations)
      if (op.kind == OperationKind::linear)
        for (const ArraySpec& array : op.arrays) cuts[array.name] = op.cut;
  return cuts;
}

}  // namespace

MatrixRounds::MatrixRounds(const Architecture& architecture, const Shard& shard,
                           const std::vector<RankArray>& arrays, int replicas)
    : tensor_(shard.tensor_size), replicas_(replicas) {
  const auto cuts = cuts_of(architecture);
  for (std::size_t local = 0; local < arrays.size(); ++local) {
    const ArraySpec& spec = architecture.arrays[arrays[local].number];
    if (!is_hidden_matrix(spec, architecture.model.layers)) continue;
    const auto cut = cuts.find(spec.name.substr(architecture.block(spec.block).prefix.size()));
    check(cut != cuts.end() && cut->second != Cut::none && spec.split_axis >= 0,
          "no product of the layers has the matrix ", spec.name);
    const auto axis = static_cast<std::size_t>(spec.split_axis);
    const std::size_t dimensions = spec.shape.size();
    HiddenMatrix m;
    m.local = local;
    m.split_rows = cut->second == Cut::outputs;
    // Shape of the array: [blocks, split, inner, inputs] if rows are split, [outputs, split, inner]
    // if columns are split.
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
  chunk_ = std::min(longest, std::max(norm_block, message_elements / replicas_));
}

int MatrixRounds::rounds() const {
  const int each = tensor_ * replicas_;
  return (static_cast<int>(std::ssize(matrices_)) + each - 1) / each;
}

const HiddenMatrix* MatrixRounds::matrix(int round, int replica, int tensor_rank) const {
  const auto number =
      static_cast<std::size_t>((round * replicas_ + replica) * tensor_ + tensor_rank);
  return number < matrices_.size() ? &matrices_[number] : nullptr;
}

std::int64_t MatrixRounds::most_elements(int round, int tensor_rank, int part) const {
  std::int64_t most = 0;
  for (int replica = 0; replica < replicas_; ++replica)
    if (const HiddenMatrix* m = matrix(round, replica, tensor_rank))
      most = std::max(most, m->elements_on(part));
  return most;
}

}  // namespace trireme::architecture
