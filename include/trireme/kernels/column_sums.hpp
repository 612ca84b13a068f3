#pragma once

#include <trireme/base/matmul_memory.hpp>
#include <trireme/tensor/views.hpp>

#include <cstdint>

namespace trireme::kernels {

/// sum[n] += Σ_t x[t,n], in an order that depends on T and N alone. sum [N], x [T,N]. On devices it
/// uses the column sums' part of exec's workspace (matmul_workspace.hpp).
template <class T>
void add_column_sums(const Exec& exec, View1<Accumulate<T>> sum, View2<const T> x);

/// How a device cuts the rows of a matrix whose columns it sums: `count` slices of `rows` rows, the
/// last one perhaps fewer.
struct ColumnSlices {
  std::int64_t count;
  std::int64_t rows;

  /// Partial sums that are kept; none of a single slice.
  std::int64_t partial_elements(std::int64_t columns) const {
    return count > 1 ? count * columns : 0;
  }
};

/// As many slices as give column_sum_threads threads a column of a slice each, of 32 rows or more.
ColumnSlices column_slices(std::int64_t rows, std::int64_t columns);

/// add_column_sums as devices do it, on two levels: a thread per column of a slice, so that
/// neighbours read neighbours; then a team per column adds the slices. partial: at least
/// column_slices(T, N).partial_elements(N), overwritten.
template <class T>
void add_column_sums_by_slices(const Exec& exec, View1<Accumulate<T>> sum, View2<const T> x,
                               View1<Accumulate<T>> partial);

}  // namespace trireme::kernels
