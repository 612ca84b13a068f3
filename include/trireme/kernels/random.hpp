#pragma once

#include <trireme/base/philox.hpp>
#include <trireme/tensor/views.hpp>

#include <cstdint>

/// Random initial values of global arrays; each rank fills its slice. An element depends only on
/// `key` and its index in the global array. Element i of a normal array is sqrt(−2 ln u) cos(2π v)
/// standard_deviation, with u and v from words 2i and 2i + 1 of the random array `key` (Box and
/// Muller 1958), computed in double. Asynchronous on exec; instantiated for float, double, Bf16 and
/// Fp16.
namespace trireme::kernels {

/// x receives the elements [first_index, first_index + n) of the global array. x [n].
template <class T>
void normal_fill(const Exec& exec, View1<T> x, const RandomKey& key, double standard_deviation,
                 std::int64_t first_index);

/// x [outer, rows, inner] receives the elements [first_outer, …) × [first_row, …) of a global array
/// [≥ first_outer + outer, global_rows, inner]: any array that is divided along one dimension, or
/// along this one and its first dimension.
template <class T>
void normal_fill(const Exec& exec, View3<T> x, const RandomKey& key, double standard_deviation,
                 std::int64_t global_rows, std::int64_t first_row, std::int64_t first_outer = 0);

/// Uniform values in ±bound, with x as in the second normal_fill: element i of the global array is
/// bound (2 u − 1), with u from word i.
template <class T>
void uniform_fill(const Exec& exec, View3<T> x, const RandomKey& key, double bound,
                  std::int64_t global_rows, std::int64_t first_row, std::int64_t first_outer = 0);

/// Fills the operand of a measurement: x[i] = element (i mod 2^22) of normal array `number`, of
/// variance 1. With constant operands, a device would run faster than in training. x [n].
template <class T>
void fill_operand(const Exec& exec, View1<T> x, std::uint32_t number);

}  // namespace trireme::kernels
