#include <trireme/architecture/placement.hpp>

#include <trireme/base/alignment.hpp>

#include <algorithm>
#include <utility>

namespace trireme::architecture {
namespace {
/// Split arrays, then arrays that all tensor ranks hold whole; in each group, shared layers last.
constexpr int first_replicated = 2;
constexpr int sections = 6;
int section_of(const RankArray& a) {
  if (a.frozen) return sections;
  if (a.split) return a.shared ? 1 : 0;
  return first_replicated + (a.shared ? 2 : 0) + (a.partial_gradient ? 1 : 0);
}

/// Range from the first to the last wanted array.
template <class Wanted>
layout::Slice run_of(const std::vector<RankArray>& arrays, const Placement& placement,
                     const Wanted& wanted) {
  std::int64_t begin = placement.elements;
  std::int64_t end = 0;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    if (!wanted(arrays[i])) continue;
    begin = std::min(begin, placement.offset[i]);
    end = std::max(end, placement.offset[i] + arrays[i].elements());
  }
  return end > begin ? layout::Slice{begin, end - begin} : layout::Slice{};
}
}  // namespace

Placement place(const Architecture& architecture, const Shard& shard,
                const std::vector<RankArray>& arrays) {
  Placement p;
  p.offset.resize(arrays.size());
  std::int64_t end = 0;
  for (int section = 0; section <= sections; ++section) {
    if (section == first_replicated) p.replicated = end = aligned_elements(end);
    if (section == sections) p.trained = end = aligned_elements(end);
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      if (section_of(arrays[i]) != section) continue;
      const bool follows = architecture.arrays[arrays[i].number].follows_previous;
      p.offset[i] = follows ? end : aligned_elements(end);
      end = p.offset[i] + arrays[i].elements();
    }
  }
  p.elements = aligned_elements(end);
  p.tied_offset = p.trained;
  const bool both = shard.shares_vocabulary() || (shard.has_embedding() && shard.has_head());
  if (architecture.model.tied_embeddings && both && !arrays.front().frozen)
    p.tied_elements = arrays.front().elements();
  p.gradient_elements = p.trained + aligned_elements(p.tied_elements);
  return p;
}

layout::Slice replicated_part(const std::vector<RankArray>& arrays, const Placement& placement,
                              Stage stage, bool partial_gradient) {
  return run_of(arrays, placement, [&](const RankArray& a) {
    return !a.frozen && !a.split && !a.shared && a.stage == stage &&
           a.partial_gradient == partial_gradient;
  });
}

std::vector<SharedPart> shared_parts(const std::vector<RankArray>& arrays,
                                     const Placement& placement) {
  std::vector<SharedPart> parts;
  for (SharedPart part : {SharedPart{{}, true, false}, {{}, false, false}, {{}, false, true}}) {
    part.run = run_of(arrays, placement, [&](const RankArray& a) {
      return !a.frozen && a.shared && a.split == part.split &&
             a.partial_gradient == part.partial_gradient;
    });
    if (part.run.extent > 0) parts.push_back(part);
  }
  return parts;
}

std::int64_t logit_block_rows(std::int64_t tokens, std::int64_t vocabulary,
                              std::int64_t block_elements) {
  const std::int64_t rows = std::max<std::int64_t>(64, block_elements / vocabulary / 64 * 64);
  return std::min(tokens, rows);
}

}  // namespace trireme::architecture
