#pragma once

#include <trireme/kernels/handle.hpp>
#include <trireme/tensor/views.hpp>

#include <cstdint>

/// Root mean square normalisation (norm.hpp) of all queries of a token together, and of all its
/// keys, as in OLMo 2 (OLMo Team 2025, arXiv 2501.00656, section 3.2). Tensor ranks divide the
/// columns: the caller sums the squares and the products over the ranks before it calls the next
/// kernel. Statistics and sums are in Accumulate<T>. Asynchronous on exec; instantiated for float,
/// double, Bf16 and Fp16.
namespace trireme::kernels {

/// Rows are [queries | keys | columns left unchanged]. A rank may have no queries or keys.
struct WidthNorm {
  std::int64_t queries = 0;      ///< Nq, columns of queries on this rank
  std::int64_t keys = 0;         ///< Nk, columns of keys on this rank
  std::int64_t all_queries = 0;  ///< columns of queries on all ranks together
  std::int64_t all_keys = 0;     ///< columns of keys on all ranks together, each counted once
  /// Number of first columns of keys that a lower rank also has, and counts in the sums of squares.
  std::int64_t counted_elsewhere = 0;
  double epsilon = 1e-6;
  double gain_offset = 0;  ///< added to the gains; 1 if gains are stored minus 1

  std::int64_t columns() const { return queries + keys; }
};

/// squares[0, t] = Σ x[t, c]² over the rank's columns of queries, squares[1, t] over the columns of
/// keys that this rank counts. raw = the columns of queries and keys. x [T, N], N ≥ Nq + Nk; raw
/// [T, Nq + Nk]; squares [2, T].
template <class T>
void width_norm_squares(const Exec& exec, View2<Accumulate<T>> squares, View2<T> raw,
                        View2<const T> x, const WidthNorm& norm);

/// inverse_rms[p, t] = 1 / sqrt(squares[p, t] / columns on all ranks + epsilon), in place, with p =
/// 0 for queries and 1 for keys. inverse_rms [2, T]: on entry, the sums of squares of all ranks.
template <class T>
void width_norm_factors(const Exec& exec, View2<Accumulate<T>> inverse_rms, const WidthNorm& norm);

/// x[t, c] = (offset + gain[c]) x[t, c] inverse_rms[p, t], in place, with p as in
/// width_norm_factors. x [T, N]; inverse_rms [2, T]; gain_query [Nq]; gain_key [Nk].
template <class T>
void width_norm_forward(const Exec& exec, View2<T> x, View2<const Accumulate<T>> inverse_rms,
                        View1<const T> gain_query, View1<const T> gain_key, const WidthNorm& norm);

/// products[p, t] = Σ g[t, c] xhat[t, c] over the queries (p = 0) or keys (p = 1) of this rank,
/// with g = (offset + gain) dy and xhat = raw inverse_rms. dy may be this rank's part of the
/// gradient of columns that several ranks have. products, inverse_rms [2, T]; dy [T, N]; raw [T, Nq
/// + Nk].
template <class T>
void width_norm_products(const Exec& exec, View2<Accumulate<T>> products, View2<const T> dy,
                         View2<const T> raw, View2<const Accumulate<T>> inverse_rms,
                         View1<const T> gain_query, View1<const T> gain_key, const WidthNorm& norm);

/// dx = inverse_rms (g − xhat products / columns on all ranks), in place: dx [T, N] contains dy.
/// products [2, T]: the sums over all ranks. Columns that another rank counts receive only
/// inverse_rms g, so that the sum over the ranks is the gradient.
template <class T>
void width_norm_backward_input(const Exec& exec, View2<T> dx, View2<const T> raw,
                               View2<const Accumulate<T>> inverse_rms,
                               View2<const Accumulate<T>> products, View1<const T> gain_query,
                               View1<const T> gain_key, const WidthNorm& norm);

/// dgain[c] += Σ_t dy[t, c] xhat[t, c], in a fixed order. Call this function before
/// width_norm_backward_input, which overwrites dy. dgain_query [Nq]; dgain_key [Nk].
template <class T>
void width_norm_backward_weight(const Handle& handle, View1<Accumulate<T>> dgain_query,
                                View1<Accumulate<T>> dgain_key, View2<const T> dy,
                                View2<const T> raw, View2<const Accumulate<T>> inverse_rms,
                                const WidthNorm& norm);

}  // namespace trireme::kernels
