#include <trireme/architecture/placement.hpp>

#include <algorithm>

namespace trireme::architecture {
namespace {
constexpr std::int64_t unit = 32;
std::int64_t round_up(std::int64_t n) {
  return (n + unit - 1) / unit * unit;
}
}  // namespace

Placement place(const Architecture& architecture) {
  Placement p;
  std::int64_t end = 0;
  for (const ArraySpec& array : architecture.arrays) {
    const std::int64_t begin = array.follows_previous ? end : round_up(end);
    p.offset.push_back(begin);
    end = begin + array.elements();
  }
  p.elements = round_up(end);
  p.tied_offset = p.elements;
  p.gradient_elements = p.elements;
  if (architecture.model.tied_embeddings)
    p.gradient_elements += round_up(architecture.arrays.front().elements());
  return p;
}

std::int64_t logit_block_rows(std::int64_t tokens, std::int64_t vocabulary) {
  constexpr std::int64_t block_elements = std::int64_t{1} << 24;  // 64 MiB of fp32
  const std::int64_t rows = std::max<std::int64_t>(64, block_elements / vocabulary / 64 * 64);
  return std::min(tokens, rows);
}

}  // namespace trireme::architecture
