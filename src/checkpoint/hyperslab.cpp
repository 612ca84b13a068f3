// Slabs of arrays: intersections, contiguous runs, and a check that slabs tile an array.
#include <trireme/checkpoint/hyperslab.hpp>

#include <trireme/base/check.hpp>

#include <algorithm>
#include <numeric>

namespace trireme::checkpoint {
namespace {

/// "[0, 2) x [5, 9)"
std::string slab_text(const Slab& slab) {
  std::string out;
  for (std::size_t a = 0; a < slab.offset.size(); ++a)
    out += text(a > 0 ? " x [" : "[", slab.offset[a], ", ", slab.offset[a] + slab.extent[a], ")");
  return out.empty() ? "the scalar" : out;
}

/// Distance, in elements, between neighbours along each axis of a contiguous array.
Extents strides(const Extents& extent) {
  Extents out(extent.size(), 1);
  for (std::size_t a = extent.size(); a-- > 1;) out[a - 1] = out[a] * extent[a];
  return out;
}

std::int64_t position(const Slab& part, const Slab& in, const Extents& stride) {
  std::int64_t at = 0;
  for (std::size_t a = 0; a < stride.size(); ++a) at += (part.offset[a] - in.offset[a]) * stride[a];
  return at;
}

/// The axis with the most distinct slab offsets.
std::size_t most_cut_axis(std::size_t axes, std::span<const Slab> slabs) {
  std::size_t best = 0;
  std::ptrdiff_t most = 0;
  for (std::size_t a = 0; a < axes; ++a) {
    Extents begins;
    for (const auto& slab : slabs) begins.push_back(slab.offset[a]);
    std::sort(begins.begin(), begins.end());
    const auto distinct = std::unique(begins.begin(), begins.end()) - begins.begin();
    if (distinct > most) best = a;
    most = std::max(most, distinct);
  }
  return best;
}

}  // namespace

std::string shape_text(const Extents& shape) {
  std::string out = "[";
  for (std::size_t a = 0; a < shape.size(); ++a) out += text(a > 0 ? ", " : "", shape[a]);
  return out + "]";
}

std::int64_t volume(const Extents& extent) {
  const auto negative = [](std::int64_t n) { return n < 0; };
  check(std::ranges::none_of(extent, negative), "the shape ", shape_text(extent),
        " has a negative extent");
  check(is_small_enough(extent), "the shape ", shape_text(extent), " has more than 2^56 elements");
  if (std::ranges::find(extent, 0) != extent.end()) return 0;
  return std::accumulate(extent.begin(), extent.end(), std::int64_t{1}, std::multiplies<>());
}

bool is_small_enough(const Extents& extent) {
  if (std::ranges::find(extent, 0) != extent.end()) return true;
  std::int64_t room = most_elements;
  for (const std::int64_t n : extent) room /= n;
  return room > 0;
}

Slab whole(const Extents& shape) {
  return {Extents(shape.size(), 0), shape};
}

void expect_within(const std::string& what, const Slab& slab, const Extents& shape) {
  check(slab.offset.size() == shape.size() && slab.extent.size() == shape.size(), what, ": has ",
        shape.size(), " axes, but its slice has ", slab.extent.size());
  for (std::size_t a = 0; a < shape.size(); ++a)
    check(slab.offset[a] >= 0 && slab.extent[a] >= 0 && slab.extent[a] <= shape[a] &&
              slab.offset[a] <= shape[a] - slab.extent[a],
          what, ": axis ", a, " has ", shape[a], " elements, but its slice begins at ",
          slab.offset[a], " and has ", slab.extent[a]);
}

std::optional<Slab> intersection(const Slab& a, const Slab& b) {
  Slab out = a;
  for (std::size_t i = 0; i < a.offset.size(); ++i) {
    out.offset[i] = std::max(a.offset[i], b.offset[i]);
    out.extent[i] = std::min(a.offset[i] + a.extent[i], b.offset[i] + b.extent[i]) - out.offset[i];
    if (out.extent[i] <= 0) return std::nullopt;
  }
  return out;
}

void for_each_run(const Slab& part, const Slab& source, const Slab& target, const Run& run) {
  const std::int64_t elements = volume(part.extent);
  if (elements == 0) return;
  const Extents from_stride = strides(source.extent);
  const Extents to_stride = strides(target.extent);
  std::int64_t from = position(part, source, from_stride);
  std::int64_t to = position(part, target, to_stride);
  // A run covers the axes from `outer` on. The axes after `outer` are complete in both slabs.
  std::size_t outer = part.extent.size();
  std::int64_t count = 1;
  while (outer > 0) {
    const std::size_t a = outer - 1;
    count *= part.extent[a];
    --outer;
    if (part.extent[a] != source.extent[a] || part.extent[a] != target.extent[a]) break;
  }
  Extents index(outer, 0);
  for (std::int64_t done = 0; done < elements; done += count) {
    run(from, to, count);
    for (std::size_t a = outer; a-- > 0;) {
      from += from_stride[a];
      to += to_stride[a];
      if (++index[a] < part.extent[a]) break;
      from -= index[a] * from_stride[a];
      to -= index[a] * to_stride[a];
      index[a] = 0;
    }
  }
}

void for_each_block(const Slab& slab, std::int64_t elements,
                    const std::function<void(const Slab&)>& use) {
  const std::int64_t size = volume(slab.extent);
  if (size == 0) return;
  const auto axis = std::ranges::find_if(slab.extent, [](std::int64_t n) { return n > 1; });
  if (size <= elements || axis == slab.extent.end()) {
    use(slab);
    return;
  }
  const auto a = static_cast<std::size_t>(axis - slab.extent.begin());
  Slab half = slab;
  half.extent[a] = slab.extent[a] / 2;
  for_each_block(half, elements, use);
  half.offset[a] += half.extent[a];
  half.extent[a] = slab.extent[a] - half.extent[a];
  for_each_block(half, elements, use);
}

void expect_tiling(const std::string& what, const Extents& shape, std::span<const Slab> slabs) {
  std::int64_t covered = 0;
  for (const auto& slab : slabs) {
    expect_within(what, slab, shape);
    covered += volume(slab.extent);
  }
  const std::int64_t elements = volume(shape);
  if (!shape.empty()) {
    const std::size_t axis = most_cut_axis(shape.size(), slabs);
    std::vector<std::size_t> order(slabs.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::sort(order, {}, [&](std::size_t i) { return slabs[i].offset[axis]; });
    for (std::size_t i = 0; i < order.size(); ++i) {
      const Slab& first = slabs[order[i]];
      const std::int64_t end = first.offset[axis] + first.extent[axis];
      for (std::size_t j = i + 1; j < order.size(); ++j) {
        const Slab& second = slabs[order[j]];
        if (second.offset[axis] >= end) break;
        check(!intersection(first, second), what, ": its slices ", slab_text(first), " and ",
              slab_text(second), " overlap");
      }
    }
  }
  check(covered == elements, what, ": its slices hold ", covered, " elements, but its shape ",
        shape_text(shape), " has ", elements, covered < elements ? "; one is missing" : "");
}

}  // namespace trireme::checkpoint
