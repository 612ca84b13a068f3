#pragma once

#include <trireme/architecture/shard.hpp>
#include <trireme/base/types.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

/// Rows and columns of arrays, for rules that keep one number of each row and of each column
/// (rules::Shape).
namespace trireme::architecture {

/// The matrices of an array: axes before `row` number the matrices, axes before `column` are rows
/// (outputs), and the others are columns (inputs).
struct MatrixAxes {
  std::size_t row = 0;
  std::size_t column = 0;
};
/// By number of the array; meaningless for arrays without matrices.
std::vector<MatrixAxes> matrix_axes(const Architecture& architecture);

/// Global shape of the state of an array's rows or columns.
std::vector<std::int64_t> factor_shape(const std::vector<std::int64_t>& shape,
                                       const MatrixAxes& axes, rules::Shape of);

/// A local array with matrices, and the places of the state of its rows and columns. Every rank has
/// the state of all rows and columns of its arrays.
struct FactoredArray {
  std::size_t local = 0;                             ///< index in the list of local arrays
  std::int64_t matrices = 0, rows = 0, columns = 0;  ///< of the global array
  std::int64_t local_rows = 0, local_columns = 0;    ///< of a matrix in the local array
  std::int64_t first_matrix = 0, first_row = 0, first_column = 0;  ///< of the local array
  std::int64_t row_state = 0;     ///< place of the first row in the state of rows
  std::int64_t column_state = 0;  ///< place of the first column in the state of columns
};

struct Factors {
  std::vector<FactoredArray> arrays;
  std::int64_t rows = 0;     ///< elements of the state of rows
  std::int64_t columns = 0;  ///< elements of the state of columns

  /// Numbers of the sums of squares of all rows and columns: kernels::sum_squares.
  std::int64_t sums() const { return 3 * (rows + columns); }
  Bytes sum_bytes() const { return sums() * 8; }
};
/// Trained arrays with matrices of `matrices`; none unless a rule has state of rows.
Factors factors(const Architecture& architecture, const std::vector<RankArray>& arrays,
                const deck::OptimizerConfig& optimizer);

}  // namespace trireme::architecture
