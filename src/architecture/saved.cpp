#include <trireme/architecture/saved.hpp>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace trireme::architecture {
namespace {

struct LocalPiece {
  std::size_t local;
  const Piece* piece;
};

/// Pieces that the same ranks hold, and this rank's place among them.
struct Holders {
  std::vector<LocalPiece> pieces;
  std::int64_t size = 1;
  std::int64_t rank = 0;
};

void add_parts(const Holders& holders, std::vector<SavedPart>& out) {
  std::vector<layout::Extents> extents;
  for (const LocalPiece& p : holders.pieces) extents.push_back(p.piece->extent);
  for (layout::Block& block : layout::share(extents, holders.size, holders.rank)) {
    const auto& [local, piece] = holders.pieces[block.array];
    for (std::size_t a = 0; a < block.offset.size(); ++a) block.offset[a] += piece->offset[a];
    out.push_back(
        {local, std::move(block.offset), std::move(block.extent), piece->first + block.first});
  }
}

}  // namespace

std::int64_t SavedPart::elements() const {
  std::int64_t n = 1;
  for (const std::int64_t e : extent) n *= e;
  return n;
}

std::vector<SavedPart> saved_parts(const Architecture& architecture, const Shard& shard,
                                   const std::vector<LocalArray>& arrays, int data_size,
                                   int data_rank) {
  const bool two_tables =
      architecture.model.tied_embeddings && shard.has_embedding() != shard.has_head();
  const std::int64_t replicas = data_size;
  Holders table{{}, 2 * replicas, data_rank + (shard.has_head() ? replicas : 0)};
  // One group for replicated arrays, and one for each set of tensor ranks that hold a split part.
  std::map<std::tuple<bool, std::int64_t, std::int64_t>, Holders> groups;
  for (std::size_t local = 0; local < arrays.size(); ++local) {
    if (arrays[local].shared && arrays[local].copy) continue;  // the original's rank writes it
    const bool token_table = arrays[local].number == 0;
    for (const Piece& piece : arrays[local].pieces) {
      const auto& [first, ranks] = piece.holders;
      const std::int64_t rank = data_rank * ranks + shard.tensor_rank - first;
      Holders& holders = two_tables && token_table
                             ? table
                             : groups
                                   .try_emplace({!arrays[local].split, first, ranks},
                                                Holders{{}, replicas * ranks, rank})
                                   .first->second;
      holders.pieces.push_back({local, &piece});
    }
  }
  std::vector<SavedPart> parts;
  for (const auto& [ranks, holders] : groups) add_parts(holders, parts);
  add_parts(table, parts);
  std::ranges::stable_sort(parts, {}, &SavedPart::local);
  return parts;
}

}  // namespace trireme::architecture
