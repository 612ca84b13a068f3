// Sums of squares of rows and columns, and the functions that use them.
#include <trireme/kernels/factored.hpp>

#include <trireme/kernels/elementwise.hpp>
#include <trireme/kernels/rule_launch.hpp>
#include <trireme/tensor/expect.hpp>

#include <type_traits>

namespace trireme::kernels {
namespace detail {

/// The last array whose `first` is at most `at`.
KOKKOS_FORCEINLINE_FUNCTION const FactoredMatrices& array_at(
    const FactoredMatrices* arrays, std::int64_t count, std::int64_t at,
    std::int64_t FactoredMatrices::*first) {
  std::int64_t found = 0;
  for (std::int64_t end = count; end - found > 1;) {
    const std::int64_t middle = (found + end) / 2;
    if (arrays[middle].*first <= at)
      found = middle;
    else
      end = middle;
  }
  return arrays[found];
}

/// Terms of a square, largest first: see sum_squares().
constexpr int terms = 3;
constexpr double first_unit = 1125899906842624.0, next_unit = 67108864.0;  // 2^50, 2^26

/// Term `term` of y².
KOKKOS_FORCEINLINE_FUNCTION double term_of_square(double y, int term) {
  double rest = y * y * first_unit;
  double whole = math::floor(rest);
  for (int i = 0; i < term; ++i) {
    rest = (rest - whole) * next_unit;
    whole = math::floor(rest);
  }
  return whole;
}

/// The sum of squares from the sums of terms, `stride` elements apart.
KOKKOS_FORCEINLINE_FUNCTION double sum_of_terms(const double* sums, std::int64_t stride,
                                                double scale) {
  const double sum = sums[0] + (sums[stride] + sums[2 * stride] / next_unit) / next_unit;
  return sum / first_unit / scale / scale;
}

/// The first range of an array that ends after `element`.
KOKKOS_FORCEINLINE_FUNCTION std::int64_t first_range(const FactoredMatrices& a,
                                                     const SummedRange* ranges,
                                                     std::int64_t element) {
  std::int64_t found = a.first_range;
  for (std::int64_t left = a.ranges; left > 0;) {
    const std::int64_t half = left / 2;
    if (ranges[found + half].end <= element) {
      found += half + 1;
      left -= half + 1;
    } else {
      left = half;
    }
  }
  return found;
}

/// Sum of one local row.
template <class Real>
struct RowSquares {
  const FactoredMatrices* arrays;
  std::int64_t count;
  const SummedRange* ranges;
  const Real* gradient;
  const double* control;
  double* sums;
  std::int64_t stride;  ///< of the terms of sums

  KOKKOS_FORCEINLINE_FUNCTION void operator()(const Team& team, std::int64_t row) const {
    const FactoredMatrices& a = array_at(arrays, count, row, &FactoredMatrices::first_local_row);
    const std::int64_t of_array = row - a.first_local_row;
    const std::int64_t begin = of_array * a.local_columns, end = begin + a.local_columns;
    const double factor = control[control_clip] * control[control_scale];
    double sum[terms] = {};
    for (std::int64_t r = first_range(a, ranges, begin);
         r < a.first_range + a.ranges && ranges[r].begin < end; ++r) {
      const std::int64_t from = ranges[r].begin > begin ? ranges[r].begin : begin;
      const std::int64_t to = ranges[r].end < end ? ranges[r].end : end;
      const Real* g = gradient + ranges[r].gradient + from - ranges[r].begin;
      for (int term = 0; term < terms; ++term)
        sum[term] += sum_lanes<double>(team, to - from, [&](std::int64_t i) {
          return term_of_square(factor * static_cast<double>(g[i]), term);
        });
    }
    const std::int64_t matrix = of_array / a.local_rows;
    double* to = sums + a.row_state + (a.first_matrix + matrix) * a.rows + a.first_row +
                 of_array % a.local_rows;
    once(team, [&]() {
      for (int term = 0; term < terms; ++term) to[term * stride] = sum[term];
    });
  }
};

/// Sums of a chunk of columns of one matrix.
template <class Real>
struct ColumnSquares {
  const FactoredMatrices* arrays;
  std::int64_t count;
  const SummedRange* ranges;
  const Real* gradient;
  const double* control;
  double* sums;         ///< of columns
  std::int64_t stride;  ///< of the terms of sums

  KOKKOS_FORCEINLINE_FUNCTION void operator()(const Team& team, std::int64_t chunk) const {
    const FactoredMatrices& a =
        array_at(arrays, count, chunk, &FactoredMatrices::first_column_chunk);
    const std::int64_t chunks = (a.local_columns + column_chunk - 1) / column_chunk;
    const std::int64_t of_array = chunk - a.first_column_chunk, matrix = of_array / chunks;
    const std::int64_t first = of_array % chunks * column_chunk;
    const std::int64_t left = a.local_columns - first;
    const std::int64_t columns = left < column_chunk ? left : column_chunk;
    const double factor = control[control_clip] * control[control_scale];
    double* to =
        sums + a.column_state + (a.first_matrix + matrix) * a.columns + a.first_column + first;
    // `to` is 0 at first. Each column belongs to one lane.
    const std::int64_t begin = matrix * a.local_rows * a.local_columns + first;
    std::int64_t r = first_range(a, ranges, begin);
    for (std::int64_t row = 0; row < a.local_rows; ++row) {
      const std::int64_t from = begin + row * a.local_columns, end = from + columns;
      while (r < a.first_range + a.ranges && ranges[r].end <= from) ++r;
      for (std::int64_t k = r; k < a.first_range + a.ranges && ranges[k].begin < end; ++k) {
        const std::int64_t low = ranges[k].begin > from ? ranges[k].begin : from;
        const std::int64_t high = ranges[k].end < end ? ranges[k].end : end;
        const Real* g = gradient + ranges[k].gradient - ranges[k].begin + from;
        for_lanes(team, columns, [&](std::int64_t i) {
          if (from + i < low || from + i >= high) return;
          const double y = factor * static_cast<double>(g[i]);
          for (int term = 0; term < terms; ++term) to[term * stride + i] += term_of_square(y, term);
        });
      }
    }
  }
};

/// Moves the state of the rows and columns of one matrix.
template <class M, class Real>
struct MeanBody {
  const FactoredMatrices* arrays;
  std::int64_t count;
  Real* rows;
  Real* columns;
  const double* row_sums;
  const double* column_sums;
  std::int64_t stride;  ///< of the terms of sums
  double* means;
  rules::Settings settings;
  double learning_rate;
  const double* control;

  KOKKOS_FORCEINLINE_FUNCTION void operator()(const Team& team, std::int64_t matrix) const {
    if (control[control_proceed] == 0) return;
    const FactoredMatrices& a = array_at(arrays, count, matrix, &FactoredMatrices::first_mean);
    const double share =
        M::share(settings, step_of(control, learning_rate, nullptr, UpdateRange{}));
    const double scale = control[control_scale];
    const std::int64_t m = matrix - a.first_mean;
    const std::int64_t row = a.row_state + m * a.rows, column = a.column_state + m * a.columns;
    const auto move = [&](Real* state, const double* sums, std::int64_t n, std::int64_t summands) {
      for_lanes(team, n, [&](std::int64_t i) {
        const double mean = sum_of_terms(sums + i, stride, scale) / static_cast<double>(summands);
        const auto now = static_cast<double>(state[i]);
        state[i] = static_cast<Real>(now + share * (mean - now));
      });
    };
    move(rows + row, row_sums + row, a.rows, a.columns);
    move(columns + column, column_sums + column, a.columns, a.rows);
    team.team_barrier();
    const Real* of_rows = rows + row;
    const double sum = sum_lanes<double>(
        team, a.rows, [&](std::int64_t i) { return static_cast<double>(of_rows[i]); });
    once(team, [&]() { means[matrix] = sum / static_cast<double>(a.rows); });
  }
};

/// Calls F for the elements of a part, row by row.
template <class F, class Real>
struct FactoredBody {
  const FactoredMatrices* arrays;
  Real* gradient;
  const Real* rows;
  const Real* columns;
  const double* means;
  rules::Settings settings;
  double learning_rate;
  const double* control;

  KOKKOS_FORCEINLINE_FUNCTION void operator()(const Team& team, const UpdateRange& part) const {
    if (control[control_proceed] == 0) return;
    const F f(settings, step_of(control, learning_rate, nullptr, part));
    const double least = F::least(settings);
    const FactoredMatrices& a = arrays[part.factored];
    for (std::int64_t done = 0; done < part.elements;) {
      const std::int64_t local = part.local + done, column = local % a.local_columns;
      const std::int64_t rest = a.local_columns - column, left = part.elements - done;
      const std::int64_t n = left < rest ? left : rest;
      const std::int64_t row = local / a.local_columns;
      const std::int64_t m = a.first_matrix + row / a.local_rows;
      const double mean = means[a.first_mean + m];
      const auto r = static_cast<Real>(
          static_cast<double>(rows[a.row_state + m * a.rows + a.first_row + row % a.local_rows]) /
          (mean > least ? mean : least));
      const Real* c = columns + a.column_state + m * a.columns + a.first_column + column;
      Real* g = gradient + part.gradient + done;
      for_lanes(team, n, [&](std::int64_t i) { f(g[i], r, c[i]); });
      done += n;
    }
  }
};

}  // namespace detail

template <class Real>
void sum_squares(const Exec& exec, const FactorViews<Real>& views, View1<const Real> gradient,
                 View1<const double> control, const FactoredTable& table) {
  expect_shape(control, "control", {control_size});
  const std::int64_t rows = extent(views.rows, 0), stride = rows + extent(views.columns, 0);
  expect_shape(views.sums, "sums", {detail::terms * stride});
  fill<double>(exec, views.sums, 0.0);
  const std::int64_t count = extent(table.arrays, 0);
  for_rows("kernels/sum_squares_rows", exec, table.rows,
           detail::RowSquares<Real>{table.arrays.data(), count, table.ranges.data(),
                                    gradient.data(), control.data(), views.sums.data(), stride});
  for_rows(
      "kernels/sum_squares_columns", exec, table.column_chunks,
      detail::ColumnSquares<Real>{table.arrays.data(), count, table.ranges.data(), gradient.data(),
                                  control.data(), views.sums.data() + rows, stride});
}

template <class Real>
void move_means(const Exec& exec, int number, const FactorViews<Real>& views,
                const UpdateStep& step, const FactoredTable& table) {
  expect_shape(views.means, "means", {table.matrices});
  detail::visit_pass(step.kind, number, [&]<class Pass>(std::type_identity<Pass>) {
    if constexpr (requires { typename Pass::Moving; })
      for_rows(
          Pass::Moving::label, exec, table.matrices,
          detail::MeanBody<typename Pass::Moving, Real>{
              table.arrays.data(), extent(table.arrays, 0), views.rows.data(), views.columns.data(),
              views.sums.data(), views.sums.data() + extent(views.rows, 0),
              extent(views.rows, 0) + extent(views.columns, 0), views.means.data(), step.settings,
              step.learning_rate, step.control.data()});
  });
}

template <class Real>
void factored_pass(const Exec& exec, int number, View1<Real> gradient,
                   const FactorViews<Real>& views, const UpdateStep& step,
                   const FactoredTable& table, const UpdateRanges& parts) {
  detail::visit_pass(step.kind, number, [&]<class Pass>(std::type_identity<Pass>) {
    if constexpr (requires { Pass::template Function<Real>::least(step.settings); }) {
      using F = typename Pass::template Function<Real>;
      for_parts(F::label, exec, parts,
                detail::FactoredBody<F, Real>{
                    table.arrays.data(), gradient.data(), views.rows.data(), views.columns.data(),
                    views.means.data(), step.settings, step.learning_rate, step.control.data()});
    }
  });
}

#define TRIREME_INSTANTIATE(Real)                                                               \
  template void sum_squares<Real>(const Exec&, const FactorViews<Real>&, View1<const Real>,     \
                                  View1<const double>, const FactoredTable&);                   \
  template void move_means<Real>(const Exec&, int, const FactorViews<Real>&, const UpdateStep&, \
                                 const FactoredTable&);                                         \
  template void factored_pass<Real>(const Exec&, int, View1<Real>, const FactorViews<Real>&,    \
                                    const UpdateStep&, const FactoredTable&, const UpdateRanges&)
TRIREME_INSTANTIATE(float);
TRIREME_INSTANTIATE(double);
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
