// Copies blocks of arrays between two orders of their axes. A copy visits tiles of the two axes
// that are contiguous on one of its sides, so that both sides use whole cache lines.
#include <trireme/hugging_face/axis_order.hpp>

#include <trireme/base/check.hpp>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>

namespace trireme::hugging_face {
namespace {

/// An axis of a copy, with strides in elements.
struct Axis {
  std::int64_t extent;
  std::int64_t from;
  std::int64_t to;
};

/// Number of rows and columns of a tile, which fits into the L1 cache.
constexpr std::int64_t tile = 16;

/// out[y to_y + x to_x] = in[y from_y + x from_x].
template <int bytes>
void copy_plane(const Axis& y, const Axis& x, const char* in, char* out) {
  if (x.from == 1 && x.to == 1) {
    for (std::int64_t i = 0; i < y.extent; ++i)
      std::memcpy(out + i * y.to * bytes, in + i * y.from * bytes,
                  static_cast<std::size_t>(x.extent * bytes));
    return;
  }
  for (std::int64_t y0 = 0; y0 < y.extent; y0 += tile)
    for (std::int64_t x0 = 0; x0 < x.extent; x0 += tile)
      for (std::int64_t i = y0; i < std::min(y0 + tile, y.extent); ++i)
        for (std::int64_t j = x0; j < std::min(x0 + tile, x.extent); ++j)
          std::memcpy(out + (i * y.to + j * x.to) * bytes, in + (i * y.from + j * x.from) * bytes,
                      bytes);
}

/// out[Σ i_a to_a] = in[Σ i_a from_a] for all 0 ≤ i_a < extent_a. The last two axes are the
/// innermost loops.
template <int bytes>
void copy_axes(const std::vector<Axis>& axes, std::size_t axis, const char* in, char* out) {
  if (axis + 2 == axes.size()) return copy_plane<bytes>(axes[axis], axes[axis + 1], in, out);
  for (std::int64_t i = 0; i < axes[axis].extent; ++i)
    copy_axes<bytes>(axes, axis + 1, in + i * axes[axis].from * bytes,
                     out + i * axes[axis].to * bytes);
}

void copy(std::vector<Axis> axes, const char* in, char* out, std::int64_t element_bytes) {
  std::erase_if(axes, [](const Axis& axis) { return axis.extent == 1; });
  // The innermost axis has the smallest stride in `out`, the next one the smallest stride in `in`.
  std::ranges::sort(axes, std::ranges::greater(), &Axis::to);
  while (axes.size() < 2) axes.insert(axes.begin(), {1, 0, 0});
  std::iter_swap(std::ranges::min_element(axes.begin(), axes.end() - 1, {}, &Axis::from),
                 axes.end() - 2);
  if (element_bytes == 2) return copy_axes<2>(axes, 0, in, out);
  if (element_bytes == 4) return copy_axes<4>(axes, 0, in, out);
  if (element_bytes == 8) return copy_axes<8>(axes, 0, in, out);
  throw Error(text("cannot copy elements of ", element_bytes, " bytes; expected 2, 4 or 8"));
}

/// Strides of a contiguous array, last axis fastest.
Extents strides_of(const Extents& extents) {
  Extents strides(extents.size(), 1);
  for (std::size_t axis = extents.size(); axis-- > 1;)
    strides[axis - 1] = strides[axis] * extents[axis];
  return strides;
}

/// The part of a panel in some rows.
struct Box {
  std::vector<Axis> axes;  ///< from the panel to the rows
  std::int64_t panel = 0;  ///< first element in the panel
  std::int64_t rows = 0;   ///< first element in the rows
};

/// std::nullopt if the panel has none of the rows [first, last). `strides`: in memory; `rows`: the
/// axis of the panel that is the first axis in memory.
std::optional<Box> box_of(const checkpoint::Slab& panel, const Extents& strides, std::size_t rows,
                          std::int64_t first, std::int64_t last) {
  const std::int64_t begin = std::max(first, panel.offset[rows]);
  const std::int64_t end = std::min(last, panel.offset[rows] + panel.extent[rows]);
  if (begin >= end) return std::nullopt;
  const Extents in_panel = strides_of(panel.extent);
  Box out;
  for (std::size_t axis = 0; axis < strides.size(); ++axis) {
    const std::int64_t extent = axis == rows ? end - begin : panel.extent[axis];
    out.axes.push_back({extent, in_panel[axis], strides[axis]});
    out.rows += (axis == rows ? begin - first : panel.offset[axis]) * strides[axis];
  }
  out.panel = (begin - panel.offset[rows]) * in_panel[rows];
  return out;
}

}  // namespace

AxisOrder::AxisOrder(Extents extents, std::vector<std::size_t> axes) {
  check(!extents.empty(), "a tensor without axes");
  if (axes.empty()) {
    axes.resize(extents.size());
    std::iota(axes.begin(), axes.end(), std::size_t{0});
  }
  std::vector<std::size_t> sorted = axes;
  std::ranges::sort(sorted);
  bool complete = axes.size() == extents.size();
  for (std::size_t axis = 0; axis < sorted.size(); ++axis)
    complete = complete && sorted[axis] == axis;
  check(complete, "the order of ", axes.size(), " axes of a tensor ",
        checkpoint::shape_text(extents), ", expected each axis once");
  const Extents strides = strides_of(extents);
  for (const std::size_t axis : axes) {
    extents_.push_back(extents[axis]);
    strides_.push_back(strides[axis]);
  }
  rows_ = extents.front();
  place_of_rows_ = static_cast<std::size_t>(std::ranges::find(axes, 0u) - axes.begin());
}

std::vector<AxisOrder::Panel> AxisOrder::panels(std::int64_t most) const {
  // The axis that panels divide. A panel has one index of the axes before, and all of those after.
  std::size_t divided = extents_.size() - 1;
  std::int64_t unit = 1;
  while (divided > 0 && unit * extents_[divided] <= most) unit *= extents_[divided--];
  const std::int64_t step = std::max<std::int64_t>(1, most / std::max<std::int64_t>(1, unit));
  std::vector<Panel> all;
  Panel next{0, 0, checkpoint::whole(extents_)};
  for (std::size_t axis = 0; axis < divided; ++axis) next.slab.extent[axis] = 1;
  while (next.first < checkpoint::volume(extents_)) {
    std::int64_t& at = next.slab.offset[divided];
    next.slab.extent[divided] = std::min(step, extents_[divided] - at);
    next.count = next.slab.extent[divided] * unit;
    all.push_back(next);
    next.first += next.count;
    at += next.slab.extent[divided];
    for (std::size_t axis = divided; axis > 0 && next.slab.offset[axis] == extents_[axis]; --axis) {
      next.slab.offset[axis] = 0;
      ++next.slab.offset[axis - 1];
    }
  }
  return all;
}

void AxisOrder::to_memory(const Panel& from, const void* panel, std::int64_t first,
                          std::int64_t last, std::int64_t element_bytes, void* rows) const {
  std::optional<Box> part = box_of(from.slab, strides_, place_of_rows_, first, last);
  if (!part) return;
  copy(std::move(part->axes), static_cast<const char*>(panel) + part->panel * element_bytes,
       static_cast<char*>(rows) + part->rows * element_bytes, element_bytes);
}

void AxisOrder::to_file(const void* rows, std::int64_t first, std::int64_t last,
                        std::int64_t element_bytes, const Panel& to, void* panel) const {
  std::optional<Box> part = box_of(to.slab, strides_, place_of_rows_, first, last);
  if (!part) return;
  for (Axis& axis : part->axes) std::swap(axis.from, axis.to);
  copy(std::move(part->axes), static_cast<const char*>(rows) + part->rows * element_bytes,
       static_cast<char*>(panel) + part->panel * element_bytes, element_bytes);
}

}  // namespace trireme::hugging_face
