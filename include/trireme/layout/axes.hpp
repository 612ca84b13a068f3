#pragma once

#include <trireme/base/types.hpp>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::layout {

/// Properties of an axis: its row of axis_table.
struct AxisTraits {
  Axis axis;
  bool splits_model;    ///< its ranks share each sample; otherwise each rank has its own samples
  bool splits_weights;  ///< its ranks hold different weights; otherwise all hold the same weights
  bool always_named;    ///< named in messages and tables even if its size is 1
};

/// All axes in their default order among the ranks, fastest first: ranks of a tensor group are
/// consecutive, and replicas are far apart.
inline constexpr std::array<AxisTraits, axis_count> axis_table{{
    {Axis::tensor, true, true, true},
    {Axis::context, true, false, false},
    {Axis::pipeline, true, true, true},
    {Axis::data, false, false, true},
}};

constexpr const AxisTraits& traits_of(Axis axis) {
  for (const AxisTraits& traits : axis_table)
    if (traits.axis == axis) return traits;
  return axis_table.front();
}

/// One value per axis: x[Axis::tensor].
template <class T>
class PerAxis {
 public:
  T& operator[](Axis axis) { return values_[static_cast<std::size_t>(axis)]; }
  const T& operator[](Axis axis) const { return values_[static_cast<std::size_t>(axis)]; }
  bool operator==(const PerAxis&) const = default;

 private:
  std::array<T, axis_count> values_{};
};

struct AxisSize {
  Axis axis = Axis::data;
  std::int64_t size = 1;
  /// Whether messages and tables name the axis.
  bool is_named() const { return size != 1 || traits_of(axis).always_named; }
  bool operator==(const AxisSize&) const = default;
};

/// The axes in the order of the ranks, with their sizes and strides. The first axis varies fastest:
/// neighbours along it are consecutive ranks.
class AxisList {
 public:
  /// Other axes have size 1 and follow in the default order. Error if an axis occurs twice.
  AxisList(std::initializer_list<AxisSize> axes) : AxisList(std::span(axes.begin(), axes.size())) {}
  explicit AxisList(std::span<const AxisSize> axes);

  /// The axes, fastest first.
  const std::array<AxisSize, axis_count>& axes() const { return axes_; }
  std::int64_t size(Axis axis) const { return sizes_[axis]; }
  /// Distance between neighbours along the axis, in ranks.
  std::int64_t stride(Axis axis) const { return strides_[axis]; }
  /// The product of all sizes; the largest std::int64_t if the product overflows.
  std::int64_t ranks() const { return ranks_; }
  /// Number of ranks that compute a sample together.
  std::int64_t model_ranks() const;
  /// Number of ranks that together hold the weights once.
  std::int64_t weight_ranks() const;

  /// "data · pipeline · tensor": the axes for which is_named(), slowest first.
  std::string names() const;
  /// "32 · 4 · 8": the sizes of the axes of names(), in the same order.
  std::string sizes() const;
  /// "data 32 · pipeline 4 · tensor 8": the names and sizes of the axes of names().
  std::string named_sizes() const;

 private:
  std::array<AxisSize, axis_count> axes_{};
  PerAxis<std::int64_t> sizes_;
  PerAxis<std::int64_t> strides_;
  std::int64_t ranks_ = 1;
};

/// Reads an order of axes such as "tensor, data, pipeline", fastest first. Missing axes follow in
/// the default order. If the text is invalid, returns std::nullopt and stores the reason in
/// `problem`.
std::optional<std::array<Axis, axis_count>> parse_order(std::string_view order,
                                                        std::string& problem);

}  // namespace trireme::layout
