// Divides the writing of checkpoints among the ranks that hold equal pieces: groups of holders,
// each with a balanced list of blocks.
#include <trireme/architecture/saved.hpp>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace trireme::architecture {
namespace {

struct RankPiece {
  std::size_t local;
  const Piece* piece;
};

/// Pieces that the same ranks hold.
struct Holders {
  std::vector<RankPiece> pieces;
  std::int64_t size = 1;      ///< number of holders
  std::int64_t stride = 1;    ///< number of holders per replica
  std::int64_t position = 0;  ///< this rank's number among the holders of data rank 0
  std::int64_t apart = 1;     ///< consecutive replicas with different pieces
  bool frozen = false;

  /// Number of this rank on data rank `data_rank` among the holders.
  std::int64_t number(std::int64_t data_rank) const {
    return position + data_rank / apart * stride;
  }

  layout::Sharing sharing() const {
    std::vector<const layout::Extents*> extents;
    extents.reserve(pieces.size());
    for (const RankPiece& p : pieces) extents.push_back(&p.piece->extent);
    return {std::move(extents), size};
  }
};

/// Groups of holders, separately for frozen and trained arrays: one group for replicated arrays,
/// one group for each set of tensor ranks that hold a split part, one group for experts that
/// replicas divide, and one group for the table of tied embeddings.
std::vector<Holders> holders_of(const Architecture& architecture, const Shard& shard,
                                const std::vector<RankArray>& arrays, std::int64_t replicas) {
  const bool two_tables = architecture.model.tied_embeddings && !shard.shares_vocabulary() &&
                          shard.has_embedding() != shard.has_head();
  Holders table{{}, 2 * replicas, 1, shard.has_head() ? replicas : 0};
  std::map<std::tuple<bool, bool, bool, std::int64_t, std::int64_t>, Holders> groups;
  for (std::size_t local = 0; local < arrays.size(); ++local) {
    // The rank of the original writes the array.
    if (arrays[local].shared && arrays[local].copy) continue;
    const bool token_table = arrays[local].number == 0;
    const bool frozen = arrays[local].frozen, of_experts = arrays[local].of_experts;
    const std::int64_t apart = of_experts ? shard.expert_size : 1;
    if (token_table) table.frozen = frozen;
    for (const Piece& piece : arrays[local].pieces) {
      const auto& [first, ranks] = piece.holders;
      Holders& holders =
          two_tables && token_table
              ? table
              : groups
                    .try_emplace({frozen, !arrays[local].split, of_experts, first, ranks},
                                 Holders{{},
                                         std::max<std::int64_t>(1, replicas / apart) * ranks,
                                         ranks,
                                         shard.tensor_rank - first,
                                         apart,
                                         frozen})
                    .first->second;
      holders.pieces.push_back({local, &piece});
    }
  }
  std::vector<Holders> all;
  for (auto& [ranks, holders] : groups) all.push_back(std::move(holders));
  if (!table.pieces.empty()) all.push_back(std::move(table));
  return all;
}

}  // namespace

std::int64_t SavedPart::elements() const {
  std::int64_t n = 1;
  for (const std::int64_t e : extent) n *= e;
  return n;
}

std::vector<SavedPart> saved_parts(const Architecture& architecture, const Shard& shard,
                                   const std::vector<RankArray>& arrays, int data_size,
                                   int data_rank) {
  std::vector<SavedPart> parts;
  for (const Holders& holders : holders_of(architecture, shard, arrays, data_size))
    for (layout::Block& block : holders.sharing().blocks(holders.number(data_rank))) {
      const auto& [local, piece] = holders.pieces[block.array];
      for (std::size_t a = 0; a < block.offset.size(); ++a) block.offset[a] += piece->offset[a];
      parts.push_back(
          {local, std::move(block.offset), std::move(block.extent), piece->first + block.first});
    }
  std::ranges::stable_sort(parts, {}, &SavedPart::local);
  return parts;
}

std::vector<std::int64_t> saved_sums(const Architecture& architecture, const Shard& shard,
                                     const std::vector<RankArray>& arrays, int data_size,
                                     std::int64_t unit_elements, bool frozen) {
  std::vector<std::int64_t> sums(static_cast<std::size_t>(data_size));
  for (const Holders& holders : holders_of(architecture, shard, arrays, data_size)) {
    if (holders.frozen != frozen) continue;
    const layout::Sharing sharing = holders.sharing();
    for (std::size_t r = 0; r < sums.size(); ++r)
      sums[r] += sharing.padded(holders.number(static_cast<std::int64_t>(r)), unit_elements);
  }
  return sums;
}

}  // namespace trireme::architecture
