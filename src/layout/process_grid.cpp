#include <trireme/base/check.hpp>
#include <trireme/layout/process_grid.hpp>

namespace trireme::layout {

ProcessGrid::ProcessGrid(int data, int pipeline, int tensor, int ranks)
    : data_(data), pipeline_(pipeline), tensor_(tensor) {
  check_usage(data >= 1 && pipeline >= 1 && tensor >= 1, "process grid: data = ", data,
              ", pipeline = ", pipeline, ", tensor = ", tensor,
              ": every factor must be at least 1");
  const std::int64_t product = std::int64_t{data} * pipeline * tensor;
  const std::int64_t model = std::int64_t{pipeline} * tensor;
  const std::string fit =
      ranks % model == 0 ? text("data = ", ranks / model, " would fit ", ranks, " ranks")
                         : text(ranks, " ranks are no multiple of pipeline · tensor = ", model);
  check_usage(product == ranks, "data · pipeline · tensor = ", data, " · ", pipeline, " · ", tensor,
              " = ", product, ", but there are ", ranks, " ranks; ", fit);
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
  check(rank >= 0 && rank < ranks(), "rank ", rank, " of ", ranks());
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
