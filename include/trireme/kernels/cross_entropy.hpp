#pragma once

#include <trireme/tensor/views.hpp>

#include <cstdint>

/// Cross entropy of a vocabulary that may be split into parts; one part holds the ids [first_id,
/// first_id + Vl), and may be empty. Ranks exchange three values per row (statistics), never the
/// logits (Narayanan et al. 2021, arXiv 2104.04473, section 2.3; Shoeybi et al. 2019, arXiv
/// 1909.08053). Targets must be below V; the kernels do not check them.
///
/// A row with a negative target is not counted: its loss and its gradient are 0. A target −1 − n
/// with n > 0 requests the most likely of the first n ids: the third value of the row's merged
/// statistics is this id, or −1 if the logit of one of these ids is not finite.
///
/// Asynchronous on exec; instantiated for float and double, gradients for Bf16 and Fp16 too.
namespace trireme::kernels {

/// statistics[r] = {largest logit of this part, sum of exp(logit − largest), the target's logit},
/// in one pass (Milakov and Gimelshein 2018, arXiv 1805.02867, algorithm 3). The first two values
/// are −infinity and 0 if the part is empty or fully masked (−infinity), the third is −infinity if
/// another part holds the target. statistics [R,3], logits [R,Vl], targets [R] global ids.
template <class T>
void cross_entropy_statistics(const Exec& exec, View2<double> statistics, View2<const T> logits,
                              View1<const std::int32_t> targets, std::int64_t first_id);

/// Merges the statistics of all parts, in the order of the parts: loss[r] = log Σ_v
/// exp(logits[r,v]) − logits[r,targets[r]], in nats, and merged[r] = {largest logit, sum, target's
/// logit} of the whole row. loss [R], merged [R,3], parts [P,R,3]; merged does not overlap parts.
void cross_entropy_merge(const Exec& exec, View1<double> loss, View2<double> merged,
                         View3<const double> parts);

/// logits = cap tanh(logits / cap), in place (Gemma Team 2024, arXiv 2408.00118, section 2). logits
/// [R,Vl].
template <class T>
void soft_cap(const Exec& exec, View2<T> logits, double cap);

/// logits *= factor. logits [N, V]
template <class T>
void scale_logits(const Exec& exec, View2<T> logits, double factor);

/// gradient[r,v] = scale (softmax[r,v] − (first_id + v == targets[r])) in one pass; 0 in rows with
/// a negative target. With a cap, the logits have passed through soft_cap(), and the gradient is
/// multiplied by 1 − (logits / cap)², the derivative of soft_cap(). `scale`, 1 over the number of
/// tokens in the mean, is multiplied by loss_scale[0] if given. gradient, logits [R,Vl]; merged
/// [R,3]; targets [R]; loss_scale [1] or empty. gradient may be logits if their types agree.
template <class T>
void cross_entropy_gradient(const Exec& exec, View2<T> gradient, View2<const Accumulate<T>> logits,
                            View2<const double> merged, View1<const std::int32_t> targets,
                            std::int64_t first_id, double scale,
                            View1<const double> loss_scale = {}, double cap = 0);

/// scores[r] = {loss[r], largest logit − target's logit}: the second value is 0 if the target is
/// the most likely token. In rows that request the most likely id, the second value is this id, or
/// −1 as in the merged statistics. scores [R,2], loss [R], merged [R,3].
void row_scores(const Exec& exec, View2<double> scores, View1<const double> loss,
                View2<const double> merged);

/// result[0] += values[0] + … + values[n − 1], in a fixed order. result [1], values [n].
void sum_ordered(const Exec& exec, View1<double> result, View1<const double> values);

}  // namespace trireme::kernels
