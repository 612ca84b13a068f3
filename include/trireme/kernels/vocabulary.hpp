#pragma once

#include <trireme/tensor/views.hpp>

#include <cstdint>

/// Kernels over the vocabulary: embedding and cross entropy. Token ids lie in [0, V): whoever reads
/// tokens checks that. The vocabulary may be held in parts, of which one holds the ids [first_id,
/// first_id + Vl); a part may be empty. Asynchronous on exec; instantiated for float and double.
namespace trireme::kernels {

/// x[t] = table[tokens[t]] + positions[t mod S]. x [T,D], tokens [T], table [V,D], positions [S,D];
/// row 0 begins a sequence of S = `sequence` tokens.
template <class T>
void embedding_forward(const Exec& exec, View2<T> x, View1<const std::int32_t> tokens,
                       View2<const T> table, View2<const T> positions, std::int64_t sequence);

/// dtable[v] += sum of dx[t] over tokens[t] = v, dpositions[s] += sum of dx[t] over t mod S = s,
/// both in the order of t. dtable [V,D], dpositions [S,D], dx [T,D], tokens [T].
template <class T>
void embedding_backward(const Exec& exec, View2<Accumulate<T>> dtable,
                        View2<Accumulate<T>> dpositions, View2<const T> dx,
                        View1<const std::int32_t> tokens, std::int64_t sequence);

/// x[t] = table[tokens[t] - first_id] where that row is held here, else 0: summed over all parts of
/// the table it is the look-up. x [T,D], tokens [T], table [Vl,D].
template <class T>
void embedding_lookup(const Exec& exec, View2<T> x, View1<const std::int32_t> tokens,
                      View2<const T> table, std::int64_t first_id);

/// x[r] += positions[(first_row + r) mod S]. x [R,D], positions [S,D], S = `sequence`. After
/// embedding_lookup of a whole table it gives the bits of embedding_forward.
template <class T>
void add_positions(const Exec& exec, View2<T> x, View2<const T> positions, std::int64_t sequence,
                   std::int64_t first_row);

/// dtable[v] += sum of dx[t] over tokens[t] = first_id + v, in the order of t. dtable [Vl,D], dx
/// [T,D], tokens [T].
template <class T>
void embedding_lookup_backward(const Exec& exec, View2<Accumulate<T>> dtable, View2<const T> dx,
                               View1<const std::int32_t> tokens, std::int64_t first_id);

/// dpositions[s] += sum of dx[r] over (first_row + r) mod S = s, in the order of r. dpositions
/// [S,D], dx [R,D], S = `sequence`.
template <class T>
void positions_backward(const Exec& exec, View2<Accumulate<T>> dpositions, View2<const T> dx,
                        std::int64_t sequence, std::int64_t first_row);

/// loss[r] = log sum_v exp(logits[r,v]) - logits[r,targets[r]], in nats. loss, targets [R], logits
/// [R,V]. One pass: sums relative to a running maximum (Milakov and Gimelshein 2018, arXiv
/// 1805.02867, algorithm 3, by chunks).
template <class T>
void cross_entropy_forward(const Exec& exec, View1<double> loss, View2<const T> logits,
                           View1<const std::int32_t> targets);

/// The same loss, and logits[r,v] becomes its gradient, scale (softmax(logits[r])[v] - (v ==
/// targets[r])). Two passes. `scale` is one over the number of tokens in the mean, times a loss
/// scale.
template <class T>
void cross_entropy_forward_backward(const Exec& exec, View1<double> loss, View2<T> logits,
                                    View1<const std::int32_t> targets, double scale);

// ---- Cross entropy of a vocabulary in parts: of each row three numbers travel, never the logits
// (Narayanan et al. 2021, arXiv 2104.04473, section 2.3; Shoeybi et al. 2019, arXiv 1909.08053).

/// statistics[r] = {largest logit of this part, sum of exp(logit - largest), the target's logit}.
/// Without logits, or with masked ones (-infinity) only, the first two are -infinity and 0; the
/// target's logit is -infinity where another part holds it. statistics [R,3], logits [R,Vl],
/// targets [R] global ids.
template <class T>
void cross_entropy_statistics(const Exec& exec, View2<double> statistics, View2<const T> logits,
                              View1<const std::int32_t> targets, std::int64_t first_id);

/// Merges the statistics of all parts, in their order: loss[r] = log sum_v exp(logits[r,v]) -
/// logits[r,targets[r]], and merged[r] = {largest, sum, target's logit} of the whole row. loss [R],
/// merged [R,3], parts [P,R,3]; merged does not overlap parts.
void cross_entropy_merge(const Exec& exec, View1<double> loss, View2<double> merged,
                         View3<const double> parts);

/// logits[r,v] becomes its gradient, scale (softmax - (first_id + v == targets[r])), in one pass.
/// With one part the three kernels give the bits of cross_entropy_forward_backward on hosts. logits
/// [R,Vl], merged [R,3], targets [R].
template <class T>
void cross_entropy_gradient(const Exec& exec, View2<T> logits, View2<const double> merged,
                            View1<const std::int32_t> targets, std::int64_t first_id, double scale);

/// result[0] += values[0] + ... + values[n-1], in an order fixed by n. result [1], values [n].
void sum_ordered(const Exec& exec, View1<double> result, View1<const double> values);

}  // namespace trireme::kernels
