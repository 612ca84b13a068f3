#pragma once

#include <trireme/kernels/update_rules.hpp>

#include <cstdint>

/// Passes of rules that keep one number of each row and of each column of a matrix (rules::Means,
/// rules::Factored). Asynchronous on exec; instantiated for float and double.
namespace trireme::kernels {

/// The matrices of a rank's array: architecture::FactoredArray, and the parts of the array that
/// this rank adds to sums.
struct FactoredMatrices {
  std::int64_t local_rows = 0, local_columns = 0;  ///< of a matrix in the rank's array
  std::int64_t rows = 0, columns = 0;              ///< of a whole matrix
  std::int64_t first_matrix = 0, first_row = 0, first_column = 0;  ///< of the rank's array
  std::int64_t row_state = 0, column_state = 0;  ///< places in the state of rows and of columns
  std::int64_t matrices = 0;                     ///< number of whole matrices
  std::int64_t first_mean = 0;  ///< number of whole matrices of all previous arrays
  std::int64_t local_matrices = 0;
  std::int64_t first_local_row = 0;     ///< number of local rows of all previous arrays
  std::int64_t first_column_chunk = 0;  ///< number of chunks of local columns of previous arrays
  std::int64_t first_range = 0, ranges = 0;  ///< the array's entries in FactoredTable::ranges
};

/// Elements [begin, end) of a rank's array that this rank adds to sums, and their gradients.
struct SummedRange {
  std::int64_t begin = 0, end = 0;
  std::int64_t gradient = 0;  ///< offset of the gradient of `begin`
};

/// Number of columns that one team sums.
inline constexpr std::int64_t column_chunk = 64;

struct FactoredTable {
  View1<const FactoredMatrices> arrays;
  View1<const SummedRange> ranges;  ///< of all arrays; ascending in each array
  std::int64_t rows = 0;            ///< local rows of all arrays
  std::int64_t column_chunks = 0;   ///< chunks of local columns of all arrays
  std::int64_t matrices = 0;        ///< whole matrices of all arrays
};

/// State of rows and columns, equal on all ranks with parts of the arrays.
template <class Real>
struct FactorViews {
  View1<Real> rows, columns;
  /// [3, rows + columns] sums of squares over this rank's parts, then over all parts.
  View1<double> sums;
  View1<double> means;  ///< [matrices] means of the rows' state
};

/// sums = Σ (clip gradient)² of each row and each column, over the ranges of the table. Other
/// elements of `sums` are 0. Sums are exact, so that no order and no division of arrays changes
/// them: a square y² ≤ 1/4, with y = control_scale clip gradient, is a 2^−50 + b 2^−76 + c 2^−102 +
/// a rest that is dropped, with integers a, b < 2^26 and c < 2^26, and sums[0], sums[1] and sums[2]
/// are the sums of a, b and c. They are exact in double precision for up to 2^27 summands, because
/// the squares of a model's whole gradient are at most 1/4 together.
template <class Real>
void sum_squares(const Exec& exec, const FactorViews<Real>& views, View1<const Real> gradient,
                 View1<const double> control, const FactoredTable& table);

/// Moves the state towards sums / number of summands, by the share of the rule's pass `number`, and
/// finds the means of the rows' state.
template <class Real>
void move_means(const Exec& exec, int number, const FactorViews<Real>& views,
                const UpdateStep& step, const FactoredTable& table);

/// Calls the function of the rule's pass `number` for each element (rules::Factored).
template <class Real>
void factored_pass(const Exec& exec, int number, View1<Real> gradient,
                   const FactorViews<Real>& views, const UpdateStep& step,
                   const FactoredTable& table, const UpdateRanges& parts);

}  // namespace trireme::kernels
