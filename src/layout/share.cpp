// Divides arrays, taken as one sequence of elements, into nearly equal parts.
#include <trireme/layout/share.hpp>

#include <trireme/base/check.hpp>

#include <algorithm>
#include <functional>
#include <numeric>

namespace trireme::layout {
namespace {

std::int64_t product(std::span<const std::int64_t> extents) {
  return std::accumulate(extents.begin(), extents.end(), std::int64_t{1}, std::multiplies<>());
}

/// Cuts the elements [begin, end) of an array into blocks: rows of the inner axes at both ends, and
/// a run along an outer axis between them. Calls `add(axis, first, last, inner)` for each block:
/// indices [first, last) of `axis`, with `inner` elements per index.
template <class Add>
class Cut {
 public:
  Cut(const Extents& extent, Extents& offset, const Add& add)
      : extent_(extent), offset_(offset), add_(add) {}

  void blocks(std::size_t axis, std::int64_t begin, std::int64_t end) {
    if (begin == end) return;
    const std::int64_t inner = product(std::span(extent_).subspan(axis + 1));
    const std::int64_t head = begin / inner;  // index of the first element
    const std::int64_t first = (begin + inner - 1) / inner;
    const std::int64_t last = end / inner;
    if (first > last) {  // all elements have the same index
      descend(axis, head, begin - head * inner, end - head * inner);
      return;
    }
    if (head < first) descend(axis, head, begin - head * inner, inner);
    if (first < last) add_(axis, first, last, inner);
    if (last * inner < end) descend(axis, last, 0, end - last * inner);
  }

 private:
  void descend(std::size_t axis, std::int64_t index, std::int64_t begin, std::int64_t end) {
    offset_[axis] = index;
    blocks(axis + 1, begin, end);
    offset_[axis] = 0;
  }

  const Extents& extent_;
  Extents& offset_;
  const Add& add_;
};

/// Appends the blocks of elements [begin, end). A block is a range of indices of one axis, with one
/// index of each axis before it and all indices of each axis after it.
void add_blocks(std::size_t array, const Extents& extent, std::int64_t begin, std::int64_t end,
                std::vector<Block>& out) {
  if (begin == end) return;
  if (extent.empty()) {
    out.push_back({array, {}, {}, 0});
    return;
  }
  Extents offset(extent.size(), 0);
  const auto add = [&](std::size_t axis, std::int64_t first, std::int64_t last, std::int64_t) {
    Block block{array, offset, extent, 0};
    block.offset[axis] = first;
    for (std::size_t a = 0; a < axis; ++a) block.extent[a] = 1;
    block.extent[axis] = last - first;
    for (std::size_t a = 0; a < extent.size(); ++a)
      block.first = block.first * extent[a] + block.offset[a];
    out.push_back(std::move(block));
  };
  Cut(extent, offset, add).blocks(0, begin, end);
}

}  // namespace

std::int64_t Block::elements() const {
  return product(extent);
}

std::vector<Block> blocks(std::size_t array, const Extents& extent, std::int64_t begin,
                          std::int64_t end) {
  check(0 <= begin && begin <= end && end <= product(extent), "elements [", begin, ", ", end,
        ") are not within an array of ", product(extent), " elements");
  std::vector<Block> out;
  add_blocks(array, extent, begin, end, out);
  return out;
}

std::int64_t padded_elements(const Extents& extent, std::int64_t begin, std::int64_t end,
                             std::int64_t unit) {
  if (extent.empty()) return begin == end ? 0 : unit;
  Extents offset(extent.size(), 0);
  std::int64_t elements = 0;
  const auto add = [&](std::size_t, std::int64_t first, std::int64_t last, std::int64_t inner) {
    elements += ((last - first) * inner + unit - 1) / unit * unit;
  };
  Cut(extent, offset, add).blocks(0, begin, end);
  return elements;
}

Sharing::Sharing(std::vector<const Extents*> arrays, std::int64_t parts)
    : arrays_(std::move(arrays)), parts_(parts) {
  check(parts >= 1, parts, " parts of arrays, expected at least 1");
  begins_.reserve(arrays_.size() + 1);
  begins_.push_back(0);
  for (const Extents* extent : arrays_) begins_.push_back(begins_.back() + product(*extent));
}

template <class Use>
void Sharing::visit(std::int64_t i, const Use& use) const {
  check(i >= 0 && i < parts_, "share ", i, " of ", parts_, " parts is out of range");
  const std::int64_t all = begins_.back();
  // all · k / parts_, without overflow.
  const auto bound = [&](std::int64_t k) { return all / parts_ * k + all % parts_ * k / parts_; };
  const std::int64_t begin = bound(i);
  const std::int64_t end = bound(i + 1);
  const auto after = std::ranges::upper_bound(begins_, begin);
  // Begins with the last array that begins at or before `begin`. Empty arrays give no blocks.
  for (auto a = static_cast<std::size_t>(std::max<std::ptrdiff_t>(1, after - begins_.begin()) - 1);
       a < arrays_.size() && begins_[a] < end; ++a) {
    const Extents& extent = *arrays_[a];
    const std::int64_t elements = begins_[a + 1] - begins_[a];
    const std::int64_t row = extent.size() < 2 ? 1 : std::max<std::int64_t>(1, extent.back());
    const auto cut = [&](std::int64_t where) {  // next beginning of a row
      const std::int64_t within = std::clamp<std::int64_t>(where - begins_[a], 0, elements);
      return std::min(elements, (within + row - 1) / row * row);
    };
    use(a, cut(begin), cut(end));
  }
}

std::vector<Block> Sharing::blocks(std::int64_t i) const {
  std::vector<Block> out;
  visit(i, [&](std::size_t a, std::int64_t begin, std::int64_t end) {
    add_blocks(a, *arrays_[a], begin, end, out);
  });
  return out;
}

std::int64_t Sharing::padded(std::int64_t i, std::int64_t unit) const {
  std::int64_t elements = 0;
  visit(i, [&](std::size_t a, std::int64_t begin, std::int64_t end) {
    elements += padded_elements(*arrays_[a], begin, end, unit);
  });
  return elements;
}

std::vector<Block> share(std::span<const Extents> arrays, std::int64_t parts, std::int64_t i) {
  std::vector<const Extents*> pointers;
  for (const Extents& extent : arrays) pointers.push_back(&extent);
  return Sharing(std::move(pointers), parts).blocks(i);
}

}  // namespace trireme::layout
