// The process grid: coordinates of ranks along the axes, and errors for sizes that do not fit.
#include <trireme/layout/process_grid.hpp>

#include <trireme/base/check.hpp>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

namespace trireme::layout {

namespace {

/// Divisors such as "1, 2, 3, 6"; of more than 12 divisors, the first 8 and the last 3.
std::string divisors(std::int64_t n) {
  std::vector<std::int64_t> found;
  for (std::int64_t d = 1; d <= n; ++d)
    if (n % d == 0) found.push_back(d);
  std::vector<std::string> words;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found.size() <= 12 || i < 8 || i + 3 >= found.size())
      words.push_back(text(found[i]));
    else if (i == 8)
      words.push_back("…");
  }
  return join(words, ", ");
}

/// The named axes that split the model, for messages: "pipeline · tensor".
std::string model_names(const AxisList& axes) {
  std::vector<std::string> words;
  for (auto a = axes.axes().rbegin(); a != axes.axes().rend(); ++a)
    for (const AxisTraits& traits : axis_table)
      if (traits.axis == a->axis && traits.splits_model && a->is_named())
        words.emplace_back(name_of(a->axis));
  return join(words, " · ");
}

/// Remedy: changes that make the product of the factors equal to the number of ranks.
std::string what_fits(const AxisList& axes, std::int64_t ranks) {
  const std::int64_t model = axes.model_ranks();
  if (ranks % model == 0) return text("set data = ", ranks / model, " for ", ranks, " ranks");
  // Finds the first axis whose size does not divide the ranks left by the axes before it.
  std::int64_t rest = ranks;
  std::string factor;
  for (const AxisSize& a : axes.axes()) {
    if (a.axis == Axis::data) continue;
    if (rest % a.size != 0) {
      factor += text(factor.empty() ? "" : ", ", name_of(a.axis), " can be ", divisors(rest));
      break;
    }
    if (a.size > 1)
      factor += text(factor.empty() ? "with " : " and ", name_of(a.axis), " = ", a.size);
    rest /= a.size;
  }
  return text(ranks, " ranks are not a multiple of ", model_names(axes), " = ", model, "; ", factor,
              "; or start ", model * (ranks / model + 1), " ranks with data = ", ranks / model + 1);
}

}  // namespace

ProcessGrid::ProcessGrid(const AxisList& axes, std::int64_t ranks) : axes_(axes) {
  const bool positive = std::ranges::all_of(axes.axes(), [](auto a) { return a.size >= 1; });
  check_usage(positive, "process grid: ", axes.named_sizes(), ": every size must be at least 1");
  check_usage(ranks >= 1 && ranks <= std::numeric_limits<int>::max(), "process grid: ", ranks,
              " ranks, expected at least 1");
  // Floating point, because the product can overflow 64 bits.
  double product = 1;
  for (const AxisSize& a : axes.axes()) product *= static_cast<double>(a.size);
  check_usage(axes.ranks() == ranks, axes.names(), " = ", axes.sizes(), " = ", fixed(product, 0),
              ", but there are ", ranks, " ranks; ", what_fits(axes, ranks));
}

Coordinates ProcessGrid::coordinates(Rank rank) const {
  check(rank >= 0 && rank < ranks(), "rank ", rank, " is not within the grid of ", ranks(),
        " ranks");
  Coordinates at;
  for (const AxisSize& a : axes_.axes()) at[a.axis] = position(a.axis, rank);
  return at;
}

Rank ProcessGrid::rank(const Coordinates& at) const {
  Rank rank = 0;
  for (const AxisSize& a : axes_.axes()) rank += at[a.axis] * stride(a.axis);
  return rank;
}

int ProcessGrid::colour_of_axes(Rank rank, bool splits_weights) const {
  int colour = rank;
  for (const AxisTraits& traits : axis_table)
    if (traits.splits_weights == splits_weights)
      colour -= position(traits.axis, rank) * stride(traits.axis);
  return colour;
}

}  // namespace trireme::layout
