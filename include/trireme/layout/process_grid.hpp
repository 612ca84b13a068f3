#pragma once

#include <trireme/base/types.hpp>

namespace trireme::layout {

/// Position of a rank on the three axes.
struct Coordinates {
  int data = 0;
  int pipeline = 0;
  int tensor = 0;
  bool operator==(const Coordinates&) const = default;
};

/// rank ↔ (data, pipeline, tensor): tensor varies fastest, so that a tensor group is within a node,
/// and data slowest. Pure arithmetic: any size, without MPI.
class ProcessGrid {
 public:
  /// Throws UsageError if data · pipeline · tensor ≠ ranks; the message shows all factors and a
  /// choice that fits.
  ProcessGrid(int data, int pipeline, int tensor, int ranks);

  int size(Axis axis) const;
  int ranks() const { return data_ * pipeline_ * tensor_; }
  /// Ranks of one replica of the model.
  int model_ranks() const { return pipeline_ * tensor_; }

  Coordinates coordinates(Rank rank) const;
  Rank rank(const Coordinates& at) const;

  /// Ranks that differ from `rank` only along `axis` share a colour: the argument of
  /// MPI_Comm_split.
  int colour(Axis axis, Rank rank) const;
  int position(Axis axis, Rank rank) const;

 private:
  int data_;
  int pipeline_;
  int tensor_;
};

}  // namespace trireme::layout
