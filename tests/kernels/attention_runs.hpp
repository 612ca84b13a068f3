#pragma once

#include <trireme/base/text.hpp>
#include <trireme/kernels/attention.hpp>
#include <trireme/tensor/fence.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "reference/attention.hpp"
#include "reference/rounded_attention.hpp"
#include "support/device_array.hpp"

/// Attention on host arrays, and bounds of its errors.
namespace trireme::kernels::attention_runs {

using testing::at;
using testing::DeviceArray;
using testing::uniform;

/// Columns [first, last) of each row, one range after another.
template <class T>
std::vector<T> take_columns(const std::vector<T>& x, std::int64_t columns,
                            const std::vector<std::pair<std::int64_t, std::int64_t>>& ranges) {
  std::vector<T> taken;
  for (auto row = x.begin(); row != x.end(); row += columns)
    for (const auto& [first, last] : ranges) taken.insert(taken.end(), row + first, row + last);
  return taken;
}

template <class T>
std::vector<T> random_qkv(const AttentionShape& s) {
  return uniform<T>(s.tokens() * s.qkv_columns(), 1);
}
template <class T>
std::vector<T> random_gradient(const AttentionShape& s) {
  return uniform<T>(s.tokens() * s.heads * s.head_size, 2);
}

/// Compares bits, because a NaN is not equal to itself.
template <class T>
void expect_same_bits(const std::vector<T>& found, const std::vector<T>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  EXPECT_EQ(std::memcmp(found.data(), expected.data(), found.size() * sizeof(T)), 0);
}

template <class T>
void expect_within(const std::vector<T>& found, const reference::Bounded& expected,
                   const char* what) {
  ASSERT_EQ(found.size(), expected.values.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    ASSERT_LE(std::abs(static_cast<double>(found[i]) - expected.values[i]), expected.bounds[i])
        << what << " " << i << " is " << static_cast<double>(found[i]) << ", expected "
        << expected.values[i];
}

template <class T>
struct Forward {
  std::vector<T> o;
  std::vector<Accumulate<T>> logsumexp;
};

template <class T>
Forward<T> run_forward(const std::vector<T>& qkv, const AttentionShape& s,
                       const AttentionDropout& dropout = {}) {
  const Handle handle;
  const DeviceArray<T> input(qkv);
  const DeviceArray<T> o(s.tokens() * s.heads * s.head_size, T(NAN));  // NaN where not written
  const DeviceArray<Accumulate<T>> lse(s.tokens() * s.heads, NAN);
  attention_forward<T>(handle, o.matrix(s.tokens(), s.heads * s.head_size),
                       lse.cube(s.batch, s.heads, s.sequence),
                       input.matrix(s.tokens(), s.qkv_columns()), s, dropout);
  fence(handle, "test");
  return {o.values(), lse.values()};
}

template <class T>
std::vector<T> run_backward(const std::vector<T>& qkv, const std::vector<T>& grad,
                            const AttentionShape& s, const AttentionDropout& dropout = {}) {
  const Handle handle;
  const auto forward = run_forward(qkv, s, dropout);
  const DeviceArray<T> input(qkv), g(grad), o(forward.o);
  const DeviceArray<T> dqkv(s.tokens() * s.qkv_columns(), T(NAN));
  const DeviceArray<Accumulate<T>> lse(forward.logsumexp);
  const DeviceArray<Accumulate<T>> workspace(attention_workspace_elements<T>(handle.choice(), s),
                                             NAN);
  const std::int64_t columns = s.heads * s.head_size;
  attention_backward<T>(handle, dqkv.matrix(s.tokens(), s.qkv_columns()),
                        g.matrix(s.tokens(), columns), o.matrix(s.tokens(), columns),
                        input.matrix(s.tokens(), s.qkv_columns()),
                        lse.cube(s.batch, s.heads, s.sequence), workspace.flat(), s, dropout);
  fence(handle, "test");
  return dqkv.values();
}

inline std::string describe(const AttentionShape& s) {
  return text("B ", s.batch, " S ", s.sequence, " H ", s.heads, " Hkv ", s.key_value_heads, " K ",
              s.head_size, s.causal ? " causal" : " full", " window ", s.window);
}

/// Positions of the tokens of samples packed from documents. The lengths are repeated cyclically,
/// beginning with the sample's index; the last document of a sample ends with the sample.
inline std::vector<std::int32_t> positions_of(const AttentionShape& s,
                                              const std::vector<std::int32_t>& lengths) {
  std::vector<std::int32_t> positions;
  for (std::int64_t b = 0; b < s.batch; ++b) {
    std::size_t document = at(b);
    std::int32_t position = 0;
    for (std::int64_t i = 0; i < s.sequence; ++i) {
      positions.push_back(position++);
      if (position < lengths[document % lengths.size()]) continue;
      position = 0;
      ++document;
    }
  }
  return positions;
}

/// A shape and the positions of its tokens, whose memory this object owns.
struct Packed {
  Packed(const AttentionShape& s, const std::vector<std::int32_t>& lengths)
      : positions(positions_of(s, lengths)), shape(s) {
    shape.positions = positions.flat();
  }
  DeviceArray<std::int32_t> positions;
  AttentionShape shape;
};

inline AttentionDropout some_dropout() {
  return {0.3, {7, Purpose::attention_dropout, 3, 5}, 11, 2, 9};
}

/// Values are within [−1, 1]. A score is a sum of K products of magnitude σ ≤ scale·K, with an
/// error of (K + 2) u σ (Higham 2002, eq. 3.5; u the unit roundoff). The logarithm of the sum has
/// the same error. exp and the rescaling by blocks of 64 add 4 u each, and the sums over up to S
/// keys S u. A probability therefore has a relative error δ = (2 (K + 2) σ + S + 4 S/64 + 8) u. The
/// addition of a bias within [−1, 1] adds 2 (σ + 1) u.
inline double relative_error(const AttentionShape& s, double u) {
  const auto size = static_cast<double>(s.head_size);
  const auto keys = static_cast<double>(s.keys_per_sample());
  const double scale = s.scale == 0.0 ? 1.0 / std::sqrt(size) : s.scale;
  const double biases = s.has_biases() ? 2.0 * (scale * size + 1.0) : 0.0;
  return (2.0 * (size + 2.0) * scale * size + keys + 4.0 * std::ceil(keys / 64.0) + 8.0 + biases) *
         u;
}

/// Largest error of an element of o, a sum of values within [−1, 1] whose factors sum to 1/(1 −
/// rate): 2 δ, for a probability and for the sum of all. Two-byte types round o and, on some
/// processors, the probabilities.
template <class T>
double error_of_output(const AttentionShape& s, const AttentionDropout& dropout) {
  const auto u = static_cast<double>(std::numeric_limits<Accumulate<T>>::epsilon()) / 2;
  const double stored = std::is_same_v<T, Bf16> ? 1.0 / 128 : is_narrow<T> ? 1.0 / 1024 : 0;
  return (2.0 * relative_error(s, u) + stored) / (1.0 - dropout.rate);
}

/// Expects that the norm of the error is at most that of a few roundings of the terms of T.
template <class T, class U>
void expect_gradient(const std::vector<U>& found, const std::vector<double>& expected,
                     const AttentionShape& s, const char* what) {
  const auto u = static_cast<double>(std::numeric_limits<Accumulate<T>>::epsilon()) / 2;
  const double stored = std::is_same_v<T, Bf16> ? 1.0 / 128 : is_narrow<T> ? 1.0 / 1024 : 0;
  ASSERT_EQ(found.size(), expected.size());
  double norm = 0.0, error = 0.0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double difference = static_cast<double>(found[i]) - expected[i];
    ASSERT_TRUE(std::isfinite(difference)) << what << " " << i;
    norm += expected[i] * expected[i];
    error += difference * difference;
  }
  // Rounding errors of either sign mostly cancel: δ of the probabilities and three roundings; and
  // in the differences dp − delta of the gradients of scores, which may be far smaller than both,
  // the error of delta, a sum of K products with rounded results.
  const auto size = static_cast<double>(s.head_size);
  const double scale = s.scale == 0.0 ? 1.0 / std::sqrt(size) : s.scale;
  const double differences = scale * std::sqrt(size * static_cast<double>(found.size()));
  EXPECT_LE(std::sqrt(error), 3.0 * (relative_error(s, u) + stored) * std::sqrt(norm) +
                                  (relative_error(s, u) + stored / 8) * differences)
      << what;
}

/// The central difference of L = Σ grad·o along `direction`, in double.
inline double slope(const std::vector<double>& qkv, const std::vector<double>& grad,
                    const std::vector<double>& direction, const AttentionShape& s,
                    const AttentionDropout& dropout, double step) {
  const auto loss = [&](double t) {
    auto moved = qkv;
    for (std::size_t i = 0; i < moved.size(); ++i) moved[i] += t * direction[i];
    const auto o = reference::attention(moved, s, dropout).o;
    return std::inner_product(o.begin(), o.end(), grad.begin(), 0.0);
  };
  // Fourth order: the errors step^4 and u/step are equal at step = u^(1/5), about 1e-3, where both
  // are 1e-12.
  return (8.0 * (loss(step) - loss(-step)) - (loss(2 * step) - loss(-2 * step))) / (12.0 * step);
}

}  // namespace trireme::kernels::attention_runs
