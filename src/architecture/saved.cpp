#include <trireme/architecture/saved.hpp>

#include <algorithm>
#include <array>

namespace trireme::architecture {
namespace {

/// Arrays that the same ranks hold, and this rank's place among them.
struct Holders {
  std::vector<std::size_t> locals;
  std::int64_t size = 1;
  std::int64_t rank = 0;
};

void add_parts(const Holders& holders, const std::vector<LocalArray>& arrays,
               std::vector<SavedPart>& out) {
  std::vector<layout::Extents> extents;
  for (const std::size_t local : holders.locals) extents.push_back(arrays[local].extent);
  for (layout::Block& block : layout::share(extents, holders.size, holders.rank)) {
    const std::size_t local = holders.locals[block.array];
    for (std::size_t a = 0; a < block.offset.size(); ++a)
      block.offset[a] += arrays[local].offset[a];
    out.push_back({local, std::move(block.offset), std::move(block.extent), block.first});
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
  Holders cut{{}, data_size, data_rank};
  Holders replicated{{},
                     std::int64_t{data_size} * shard.tensor_size,
                     std::int64_t{data_rank} * shard.tensor_size + shard.tensor_rank};
  Holders table{{}, 2 * std::int64_t{data_size}, data_rank + (shard.has_head() ? data_size : 0)};
  for (std::size_t local = 0; local < arrays.size(); ++local) {
    const bool token_table = arrays[local].copy || arrays[local].number == 0;
    Holders& holders = two_tables && token_table ? table : arrays[local].split ? cut : replicated;
    holders.locals.push_back(local);
  }
  std::vector<SavedPart> parts;
  for (const Holders* holders : std::array<const Holders*, 3>{&cut, &replicated, &table})
    add_parts(*holders, arrays, parts);
  std::ranges::stable_sort(parts, {}, &SavedPart::local);
  return parts;
}

}  // namespace trireme::architecture
