#include <trireme/architecture/placement.hpp>

#include <algorithm>

namespace trireme::architecture {
namespace {
constexpr std::int64_t unit = 32;
std::int64_t round_up(std::int64_t n) {
  return (n + unit - 1) / unit * unit;
}
enum class Section : std::uint8_t { split, replicated, partial_gradient };
}  // namespace

Placement place(const Architecture& architecture, const Shard& shard,
                const std::vector<LocalArray>& arrays) {
  Placement p;
  p.offset.resize(arrays.size());
  std::int64_t end = 0;
  const auto section_of = [](const LocalArray& a) {
    return a.split              ? Section::split
           : a.partial_gradient ? Section::partial_gradient
                                : Section::replicated;
  };
  for (const Section section : {Section::split, Section::replicated, Section::partial_gradient}) {
    if (section == Section::replicated) p.replicated = end = round_up(end);
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      if (section_of(arrays[i]) != section) continue;
      const bool follows = architecture.arrays[arrays[i].number].follows_previous;
      p.offset[i] = follows ? end : round_up(end);
      end = p.offset[i] + arrays[i].elements();
    }
  }
  p.elements = round_up(end);
  p.tied_offset = p.elements;
  if (architecture.model.tied_embeddings && shard.has_embedding() && shard.has_head())
    p.tied_elements = arrays.front().elements();
  p.gradient_elements = p.elements + round_up(p.tied_elements);
  return p;
}

layout::Slice replicated_part(const std::vector<LocalArray>& arrays, const Placement& placement,
                              Stage stage, bool partial_gradient) {
  std::int64_t begin = placement.elements;
  std::int64_t end = placement.replicated;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    if (arrays[i].split || arrays[i].stage != stage) continue;
    if (arrays[i].partial_gradient != partial_gradient) continue;
    begin = std::min(begin, placement.offset[i]);
    end = std::max(end, placement.offset[i] + arrays[i].elements());
  }
  return end > begin ? layout::Slice{begin, end - begin} : layout::Slice{};
}

std::int64_t logit_block_rows(std::int64_t tokens, std::int64_t vocabulary,
                              std::int64_t block_elements) {
  const std::int64_t rows = std::max<std::int64_t>(64, block_elements / vocabulary / 64 * 64);
  return std::min(tokens, rows);
}

}  // namespace trireme::architecture
