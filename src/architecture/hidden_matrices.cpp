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

/// The part of tensor rank `rank`.
Shard of_tensor_rank(Shard shard, int rank) {
  shard.tensor_rank = rank;
  return shard;
}

/// The matrices of an array [blocks, split, inner, inputs], if rows are split, or [outputs, split,
/// inner], if columns are split.
void add_split(std::vector<HiddenMatrix>& matrices, const ArraySpec& spec, Cut cut,
               std::size_t local, const Shard& shard) {
  const ArrayCut& divided = *spec.tensor_cut();
  const auto axis = static_cast<std::size_t>(divided.dimension);
  const std::size_t dimensions = spec.shape.size();
  HiddenMatrix m;
  m.local = local;
  m.split_rows = cut == Cut::outputs;
  const std::int64_t blocks = m.split_rows ? product(spec.shape, 0, axis) : 1;
  const std::int64_t unit = product(spec.shape, axis + 1, dimensions - (m.split_rows ? 1 : 0));
  const std::int64_t split = spec.shape[axis] * unit;
  m.rows = m.split_rows ? split : spec.shape.front();
  m.columns = m.split_rows ? spec.shape.back() : split;
  for (int rank = 0; rank < shard.tensor_size; ++rank) {
    const layout::Slice part = of_tensor_rank(shard, rank).part_of(divided, spec.shape[axis]);
    m.parts.push_back({part.offset * unit, part.extent * unit});
  }
  for (std::int64_t block = 0; block < blocks; ++block) {
    m.first = block * m.elements_on(shard.tensor_rank);
    matrices.push_back(m);
  }
}

/// The matrices of an array [experts, blocks, outputs, inputs] or [experts, outputs, inputs], each
/// of them on one tensor rank.
void add_experts(std::vector<HiddenMatrix>& matrices, const ArraySpec& spec, std::size_t local,
                 const Shard& shard) {
  const std::size_t dimensions = spec.shape.size();
  HiddenMatrix m;
  m.local = local;
  m.rows = spec.shape[dimensions - 2];
  m.columns = spec.shape[dimensions - 1];
  const std::int64_t blocks = product(spec.shape, 1, dimensions - 2);
  for (int rank = 0; rank < shard.tensor_size; ++rank) {
    const std::int64_t here =
        of_tensor_rank(shard, rank).part_of(spec.cuts.front(), spec.shape.front()).extent * blocks;
    m.parts.assign(static_cast<std::size_t>(shard.tensor_size), {});
    m.parts[static_cast<std::size_t>(rank)] = {0, m.rows};
    for (std::int64_t i = 0; i < here; ++i) {
      m.first = rank == shard.tensor_rank ? i * m.elements() : 0;
      matrices.push_back(m);
    }
  }
}

/// The matrix of an array [outputs, inputs] that each tensor rank has.
void add_whole(std::vector<HiddenMatrix>& matrices, const ArraySpec& spec, std::size_t local,
               const Shard& shard) {
  HiddenMatrix m;
  m.local = local;
  m.rows = spec.shape.front();
  m.columns = product(spec.shape, 1, spec.shape.size());
  m.parts.assign(static_cast<std::size_t>(shard.tensor_size), {0, m.rows});
  matrices.push_back(m);
}

}  // namespace

MatrixRounds::MatrixRounds(const Architecture& architecture, const Shard& shard,
                           const std::vector<RankArray>& arrays, int replicas, bool of_experts)
    : tensor_(shard.tensor_size), replicas_(replicas) {
  const auto cuts = cuts_of(architecture);
  for (std::size_t local = 0; local < arrays.size(); ++local) {
    const ArraySpec& spec = architecture.arrays[arrays[local].number];
    if (arrays[local].of_experts != of_experts ||
        !is_hidden_matrix(spec, architecture.model.all_layers()))
      continue;
    if (spec.of_experts()) {
      add_experts(matrices_, spec, local, shard);
    } else if (spec.tensor_cut() == nullptr) {
      add_whole(matrices_, spec, local, shard);
    } else {
      const auto cut = cuts.find(spec.name.substr(architecture.block(spec.block).prefix.size()));
      check(cut != cuts.end() && cut->second != Cut::none,
            "no product of the layers has the matrix ", spec.name);
      add_split(matrices_, spec, cut->second, local, shard);
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

std::vector<MatrixRounds> matrix_rounds(const Architecture& architecture, const Shard& shard,
                                        const std::vector<RankArray>& arrays, int replicas) {
  std::vector<MatrixRounds> all{{architecture, shard, arrays, replicas}};
  if (shard.expert_size > 1)
    all.emplace_back(architecture, shard, arrays, replicas / shard.expert_size, true);
  return all;
}

}  // namespace trireme::architecture
