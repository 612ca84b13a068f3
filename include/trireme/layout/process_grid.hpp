#pragma once

#include <trireme/layout/axes.hpp>

namespace trireme::layout {

/// Position of a rank on the axes: at[Axis::tensor].
using Coordinates = PerAxis<int>;

/// Maps ranks to coordinates and back, for axes in any order. Does not use MPI.
class ProcessGrid {
 public:
  /// UsageError if a size or `ranks` is less than 1, or if the product of the sizes is not `ranks`.
  ProcessGrid(const AxisList& axes, std::int64_t ranks);

  const AxisList& axes() const { return axes_; }
  int size(Axis axis) const { return static_cast<int>(axes_.size(axis)); }
  int stride(Axis axis) const { return static_cast<int>(axes_.stride(axis)); }
  int ranks() const { return static_cast<int>(axes_.ranks()); }
  /// Number of ranks that together hold the weights once.
  int weight_ranks() const { return static_cast<int>(axes_.weight_ranks()); }

  Coordinates coordinates(Rank rank) const;
  Rank rank(const Coordinates& at) const;
  int position(Axis axis, Rank rank) const { return rank / stride(axis) % size(axis); }

  /// Colour of `rank` for MPI_Comm_split: the lowest rank of the group of `rank` along `axis`.
  int colour(Axis axis, Rank rank) const { return rank - position(axis, rank) * stride(axis); }
  /// Colours of `rank` for MPI_Comm_split. weight_colour() is equal on the ranks that together hold
  /// the weights once, replica_colour() on the ranks that hold the same weights.
  int weight_colour(Rank rank) const { return colour_of_axes(rank, true); }
  int replica_colour(Rank rank) const { return colour_of_axes(rank, false); }

 private:
  /// Colour that is equal on ranks that differ only along the axes that split the weights, or,
  /// without `splits_weights`, only along the other axes.
  int colour_of_axes(Rank rank, bool splits_weights) const;

  AxisList axes_;
};

}  // namespace trireme::layout
