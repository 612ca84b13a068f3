#pragma once

#include <trireme/kernels/attention.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "reference/attention.hpp"

namespace trireme::reference {

/// Values, and bounds of the errors of a kernel's results for these values.
struct Bounded {
  std::vector<double> values, bounds;
  explicit Bounded(std::size_t n) : values(n), bounds(n) {}
};

/// Attention and its gradient in double precision, with error bounds for a kernel that rounds
/// probabilities, gradients of scores and its results to a type of unit roundoff u (`unit`), and
/// computes everything else in fp32 with relative errors of at most e = 2^-23 per operation (the
/// unit roundoff of tensor cores, which may truncate).
class RoundedAttention {
 public:
  RoundedAttention(const std::vector<double>& qkv, const kernels::AttentionShape& shape,
                   const kernels::AttentionDropout& dropout, double unit)
      : qkv_(qkv), s_(shape), dropout_(dropout), unit_(unit) {
    if (s_.group == 0) s_.group = s_.heads / s_.key_value_heads;
    positions_ = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), s_.positions);
    if (s_.scale == 0.0) s_.scale = 1.0 / std::sqrt(static_cast<double>(s_.head_size));
    // relative_ is a bound δ of the relative error of a probability. The error of a score is (K +
    // 8) e scale Σ|q||k|, from its products, its scale and a subtraction; this error counts twice,
    // because logsumexp has the same error. The sum over up to S keys adds S e, and exponentials
    // and other operations add 32 e.
    double largest = 0.0;
    for_heads([&](std::int64_t b, std::int64_t h) {
      for (std::int64_t i = 0; i < s_.sequence; ++i)
        for (std::int64_t j = first(b, i); j < end(i); ++j) {
          double sum = 0.0;
          for (std::int64_t d = 0; d < s_.head_size; ++d)
            sum += std::abs(qkv_[query(b, h, i) + at(d)] * qkv_[key(b, h, j) + at(d)]);
          largest = std::max(largest, s_.scale * sum);
        }
    });
    const double terms = static_cast<double>(s_.head_size + 8);
    relative_ = e * (2.0 * terms * largest + static_cast<double>(s_.sequence) + 32.0);
  }

  /// o [T, H·K]. The error of Σ_j p v is at most (u + 2 δ) Σ p|v|, plus the rounding error u |o| of
  /// the result, plus tiny(): results and probabilities below the smallest normal fp16 value have
  /// an absolute rounding error of up to 2^-25.
  Bounded output() const {
    auto magnitudes = qkv_;
    for (double& x : magnitudes) x = std::abs(x);
    for (std::int64_t t = 0; t < s_.tokens(); ++t)
      for (std::int64_t c = 0; c < (s_.heads + s_.key_value_heads) * s_.head_size; ++c)
        magnitudes[at(t * s_.qkv_columns() + c)] = qkv_[at(t * s_.qkv_columns() + c)];
    const auto sums = attention(magnitudes, s_, dropout_);
    Bounded result(sums.o.size());
    result.values = attention(qkv_, s_, dropout_).o;
    for (std::size_t i = 0; i < sums.o.size(); ++i)
      result.bounds[i] =
          (unit_ + 2.0 * relative_) * sums.o[i] + unit_ * std::abs(result.values[i]) + tiny();
    return result;
  }

  /// logsumexp [B, H, S].
  Bounded logsumexp() const {
    Bounded result(at(s_.tokens() * s_.heads));
    result.values = attention(qkv_, s_, dropout_).logsumexp;
    for (std::size_t i = 0; i < result.bounds.size(); ++i)
      result.bounds[i] = relative_ + 4.0 * e * std::abs(result.values[i]);
    return result;
  }

  /// dqkv for the gradient `grad` of o.
  Bounded gradient(const std::vector<double>& grad) const {
    Bounded result(qkv_.size());
    const Bounded o = output();
    const auto lse = attention(qkv_, s_, dropout_).logsumexp;
    for_heads([&](std::int64_t b, std::int64_t h) {
      for (std::int64_t i = 0; i < s_.sequence; ++i)
        add_query(result, grad, o, lse[at((b * s_.heads + h) * s_.sequence + i)], b, h, i);
    });
    for (std::size_t i = 0; i < qkv_.size(); ++i)
      result.bounds[i] += unit_ * std::abs(result.values[i]) + tiny();
    return result;
  }

 private:
  static constexpr double e = 1.0 / 8388608.0;

  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
  double tiny() const { return static_cast<double>(s_.sequence * s_.group) / 16777216.0; }
  std::int64_t first(std::int64_t b, std::int64_t i) const {
    const std::int64_t first = s_.window == 0 ? 0 : std::max<std::int64_t>(0, i + 1 - s_.window);
    if (!s_.has_documents()) return first;
    return std::max<std::int64_t>(first, i - positions_(at(b * s_.sequence + i)));
  }
  std::int64_t end(std::int64_t i) const { return s_.causal ? i + 1 : s_.sequence; }
  std::size_t query(std::int64_t b, std::int64_t h, std::int64_t i) const {
    return at((b * s_.sequence + i) * s_.qkv_columns() + h * s_.head_size);
  }
  std::size_t key(std::int64_t b, std::int64_t h, std::int64_t j) const {
    return query(b, s_.heads + (s_.heads_before + h) / s_.group, j);
  }
  std::size_t value(std::int64_t b, std::int64_t h, std::int64_t j) const {
    return key(b, h, j) + at(s_.key_value_heads * s_.head_size);
  }
  template <class Use>
  void for_heads(const Use& use) const {
    for (std::int64_t b = 0; b < s_.batch; ++b)
      for (std::int64_t h = 0; h < s_.heads; ++h) use(b, h);
  }

  /// Adds the contributions of query i to the gradients, where f is the dropout factor of a
  /// probability. The error of ds = scale p (f dp − delta) is at most (u + δ) |ds|, plus scale p
  /// times the errors of f dp (K + 2 operations on Σ|grad||v|) and of delta = Σ grad·o (from the
  /// rounded o), plus the error of fp32 sums over S keys and a group of heads.
  void add_query(Bounded& result, const std::vector<double>& grad, const Bounded& o, double lse,
                 std::int64_t b, std::int64_t h, std::int64_t i) const {
    const std::int64_t row = ((b * s_.sequence + i) * s_.heads + h) * s_.head_size;
    const auto size = static_cast<double>(s_.head_size);
    double delta = 0.0, delta_error = 0.0;
    for (std::int64_t d = 0; d < s_.head_size; ++d) {
      delta += grad[at(row + d)] * o.values[at(row + d)];
      delta_error += std::abs(grad[at(row + d)]) *
                     (o.bounds[at(row + d)] + size * e * std::abs(o.values[at(row + d)]));
    }
    const double sums = e * static_cast<double>(s_.sequence * s_.group);  // error of sums in fp32
    for (std::int64_t j = first(b, i); j < end(i); ++j) {
      double score = 0.0, dp = 0.0, dp_size = 0.0;
      for (std::int64_t d = 0; d < s_.head_size; ++d) {
        score += s_.scale * qkv_[query(b, h, i) + at(d)] * qkv_[key(b, h, j) + at(d)];
        dp += grad[at(row + d)] * qkv_[value(b, h, j) + at(d)];
        dp_size += std::abs(grad[at(row + d)] * qkv_[value(b, h, j) + at(d)]);
      }
      const double p = std::exp(score - lse);
      const double f = dropout_factor(s_, dropout_, b, h, i, j);
      const double ds = s_.scale * p * (f * dp - delta);
      const double ds_error =
          (unit_ + relative_ + sums) * std::abs(ds) +
          s_.scale * p * (1.0 + relative_) * (f * (size + 2.0) * e * dp_size + delta_error);
      const double p_error = (unit_ + relative_ + sums) * p * f;
      for (std::int64_t d = 0; d < s_.head_size; ++d) {
        const auto add = [&](std::size_t to, double with, double x, double error) {
          result.values[to] += x * with;
          result.bounds[to] += error * std::abs(with);
        };
        add(value(b, h, j) + at(d), grad[at(row + d)], p * f, p_error);
        add(query(b, h, i) + at(d), qkv_[key(b, h, j) + at(d)], ds, ds_error);
        add(key(b, h, j) + at(d), qkv_[query(b, h, i) + at(d)], ds, ds_error);
      }
    }
  }

  std::vector<double> qkv_;
  decltype(Kokkos::create_mirror_view_and_copy(
      Kokkos::HostSpace(), std::declval<View1<const std::int32_t>>())) positions_;
  kernels::AttentionShape s_;
  kernels::AttentionDropout dropout_;
  double unit_, relative_ = 0.0;
};

}  // namespace trireme::reference
