// The process grid: coordinates of ranks along the axes, and errors for sizes that do not fit.
#include <trireme/base/check.hpp>
#include <trireme/layout/process_grid.hpp>

#include <string>
#include <vector>

namespace trireme::layout {

namespace {

/// "1, 2, 3, 6"; if there are many, the first and the last few.
std::string divisors(int n) {
  std::vector<int> found;
  for (int d = 1; d <= n; ++d)
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

/// Remedy: the changes with which the product of the factors is `ranks`.
std::string what_fits(int pipeline, int tensor, int ranks) {
  const std::int64_t model = std::int64_t{pipeline} * tensor;
  if (ranks % model == 0) return text("set data = ", ranks / model, " for ", ranks, " ranks");
  const std::string factor =
      ranks % tensor == 0
          ? text("with tensor = ", tensor, ", pipeline can be ", divisors(ranks / tensor))
          : text("tensor can be ", divisors(ranks));
  return text(ranks, " ranks are not a multiple of pipeline · tensor = ", model, "; ", factor,
              "; or start ", model * (ranks / model + 1), " ranks with data = ", ranks / model + 1);
}

}  // namespace

ProcessGrid::ProcessGrid(int data, int pipeline, int tensor, int ranks)
    : data_(data), pipeline_(pipeline), tensor_(tensor) {
  check_usage(data >= 1 && pipeline >= 1 && tensor >= 1, "process grid: data = ", data,
              ", pipeline = ", pipeline, ", tensor = ", tensor,
              ": every factor must be at least 1");
  check_usage(ranks >= 1, "process grid: ", ranks, " ranks, expected at least 1");
  // In floating point, because three factors can overflow 64 bits.
  const double product = static_cast<double>(data) * pipeline * tensor;
  check_usage(product == ranks, "data · pipeline · tensor = ", data, " · ", pipeline, " · ", tensor,
              " = ", fixed(product, 0), ", but there are ", ranks, " ranks; ",
              what_fits(pipeline, tensor, ranks));
}

int ProcessGrid::size(Axis axis) const {
  switch (axis) {
    case Axis::data:
      return data_;
    case Axis::pipeline:
      return pipeline_;
    case Axis::tensor:
      return tensor_;
  }
  return 1;
}

Coordinates ProcessGrid::coordinates(Rank rank) const {
  check(rank >= 0 && rank < ranks(), "rank ", rank, " is not within the grid of ", ranks(),
        " ranks");
  return {rank / (tensor_ * pipeline_), rank / tensor_ % pipeline_, rank % tensor_};
}

Rank ProcessGrid::rank(const Coordinates& at) const {
  return (at.data * pipeline_ + at.pipeline) * tensor_ + at.tensor;
}

int ProcessGrid::position(Axis axis, Rank rank) const {
  const Coordinates at = coordinates(rank);
  switch (axis) {
    case Axis::data:
      return at.data;
    case Axis::pipeline:
      return at.pipeline;
    case Axis::tensor:
      return at.tensor;
  }
  return 0;
}

int ProcessGrid::colour(Axis axis, Rank rank) const {
  const Coordinates at = coordinates(rank);
  switch (axis) {
    case Axis::data:
      return at.pipeline * tensor_ + at.tensor;
    case Axis::pipeline:
      return at.data * tensor_ + at.tensor;
    case Axis::tensor:
      return at.data * pipeline_ + at.pipeline;
  }
  return 0;
}

}  // namespace trireme::layout
