#pragma once

#include <trireme/tensor/views.hpp>

#include <cstdint>

/// Selected rows of a matrix. The matrix may be split into parts; one part holds the rows
/// [first_row, first_row + R) of the matrix. Asynchronous on exec; instantiated for float, double,
/// Bf16 and Fp16.
namespace trireme::kernels {

/// y[q] = x[rows[q] − first_row] if this part holds the row, otherwise 0. The sum of y over all
/// parts is row rows[q] of the matrix. y [Q,D], x [R,D], rows [Q].
template <class T>
void pick_rows(const Exec& exec, View2<T> y, View2<const T> x, View1<const std::int32_t> rows,
               std::int64_t first_row);

/// x[rows[q] − first_row] = y[q] if this part holds the row; other rows of x stay unchanged. If
/// these are 0, this is the backward pass of pick_rows. x [R,D], y [Q,D], rows [Q], all different.
template <class T>
void place_rows(const Exec& exec, View2<T> x, View2<const T> y, View1<const std::int32_t> rows,
                std::int64_t first_row);

}  // namespace trireme::kernels
