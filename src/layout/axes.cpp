// The list of axes: sizes, strides, names for messages, and the deck's order.
#include <trireme/layout/axes.hpp>

#include <trireme/base/check.hpp>

#include <algorithm>
#include <limits>

namespace trireme::layout {

namespace {

std::int64_t times(std::int64_t a, std::int64_t b) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  return b > 0 && a > most / b ? most : a * b;
}

template <class F>
std::string slowest_first(const std::array<AxisSize, axis_count>& axes, F word) {
  std::vector<std::string> words;
  for (auto a = axes.rbegin(); a != axes.rend(); ++a)
    if (a->is_named()) words.push_back(word(*a));
  return join(words, " · ");
}

/// `given` followed by the other axes in the default order.
template <class T, class Of>
std::array<T, axis_count> complete(std::span<const T> given, Of of) {
  std::array<T, axis_count> all{};
  std::ranges::copy(given, all.begin());
  auto next = all.begin() + static_cast<std::ptrdiff_t>(given.size());
  for (const AxisTraits& traits : axis_table)
    if (std::ranges::find(given, traits.axis, of) == given.end()) *next++ = T{traits.axis};
  return all;
}

}  // namespace

AxisList::AxisList(std::span<const AxisSize> axes) {
  PerAxis<int> times_named;
  for (const AxisSize& a : axes)
    check(++times_named[a.axis] == 1, "the axis ", name_of(a.axis), " is named twice");
  axes_ = complete(axes, &AxisSize::axis);
  for (const AxisSize& a : axes_) {
    sizes_[a.axis] = a.size;
    strides_[a.axis] = ranks_;
    ranks_ = times(ranks_, a.size);
  }
}

std::int64_t AxisList::model_ranks() const {
  std::int64_t ranks = 1;
  for (const AxisTraits& traits : axis_table)
    if (traits.splits_model) ranks = times(ranks, size(traits.axis));
  return ranks;
}

std::int64_t AxisList::weight_ranks() const {
  std::int64_t ranks = 1;
  for (const AxisTraits& traits : axis_table)
    if (traits.splits_weights) ranks = times(ranks, size(traits.axis));
  return ranks;
}

std::string AxisList::names() const {
  return slowest_first(axes_, [](const AxisSize& a) { return std::string(name_of(a.axis)); });
}

std::string AxisList::sizes() const {
  return slowest_first(axes_, [](const AxisSize& a) { return text(a.size); });
}

std::string AxisList::named_sizes() const {
  return slowest_first(axes_, [](const AxisSize& a) { return text(name_of(a.axis), " ", a.size); });
}

std::optional<std::array<Axis, axis_count>> parse_order(std::string_view order,
                                                        std::string& problem) {
  constexpr std::string_view separators = ", ";
  const auto words = trireme::names<Axis>();
  std::vector<Axis> axes;
  for (auto begin = order.find_first_not_of(separators); begin != std::string_view::npos;) {
    const std::size_t end = std::min(order.find_first_of(separators, begin), order.size());
    const std::string_view word = order.substr(begin, end - begin);
    const std::optional<Axis> axis = parse<Axis>(word);
    if (!axis) {
      problem = text("\"", word, "\" is not an axis; name some of ",
                     join(std::vector<std::string>(words.begin(), words.end()), ", "),
                     ", the fastest first");
      return std::nullopt;
    }
    if (std::ranges::find(axes, *axis) != axes.end()) {
      problem = text("\"", word, "\" is named twice; name each axis at most once");
      return std::nullopt;
    }
    axes.push_back(*axis);
    begin = order.find_first_not_of(separators, end);
  }
  return complete<Axis>(axes, std::identity());
}

}  // namespace trireme::layout
