#pragma once

#include <trireme/layout/axes.hpp>

namespace trireme::layout {

/// Position of a rank on the axes: at[Axis::tensor].
using Coordinates = PerAxis<int>;

/// Maps ranks to coordinates and back, for axes in any order. Pure arithmetic: any size, without
/// MPI.
class ProcessGrid {
 public:
  /// Throws UsageError if the product of the sizes is not `ranks`; the message shows all factors
  /// and a choice that fits.
  ProcessGrid(const AxisList& axes, std::int64_t ranks);

  const AxisList& axes() const { return axes_; }
  int size(Axis axis) const { return static_cast<int>(axes_.size(axis)); }
  int stride(Axis axis) const { return static_cast<int>(axes_.stride(axis)); }
  int ranks() const { return static_cast<int>(axes_.ranks()); }
  /// Ranks that together hold the weights once.
  int weight_ranks() const { return static_cast<int>(axes_.weight_ranks()); }

  Coordinates coordinates(Rank rank) const;
  Rank rank(const Coordinates& at) const;
  int position(Axis axis, Rank rank) const { return rank / stride(axis) % size(axis); }

  /// Colour for MPI_Comm_split: ranks that differ from `rank` only along `axis` have the same
  /// colour, the lowest of these ranks.
  int colour(Axis axis, Rank rank) const { return rank - position(axis, rank) * stride(axis); }
  /// Colours of the ranks that together hold the weights once, and of the ranks with the same
  /// weights.
  int weight_colour(Rank rank) const { return colour_of_axes(rank, true); }
  int replica_colour(Rank rank) const { return colour_of_axes(rank, false); }

 private:
  /// Colour of the ranks that differ only along the axes that split the weights, or along the other
  /// axes.
  int colour_of_axes(Rank rank, bool splits_weights) const;

  AxisList axes_;
};

}  // namespace trireme::layout
