#pragma once

#include <trireme/tensor/views.hpp>

#include <cstdint>

/// Kernels over the vocabulary: embedding and cross entropy. Token ids lie in [0, V): whoever reads
/// tokens checks that. Asynchronous on exec; instantiated for float and double.
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

/// result[0] += values[0] + ... + values[n-1], in an order fixed by n. result [1], values [n].
void sum_ordered(const Exec& exec, View1<double> result, View1<const double> values);

}  // namespace trireme::kernels
