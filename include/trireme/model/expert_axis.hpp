#pragma once

#include <trireme/grid/communicator.hpp>
#include <trireme/layout/split.hpp>
#include <trireme/tensor/views.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace trireme::model {

/// The replicas that divide the experts among them ([parallel] expert). They have different
/// samples; a token's row goes to the replicas that have its experts.
class ExpertAxis {
 public:
  /// One replica, which has all experts.
  ExpertAxis() = default;
  /// `communicator` must outlive this object.
  explicit ExpertAxis(grid::Communicator& communicator)
      : communicator_(&communicator), size_(communicator.size()), rank_(communicator.rank()) {}
  /// Rank `rank` of `size` replicas that sends no messages: it receives the copies that it has for
  /// itself in place of those of each replica, as many as if all experts were used equally. For
  /// measurements of the kernels of one rank.
  static ExpertAxis without_messages(int rank, int size) {
    ExpertAxis axis;
    axis.rank_ = rank;
    axis.size_ = size;
    return axis;
  }

  int size() const { return size_; }
  int rank() const { return rank_; }
  bool divides() const { return size_ > 1; }
  bool sends() const { return communicator_ != nullptr; }
  /// The axis's communicator. Call this function only if sends().
  grid::Communicator& communicator() const { return *communicator_; }

 private:
  grid::Communicator* communicator_ = nullptr;
  int size_ = 1;
  int rank_ = 0;
};

/// The copies of one layer's rows in a micro-batch. The n copies that this rank sends, and the m
/// that it receives, are sorted by replica. Collective among the replicas.
class ExpertCopies {
 public:
  explicit ExpertCopies(const ExpertAxis& axis) : axis_(axis) {}

  /// Exchanges the numbers of copies. bounds [2 (e + 1)]: the first half, on entry, has the places
  /// of the copies that this rank sends (kernels::list_copies); the second half, on return, of
  /// those that it receives. Waits for the device.
  void exchange_bounds(const Exec& exec, View1<std::int32_t> bounds);
  /// Reads the result of exchange_bounds(). Waits for the device.
  void read(const Exec& exec, View1<std::int32_t> bounds);

  std::int64_t sent() const { return sent_.empty() ? 0 : sent_.back(); }
  std::int64_t received() const { return received_.empty() ? 0 : received_.back(); }

  /// received [m, N] = the copies of all replicas' rows [T, N] for this rank. order [n]: the rows
  /// that this rank sends. sent [≥ n, N]: work memory.
  template <class T>
  View2<T> send(const Exec& exec, View2<T> received, View2<T> sent, View2<const T> rows,
                View1<const std::int32_t> order, const char* what) const;
  /// sums [T, N] += the rows [m, N] of all replicas for this rank's copies, ascending by replica.
  template <class T>
  void bring_back(const Exec& exec, View2<Accumulate<T>> sums, View2<T> returned,
                  View2<const T> rows, View1<const std::int32_t> order, const char* what) const;

 private:
  std::vector<std::int64_t> counts(const std::vector<std::int32_t>& bounds,
                                   std::int64_t columns) const;
  /// The copies that this rank has for replica `replica`.
  layout::Slice copies_for(std::size_t replica) const {
    return {sent_[replica], sent_[replica + 1] - sent_[replica]};
  }

  const ExpertAxis& axis_;
  std::vector<std::int32_t> sent_, received_;  ///< bounds of the copies by replica
};

}  // namespace trireme::model
