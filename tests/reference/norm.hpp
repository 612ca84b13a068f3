#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

/// Layer and root mean square normalisation as plain loops in double.
namespace trireme::reference {

struct LayerNorm {
  std::vector<double> y;            // [T,D]
  std::vector<double> mean;         // [T]
  std::vector<double> inverse_std;  // [T]
};

inline LayerNorm layer_norm(const std::vector<double>& x, const std::vector<double>& gain,
                            const std::vector<double>& bias, double epsilon) {
  const std::size_t hidden = gain.size();
  const std::size_t rows = x.size() / hidden;
  LayerNorm result{std::vector<double>(x.size()), std::vector<double>(rows),
                   std::vector<double>(rows)};
  for (std::size_t t = 0; t < rows; ++t) {
    double mean = 0;
    for (std::size_t d = 0; d < hidden; ++d)
      mean += x[t * hidden + d] / static_cast<double>(hidden);
    double variance = 0;
    for (std::size_t d = 0; d < hidden; ++d)
      variance +=
          (x[t * hidden + d] - mean) * (x[t * hidden + d] - mean) / static_cast<double>(hidden);
    result.mean[t] = mean;
    result.inverse_std[t] = 1 / std::sqrt(variance + epsilon);
    for (std::size_t d = 0; d < hidden; ++d)
      result.y[t * hidden + d] =
          gain[d] * (x[t * hidden + d] - mean) * result.inverse_std[t] + bias[d];
  }
  return result;
}

/// dx by the chain rule through mean and variance, term by term.
inline std::vector<double> layer_norm_backward_input(const std::vector<double>& dy,
                                                     const std::vector<double>& x,
                                                     const std::vector<double>& gain,
                                                     const LayerNorm& forward) {
  const std::size_t hidden = gain.size();
  const auto n = static_cast<double>(hidden);
  std::vector<double> dx(x.size());
  for (std::size_t t = 0; t < x.size() / hidden; ++t) {
    const double inverse = forward.inverse_std[t];
    double d_variance = 0;
    double d_mean = 0;
    for (std::size_t d = 0; d < hidden; ++d) {
      const double g = gain[d] * dy[t * hidden + d];
      d_variance += g * (x[t * hidden + d] - forward.mean[t]) * -0.5 * inverse * inverse * inverse;
      d_mean -= g * inverse;
    }
    for (std::size_t d = 0; d < hidden; ++d)
      dx[t * hidden + d] = gain[d] * dy[t * hidden + d] * inverse +
                           d_variance * 2 * (x[t * hidden + d] - forward.mean[t]) / n + d_mean / n;
  }
  return dx;
}

struct RmsNorm {
  std::vector<double> y;            // [T,D]
  std::vector<double> inverse_rms;  // [T]
};

inline RmsNorm rms_norm(const std::vector<double>& x, const std::vector<double>& gain,
                        double epsilon) {
  const std::size_t hidden = gain.size();
  RmsNorm result{std::vector<double>(x.size()), std::vector<double>(x.size() / hidden)};
  for (std::size_t t = 0; t < result.inverse_rms.size(); ++t) {
    double squares = 0;
    for (std::size_t d = 0; d < hidden; ++d) squares += x[t * hidden + d] * x[t * hidden + d];
    result.inverse_rms[t] = 1 / std::sqrt(squares / static_cast<double>(hidden) + epsilon);
    for (std::size_t d = 0; d < hidden; ++d)
      result.y[t * hidden + d] = gain[d] * x[t * hidden + d] * result.inverse_rms[t];
  }
  return result;
}

/// dx by the chain rule through the mean of squares.
inline std::vector<double> rms_norm_backward_input(const std::vector<double>& dy,
                                                   const std::vector<double>& x,
                                                   const std::vector<double>& gain,
                                                   const RmsNorm& forward) {
  const std::size_t hidden = gain.size();
  std::vector<double> dx(x.size());
  for (std::size_t t = 0; t < x.size() / hidden; ++t) {
    const double inverse = forward.inverse_rms[t];
    double d_mean_square = 0;
    for (std::size_t d = 0; d < hidden; ++d)
      d_mean_square +=
          gain[d] * dy[t * hidden + d] * x[t * hidden + d] * -0.5 * inverse * inverse * inverse;
    for (std::size_t d = 0; d < hidden; ++d)
      dx[t * hidden + d] = gain[d] * dy[t * hidden + d] * inverse +
                           d_mean_square * 2 * x[t * hidden + d] / static_cast<double>(hidden);
  }
  return dx;
}

}  // namespace trireme::reference
