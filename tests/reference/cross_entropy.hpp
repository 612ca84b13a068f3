#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace trireme::reference {

/// Cross entropy of each row of `logits`: log Σ_v exp(logit_v) minus the target's logit.
inline std::vector<double> cross_entropy(const std::vector<double>& logits,
                                         const std::vector<std::int32_t>& targets) {
  const std::size_t vocabulary = logits.size() / targets.size();
  std::vector<double> loss;
  for (std::size_t r = 0; r < targets.size(); ++r) {
    const double* row = logits.data() + r * vocabulary;
    const double largest = *std::max_element(row, row + vocabulary);
    double sum = 0;
    for (std::size_t v = 0; v < vocabulary; ++v) sum += std::exp(row[v] - largest);
    loss.push_back(std::log(sum) + largest - row[targets[r]]);
  }
  return loss;
}

/// Largest logit and Σ exp(logit − largest) over the columns [first, last) of each row; at least
/// one column.
struct SoftmaxStatistics {
  std::vector<double> largest, sum;
};
inline SoftmaxStatistics softmax_statistics(const std::vector<double>& logits, std::size_t columns,
                                            std::size_t first, std::size_t last) {
  SoftmaxStatistics statistics;
  for (std::size_t row = 0; row < logits.size(); row += columns) {
    const double* part = logits.data() + row;
    const double largest = *std::max_element(part + first, part + last);
    double sum = 0;
    for (std::size_t v = first; v < last; ++v) sum += std::exp(part[v] - largest);
    statistics.largest.push_back(largest);
    statistics.sum.push_back(sum);
  }
  return statistics;
}

inline std::vector<double> cross_entropy_gradient(const std::vector<double>& logits,
                                                  const std::vector<std::int32_t>& targets,
                                                  double scale) {
  const std::size_t vocabulary = logits.size() / targets.size();
  const std::vector<double> loss = cross_entropy(logits, targets);
  std::vector<double> gradient;
  for (std::size_t r = 0; r < targets.size(); ++r) {
    const double log_sum = loss[r] + logits[r * vocabulary + static_cast<std::size_t>(targets[r])];
    for (std::size_t v = 0; v < vocabulary; ++v)
      gradient.push_back(scale * (std::exp(logits[r * vocabulary + v] - log_sum) -
                                  (static_cast<std::int32_t>(v) == targets[r] ? 1 : 0)));
  }
  return gradient;
}

}  // namespace trireme::reference
