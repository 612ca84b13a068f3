#pragma once

#include <trireme/architecture/extents.hpp>
#include <trireme/grid/communicator.hpp>
#include <trireme/layout/split.hpp>
#include <trireme/model/context_axis.hpp>
#include <trireme/model/expert_axis.hpp>
#include <trireme/tensor/views.hpp>

#include <cstdint>
#include <memory>
#include <vector>

namespace trireme::model {

/// The rows [first, first + count) of x.
template <class T>
View2<T> rows_of(View2<T> x, std::int64_t first, std::int64_t count) {
  return Kokkos::subview(
      x, std::make_pair(static_cast<std::size_t>(first), static_cast<std::size_t>(first + count)),
      Kokkos::ALL);
}

using trireme::part;
/// The elements of a vector, or the rows of a matrix, in a slice.
template <class T>
View1<T> part(const View1<T>& x, const layout::Slice& slice) {
  return part(x, slice.offset, slice.extent);
}
template <class T>
View2<T> part(const View2<T>& x, const layout::Slice& slice) {
  return rows_of(x, slice.offset, slice.extent);
}

/// The tensor axis in the layers. Matrix products work on all T tokens of a micro-batch. The
/// residual stream, norms and dropout work on this rank's rows: all rows, or with sequence
/// parallelism (Korthikanti et al. 2022, arXiv 2205.05198) a part of them. Around the products of
/// attention and feed-forward, `gather` goes from rows to all tokens, and `reduce` from partial
/// sums of all tokens back to rows. Without sequence parallelism, these are an identity and an
/// all-reduce (Shoeybi et al. 2019, arXiv 1909.08053, f and g); with it, an all-gather and a
/// reduce-scatter.
class TensorAxis {
 public:
  /// An axis of one rank. `source_tokens`: as below.
  explicit TensorAxis(std::int64_t tokens, std::int64_t source_tokens = 0);
  /// `communicator` must outlive this object. `tokens`: tokens of this rank of the context axis.
  /// `source_tokens`: tokens of the sources of a micro-batch; 0 without an encoder.
  TensorAxis(grid::Communicator& communicator, std::int64_t tokens, bool sequence_parallel,
             const ContextAxis& context = {}, const ExpertAxis& experts = {},
             std::int64_t source_tokens = 0);

  /// Rank `rank` of an axis of `size` ranks that sends no messages: gathered rows and sums are not
  /// complete. For measurements of the kernels of one rank.
  static TensorAxis without_messages(int rank, int size, std::int64_t tokens,
                                     bool sequence_parallel, std::int64_t source_tokens = 0,
                                     const ExpertAxis& experts = {});

  /// The axis for the rows of a residual stream.
  const TensorAxis& of(architecture::Stream stream) const {
    return stream == architecture::Stream::source && source_ ? *source_ : *this;
  }
  int rank() const { return rank_; }
  int size() const { return size_; }
  std::int64_t tokens() const { return tokens_; }      ///< T
  const layout::Slice& rows() const { return rows_; }  ///< this rank's rows; R = rows().extent
  const ContextAxis& context() const { return context_; }
  const ExpertAxis& experts() const { return experts_; }
  /// Positions of this rank's rows among the rows of whole samples.
  layout::TokenPlaces places() const { return context_.places().from(rows_.offset); }
  /// Whether the rows of this rank are only a part of the tokens.
  bool cuts_tokens() const { return cuts_tokens_; }
  /// Whether gather() collects the rows of all ranks; false if there are no messages.
  bool is_complete() const { return !cuts_tokens_ || communicator_ != nullptr; }

  /// Returns all tokens [T, N] from every rank's rows [R, N]: `rows` itself if it has all tokens,
  /// otherwise `all`, which this call fills. `rows` may be this rank's part of `all`.
  template <class T>
  View2<T> gather(const Exec& exec, View2<T> all, View2<T> rows, const char* what) const;

  /// Memory for the partial sums [T, N] that `reduce` sums into `rows`.
  template <class T>
  View2<T> partial(View2<T> all, View2<T> rows) const {
    return cuts_tokens_ ? all : rows;
  }
  /// rows [R, N] = this rank's rows of the sum over the ranks of partial(all, rows).
  template <class T>
  void reduce(const Exec& exec, View2<T> rows, View2<T> all, const char* what) const;

  /// x [N, M] becomes the sum of x over the ranks, on all ranks.
  template <class T>
  void sum(const Exec& exec, View2<T> x, const char* what) const;

  /// This rank's rows of `all`.
  template <class T>
  View2<T> own_rows(View2<T> all) const {
    return cuts_tokens_ ? rows_of(all, rows_.offset, rows_.extent) : all;
  }

  /// This rank's rows of a gradient: `x` itself if it has only these rows; a part of `x` if it has
  /// all tokens, as the gradient of partial sums has.
  template <class T>
  View2<T> own_part(View2<T> x) const {
    return static_cast<std::int64_t>(x.extent(0)) == tokens_ ? own_rows(x) : x;
  }

  /// The part of n rows that all ranks have, over which this rank sums the gradients of weights:
  /// all n rows without sequence parallelism.
  layout::Slice own_of_shared(std::int64_t n) const {
    return cuts_tokens_ ? layout::split(n, size_, rank_) : layout::Slice{0, n};
  }

  /// This rank's part of the tokens, with or without sequence parallelism: the part that it sends
  /// to another pipeline stage (Narayanan et al. 2021, arXiv 2104.04473, section 4.1).
  layout::Slice slice() const { return layout::split(tokens_, size_, rank_); }
  /// rows [R, N], gathered from the slices [slice().extent, N] of all ranks; with sequence
  /// parallelism, a copy of `slice`.
  template <class T>
  void gather_slices(const Exec& exec, View2<T> rows, View2<T> slice, const char* what) const;
  /// all [T, N], gathered from the slices of all ranks; `slice` may be `all` on an axis of one
  /// rank.
  template <class T>
  void gather_all(const Exec& exec, View2<T> all, View2<T> slice, const char* what) const;
  /// slice = this rank's slice of the sum of `all` [T, N] over the ranks; `slice` may be `all` on
  /// an axis of one rank.
  template <class T>
  void reduce_to_slice(const Exec& exec, View2<T> slice, View2<T> all, const char* what) const;
  /// This rank's slice of `rows`; `rows` itself with sequence parallelism.
  template <class T>
  View2<T> slice_of(View2<T> rows) const {
    return cuts_tokens_ ? rows : rows_of(rows, slice().offset, slice().extent);
  }

  /// Gathers parts [P, n]: rank r fills row r on entry; all rows are filled on return.
  template <class T>
  void all_gather(const Exec& exec, View2<T> parts, const char* what) const;

 private:
  std::vector<std::int64_t> counts(std::int64_t columns) const;
  bool sends() const { return size_ > 1 && communicator_ != nullptr; }

  grid::Communicator* communicator_ = nullptr;
  int rank_ = 0;
  int size_ = 1;
  std::int64_t tokens_;
  layout::Slice rows_;
  bool cuts_tokens_ = false;
  ContextAxis context_;
  ExpertAxis experts_;
  std::shared_ptr<const TensorAxis> source_;  ///< null without an encoder
};

}  // namespace trireme::model
