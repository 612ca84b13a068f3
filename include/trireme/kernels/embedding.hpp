#pragma once

#include <trireme/layout/token_places.hpp>
#include <trireme/tensor/views.hpp>

#include <cstdint>

/// Kernels that look up rows: the embedding, and selected rows of a matrix. Token ids must be in
/// [0, V); the kernels do not check them. The table may be split into parts; one part holds the ids
/// [first_id, first_id + Vl). The rows of x may also be split: row r of a part is row first_row + r
/// of all rows. Row 0 of all rows begins a sample. Parts may be empty. Asynchronous on exec;
/// instantiated for float, double, Bf16 and Fp16.
namespace trireme::kernels {

/// x[t] = table[tokens[t] − first_id] if this part of the table holds the id, otherwise 0. The sum
/// of x over all parts is the look-up in the whole table. x [T,D], tokens [T], table [Vl,D].
template <class T>
void embedding_lookup(const Exec& exec, View2<T> x, View1<const std::int32_t> tokens,
                      View2<const T> table, std::int64_t first_id);

/// x[r] += positions[p], where p = places.position((first_row + r) mod n) is the position of row r
/// in its sample, and n = `sequence` is the number of a sample's tokens on this rank. x [R,D],
/// positions [S,D].
template <class T>
void add_positions(const Exec& exec, View2<T> x, View2<const T> positions, std::int64_t sequence,
                   std::int64_t first_row, const layout::TokenPlaces& places = {});

/// x[r] += table[positions[r]]. x [R,D], table [S,D], positions [R].
template <class T>
void add_positions(const Exec& exec, View2<T> x, View2<const T> table,
                   View1<const std::int32_t> positions);

/// dtable[v] += sum of dx[t] over all t with tokens[t] = first_id + v, in the order of t. dtable
/// [Vl,D], dx [T,D], tokens [T].
template <class T>
void embedding_lookup_backward(const Exec& exec, View2<Accumulate<T>> dtable, View2<const T> dx,
                               View1<const std::int32_t> tokens, std::int64_t first_id);

/// dpositions[s] += sum of dx[r] over all rows r whose position is s (see add_positions), in the
/// order of r. dpositions [S,D], dx [R,D].
template <class T>
void positions_backward(const Exec& exec, View2<Accumulate<T>> dpositions, View2<const T> dx,
                        std::int64_t sequence, std::int64_t first_row,
                        const layout::TokenPlaces& places = {});

/// x[r] += table[segments[first_row + r]]; segments are 0 or 1. x [R,D], table [2,D], segments [T].
template <class T>
void add_segments(const Exec& exec, View2<T> x, View2<const T> table,
                  View1<const std::int32_t> segments, std::int64_t first_row);

/// dtable[s] += sum of dx[r] over all r with segments[first_row + r] = s, in a fixed order. dtable
/// [2,D], dx [R,D], segments [T].
template <class T>
void segments_backward(const Exec& exec, View2<Accumulate<T>> dtable, View2<const T> dx,
                       View1<const std::int32_t> segments, std::int64_t first_row);

/// y[q] = x[rows[q] − first_row] if x holds this row of a matrix, of which x is the part
/// [first_row, first_row + R); otherwise 0. The sum of y[q] over all parts is row rows[q] of the
/// matrix. y [Q,D], x [R,D], rows [Q].
template <class T>
void pick_rows(const Exec& exec, View2<T> y, View2<const T> x, View1<const std::int32_t> rows,
               std::int64_t first_row);

/// x[rows[q] − first_row] = y[q] if x holds the row; other rows of x stay unchanged. If these are
/// 0, this is the backward pass of pick_rows. x [R,D], y [Q,D], rows [Q], all different.
template <class T>
void place_rows(const Exec& exec, View2<T> x, View2<const T> y, View1<const std::int32_t> rows,
                std::int64_t first_row);

}  // namespace trireme::kernels
