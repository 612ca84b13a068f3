#pragma once

#include <trireme/base/check.hpp>
#include <trireme/base/kernel_memory.hpp>
#include <trireme/kernels/lanes.hpp>
#include <trireme/tensor/views.hpp>

#include <algorithm>
#include <cstdint>

/// Sums over a matrix's rows on devices, in two levels, in an order that depends only on the shape.
namespace trireme::kernels {

/// A matrix's rows as `count` slices of `rows` rows each; the last slice may have fewer.
struct ColumnSlices {
  std::int64_t count;
  std::int64_t rows;

  /// Number of partial sums; 0 if there is at most one slice.
  std::int64_t partial_elements(std::int64_t columns) const {
    return count > 1 ? count * columns : 0;
  }
};

/// Divides the rows into about column_sum_threads / columns slices, at least 1 and at most ⌈rows /
/// 32⌉. {0, 0} for an empty matrix.
ColumnSlices column_slices(std::int64_t rows, std::int64_t columns);

namespace detail {

/// One thread sums a column of a slice.
template <class Sum, int kinds, class Term>
struct SliceSums {
  Term term;
  Kokkos::Array<Sum*, kinds> to;
  Sum* parts;  ///< [kinds, columns, count]
  std::int64_t rows, columns, count, each;

  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    const std::int64_t slice = i / columns;
    const std::int64_t n = i - slice * columns;
    const std::int64_t end = (slice + 1) * each < rows ? (slice + 1) * each : rows;
    Sum total[kinds] = {};
    std::int64_t t = slice * each;
    for (; t + 8 <= end; t += 8) {
      Sum v[8][kinds];
      for (int k = 0; k < 8; ++k) term(t + k, n, v[k]);
      for (int s = 0; s < kinds; ++s)
        total[s] += ((v[0][s] + v[1][s]) + (v[2][s] + v[3][s])) +
                    ((v[4][s] + v[5][s]) + (v[6][s] + v[7][s]));
    }
    for (; t < end; ++t) {
      Sum v[kinds];
      term(t, n, v);
      for (int s = 0; s < kinds; ++s) total[s] += v[s];
    }
    for (int s = 0; s < kinds; ++s) {
      if (count == 1)
        to[static_cast<std::size_t>(s)][n] += total[s];
      else
        parts[(s * columns + n) * count + slice] = total[s];
    }
  }
};

/// One team sums the slices of a column and adds the sum to `to`.
template <class Sum, int kinds>
struct SumOfSlices {
  Kokkos::Array<Sum*, kinds> to;
  const Sum* parts;
  std::int64_t columns, count;

  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t n) const {
    for (int s = 0; s < kinds; ++s) {
      const Sum* column = parts + (s * columns + n) * count;
      const Sum total =
          sum_lanes<Sum>(team, count, [&](std::int64_t slice) { return column[slice]; });
      once(team, [&]() { to[static_cast<std::size_t>(s)][n] += total; });
    }
  }
};

}  // namespace detail

/// to[s][n] += Σ_t v[s] for all rows t and columns n of a matrix, where term(t, n, v) sets the
/// `kinds` values v[s]. `term` is a class with `KOKKOS_FUNCTION void operator()(std::int64_t t,
/// std::int64_t n, Sum* v) const`. Launches a kernel `label_of_slices` and, if there are several
/// slices, a kernel `label`. partial: at least column_slices(rows, kinds ·
/// columns).partial_elements(kinds · columns) elements, overwritten.
template <class Sum, int kinds, class Term>
void sum_by_slices(const char* label, const char* label_of_slices, const Exec& exec,
                   const Kokkos::Array<Sum*, kinds>& to, std::int64_t rows, std::int64_t columns,
                   const Term& term, View1<Sum> partial) {
  const ColumnSlices slices = column_slices(rows, kinds * columns);
  if (slices.count == 0) return;
  const std::int64_t room = slices.partial_elements(kinds * columns);
  check(extent(partial, 0) >= room, label, ": room for ", extent(partial, 0),
        " partial sums, expected ", room);
  Kokkos::parallel_for(label_of_slices, HostPolicy(exec, 0, slices.count * columns),
                       detail::SliceSums<Sum, kinds, Term>{term, to, partial.data(), rows, columns,
                                                           slices.count, slices.rows});
  if (slices.count > 1)
    for_rows(label, exec, columns,
             detail::SumOfSlices<Sum, kinds>{to, partial.data(), columns, slices.count});
}

}  // namespace trireme::kernels
