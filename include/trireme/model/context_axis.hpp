#pragma once

#include <trireme/grid/communicator.hpp>
#include <trireme/layout/token_places.hpp>
#include <trireme/tensor/views.hpp>

#include <cstdint>

namespace trireme::model {

/// The context axis in the layers: its ranks divide the tokens of every sample among them and have
/// the same weights.
class ContextAxis {
 public:
  /// An axis of one rank.
  ContextAxis() = default;
  /// An axis for samples of `sequence` tokens. `communicator` must outlive this object.
  ContextAxis(grid::Communicator& communicator, std::int64_t sequence)
      : communicator_(&communicator),
        rank_(communicator.rank()),
        size_(communicator.size()),
        sequence_(sequence) {
    if (size_ > 1) places_ = places_of(rank_);
  }

  int rank() const { return rank_; }
  int size() const { return size_; }
  /// Positions of this rank's tokens in each sample.
  const layout::TokenPlaces& places() const { return places_; }
  layout::TokenPlaces places_of(int rank) const {
    return layout::token_places(sequence_, size_, rank);
  }
  /// Number of this rank's tokens in a sample of `sequence` tokens.
  std::int64_t held(std::int64_t sequence) const {
    return places_.is_cut() ? places_.held : sequence;
  }
  /// This rank's part of `n` rows that the ranks divide among them.
  layout::Slice part(std::int64_t n) const { return layout::split(n, size_, rank_); }

  /// x becomes the sum of x over the ranks, on all ranks. Collective.
  template <class T>
  void sum(const Exec& exec, View2<T> x, const char* what) const {
    if (size_ > 1) communicator_->all_reduce<T>(exec, flat(x), grid::Reduction::sum, what);
  }
  /// The axis's communicator. Do not call this function on a default-constructed axis.
  grid::Communicator& communicator() const { return *communicator_; }

 private:
  grid::Communicator* communicator_ = nullptr;
  int rank_ = 0;
  int size_ = 1;
  std::int64_t sequence_ = 0;
  layout::TokenPlaces places_;
};

}  // namespace trireme::model
