#pragma once

#include <trireme/layout/split.hpp>
#include <trireme/tensor/views.hpp>

#include <cstdint>
#include <functional>

/// Mixture of experts (Shazeer et al. 2017, arXiv 1701.06538): each of T tokens chooses k of E
/// experts. A rank holds the contiguous experts `held` and computes their results for all T tokens.
/// A route is a choice of an expert by a token; route t·k + j is the j-th choice of token t.
///
/// `routes` [T, 2k] holds per token the k weights and then the k numbers of its experts, ascending,
/// stored as floating-point numbers. Kernels that list routes leave out dropped ones, whose numbers
/// are negative. Asynchronous on exec. Templates of A are instantiated for
/// float and double, templates of T for float, double, Bf16 and Fp16.
namespace trireme::kernels {

/// Factor of the gradients of a loss: `weight`, times the number in `scale` [1] unless it is empty.
struct LossScale {
  double weight = 1;
  View1<const double> scale;

  KOKKOS_FUNCTION double operator()() const {
    return scale.extent(0) == 0 ? weight : weight * scale(0);
  }
};

/// How tokens choose experts.
struct ExpertChoice {
  std::int64_t active = 1;         ///< k, number of experts per token
  bool normalised = true;          ///< whether the weights of a token's experts sum to `scale`
  bool sigmoid = false;            ///< scores are sigmoids of the logits instead of their softmax
  double scale = 1;                ///< factor of the weights
  std::int64_t groups = 1;         ///< equal groups of neighbouring experts, at most most_groups
  std::int64_t active_groups = 1;  ///< groups from which a token chooses
  static constexpr std::int64_t most_groups = 64;
};

/// scores = softmax(scores) per row, in place: logits of the router on entry, probabilities on
/// return. The experts of a token are those of its k largest logits; of equal logits the lower
/// number wins, and a NaN counts as +∞, so that it reaches the weights. The weight of a chosen
/// expert e is exp(l_e − max l) / Σ exp(l_i − max l). If normalised, the sum is over the chosen i,
/// in ascending order (Jiang et al. 2024, arXiv 2401.04088, section 2.1: the softmax of the chosen
/// logits); otherwise it is over all i, and the weight is the probability. routes [T, 2k], scores
/// [T, E], k ≤ E.
///
/// With sigmoid scores, several groups or a bias, the choice is by score + bias: first the groups
/// with the largest sums of their two largest values, then the experts of these groups with the
/// largest values. The weight of a chosen expert is its score without the bias, if normalised
/// divided by the sum of the chosen scores. All weights are multiplied by the scale (DeepSeek-AI
/// 2024, arXiv 2412.19437, section 2.1.2). bias [E], or empty.
template <class A, class B = A>
void choose_experts(const Exec& exec, View2<A> routes, View2<A> scores, View1<const B> bias,
                    const ExpertChoice& choice);

/// Function that tests set in order to see the fp64 choices of a run: called after each
/// choose_experts<double> with its results and arguments, after a wait.
using ChoiceObserver = std::function<void(View2<const double> routes, View2<const double> scores,
                                          View1<const double> bias, const ExpertChoice& choice)>;
ChoiceObserver& choice_observer();

/// Gradient of choose_experts with respect to the logits l, with the choice held fixed. With
/// weights w_j, their gradients dw_j and s = Σ_j w_j dw_j / scale in ascending order of j, dl = w_j
/// (dw_j − s) for chosen experts. For the others, dl = 0 if normalised, otherwise dl_i = −s scale
/// scores_i. With sigmoid scores, dl is 0 for the others. Overwrites dlogits [T, E]. droutes [T,
/// 2k]: columns [0, k) hold dw, the others are not read. routes [T, 2k] and scores [T, E] are the
/// results of choose_experts. No overlap.
template <class A>
void choose_experts_backward(const Exec& exec, View2<A> dlogits, View2<const A> droutes,
                             View2<const A> routes, View2<const A> scores,
                             const ExpertChoice& choice);

/// sums[r] = log Σ_e exp(logits[r, e]). sums [T], logits [T, E].
template <class A>
void log_sums_of_exponentials(const Exec& exec, View1<A> sums, View2<const A> logits);

/// Number in `routes` of a token that chooses no expert: a row of padding.
inline constexpr std::int64_t no_expert = -(std::int64_t{1} << 24);

/// Number of an expert in `routes`: a dropped route to expert e has the number −1 − e. −1 for
/// no_expert.
KOKKOS_FORCEINLINE_FUNCTION std::int64_t chosen_expert(double number) {
  const auto n = static_cast<std::int64_t>(number);
  return n == no_expert ? -1 : n < 0 ? -1 - n : n;
}

/// counts[b, e] += number of tokens of sample b that chose expert e, also with dropped routes.
/// counts [B, E], routes [T, 2k]; each sample has T / B consecutive rows.
template <class A, class C = A>
void count_experts(const Exec& exec, View2<C> counts, View2<const A> routes);

/// Rows of samples in a part of a matrix.
struct SampleRows {
  std::int64_t first = 0;       ///< first row of the part
  std::int64_t per_sample = 1;  ///< rows of a sample
  /// [R] for each row the tokens of its sample, or 0 in rows of padding; empty: no padding.
  View1<const std::int32_t> tokens = {};
};

/// losses[r] = weight Σ_e counts[b, e] scores[r, e] for the sample b of row r, and, if dlogits is
/// not empty, dlogits += scale ∂losses/∂logits, where scores is the softmax of the logits and
/// counts is constant. `sigmoid`: scores are sigmoids, and are divided by their sum over a row.
/// With rows.tokens, the weight is divided by the square of a sample's tokens, and rows of padding
/// have no loss. losses [R], dlogits [R, E] or empty, scores [R, E], counts [B, E].
template <class A, class B = A>
void balance_experts(const Exec& exec, View1<double> losses, View2<A> dlogits,
                     View2<const A> scores, View2<const B> counts, const SampleRows& rows,
                     double weight, const LossScale& scale, bool sigmoid = false);

/// losses[r] = weight sums[r]², with the results of log_sums_of_exponentials, and, if dlogits is
/// not empty, dlogits += scale ∂losses/∂logits (Zoph et al. 2022, arXiv 2202.08906, eq. 5). Shapes
/// as for balance_experts.
template <class A>
void limit_logits(const Exec& exec, View1<double> losses, View2<A> dlogits, View2<const A> scores,
                  View1<const A> sums, double weight, const LossScale& scale);

/// Lists the routes to held experts, sorted by expert and then by token: expert held.offset + i has
/// the routes order[bounds[i]] … order[bounds[i + 1] − 1]. bounds [H + 1] with H = held.extent;
/// bounds[H] is the number n of routes to held experts. order [≥ T min(k, H)]; elements from n on
/// stay unchanged. routes [T, 2k].
template <class A>
void order_routes(const Exec& exec, View1<std::int32_t> order, View1<std::int32_t> bounds,
                  View2<const A> routes, const layout::Slice& held);

/// picked[i] = rows[order[i] / k], with k = active: the rows of the tokens that chose an expert.
/// picked [n, D], rows [T, D], order [n]; n may be 0, here and below.
template <class T>
void pick_routed(const Exec& exec, View2<T> picked, View2<const T> rows,
                 View1<const std::int32_t> order, std::int64_t active);

/// sums[order[i] / k] += rows[i], with k = active. A token may occur only once in a call, so that
/// the order of calls is the order of each sum. sums [T, D], rows [n, D], order [n].
template <class T>
void add_routed(const Exec& exec, View2<Accumulate<T>> sums, View2<const T> rows,
                View1<const std::int32_t> order, std::int64_t active);

/// rows[i] *= routes(order[i] / k, order[i] mod k), the weight of the route. rows [n, F], routes
/// [T, 2k], order [n].
template <class T>
void weigh_routed(const Exec& exec, View2<T> rows, View2<const Accumulate<T>> routes,
                  View1<const std::int32_t> order);

/// droutes(order[i] / k, order[i] mod k) += Σ_f a[i, f] b[i, f], in the order of sum_lanes
/// (lanes.hpp): the gradient of a route's weight. Other elements stay unchanged. droutes [T, 2k];
/// a, b [n, F]; order [n].
template <class T>
void dot_routed(const Exec& exec, View2<Accumulate<T>> droutes, View2<const T> a, View2<const T> b,
                View1<const std::int32_t> order);

/// rows[i] += routes(order[i] / k, order[i] mod k) bias, for the rows of one expert. rows [n, D],
/// bias [D], order [n].
template <class T>
void add_weighed_bias(const Exec& exec, View2<T> rows, View1<const T> bias,
                      View2<const Accumulate<T>> routes, View1<const std::int32_t> order);

/// Gradient of the weights in add_weighed_bias: droutes(order[i] / k, order[i] mod k) += Σ_d
/// drows[i, d] bias[d]. Shapes as there.
template <class T>
void dot_bias(const Exec& exec, View2<Accumulate<T>> droutes, View2<const T> drows,
              View1<const T> bias, View1<const std::int32_t> order);

/// raw = y, then y[r] *= sigmoid(logits[r]). y, raw [R, D], logits [R].
template <class T>
void gate_rows(const Exec& exec, View2<T> y, View2<T> raw, View1<const Accumulate<T>> logits);

/// Gradient of gate_rows: dlogits[r] = s (1 − s) Σ_d dy[r, d] raw[r, d] with s =
/// sigmoid(logits[r]), then dy[r] *= s. dy, raw [R, D], logits, dlogits [R].
template <class T>
void gate_rows_backward(const Exec& exec, View2<T> dy, View1<T> dlogits, View2<const T> raw,
                        View1<const Accumulate<T>> logits);

/// y = sums, rounded to nearest. y, sums [T, D].
template <class T>
void round_sums(const Exec& exec, View2<T> y, View2<const Accumulate<T>> sums);

}  // namespace trireme::kernels
