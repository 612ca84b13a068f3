/// Gradients of logits whose parts are computed before the statistics of the whole rows are known.

#include <trireme/kernels/cross_entropy.hpp>
#include <trireme/kernels/shared_logits.hpp>

#include <kernels/cases.hpp>
#include <kernels/tokens.hpp>
#include <reference/parts.hpp>
#include <support/device_array.hpp>
#include <support/numbers.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace trireme::kernels {
namespace {

using reference::columns_of;
using reference::uneven_parts;
using testing::at;
using testing::DeviceArray;
using testing::random_numbers;
using testing::random_tokens;

/// softmax - one-hot of whole rows, in double; 0 of rows without a target.
std::vector<double> gradient_of(const std::vector<double>& logits,
                                const std::vector<std::int32_t>& targets, double scale) {
  const std::size_t columns = logits.size() / targets.size();
  std::vector<double> gradient(logits.size());
  for (std::size_t r = 0; r < targets.size(); ++r) {
    if (targets[r] < 0) continue;
    const double* row = logits.data() + r * columns;
    const double largest = *std::max_element(row, row + columns);
    double sum = 0;
    for (std::size_t v = 0; v < columns; ++v) sum += std::exp(row[v] - largest);
    for (std::size_t v = 0; v < columns; ++v)
      gradient[r * columns + v] = scale * (std::exp(row[v] - largest) / sum -
                                           (v == static_cast<std::size_t>(targets[r]) ? 1 : 0));
  }
  return gradient;
}

template <class T>
class SharedLogits : public ::testing::Test {};
TYPED_TEST_SUITE(SharedLogits, WideTypes);

/// Every number is a sum of V products whose factors are off by the error of an exponential, whose
/// argument is at most `spread` wide.
TYPED_TEST(SharedLogits, PartsSumToTheWholeGradient) {
  using T = TypeParam;
  const double scale = 1.0 / 37;
  const std::int64_t rows = 13, hidden = 7;
  for (const std::int64_t v : {5, 128, 5000})
    for (const std::int64_t parts : {1, 2, 3, 5})
      for (const double spread : {1.0, 20.0}) {
        const auto logits = random_numbers<T>(rows * v, 1, spread);
        const auto table = random_numbers<T>(v * hidden, 2);
        auto targets = random_tokens(rows, v, 3);
        targets[2] = targets[12] = -1;  // not counted
        const std::vector<double> expected = gradient_of(logits, targets, scale);
        const auto begins = uneven_parts(v, parts);
        const DeviceArray<std::int32_t> d_targets(targets);
        const DeviceArray<double> losses(rows), merged(3 * rows), loss_scale(1, 4.0);
        const DeviceArray<double> own(parts * rows * 3);
        const auto own_of = [&](std::int64_t p) {
          return View2<double>(own.data() + p * rows * 3, at(rows), 3);
        };
        std::vector<DeviceArray<T>> softmax, tables;
        for (std::int64_t p = 0; p < parts; ++p) {
          const std::int64_t ids = begins[at(p) + 1] - begins[at(p)];
          softmax.emplace_back(columns_of(logits, v, begins[at(p)], begins[at(p) + 1]));
          tables.emplace_back(std::vector<double>(table.begin() + begins[at(p)] * hidden,
                                                  table.begin() + begins[at(p) + 1] * hidden));
          const auto held = softmax.back().matrix(rows, ids);
          cross_entropy_statistics<T>(Exec{}, own_of(p), held, d_targets.flat(), begins[at(p)]);
          cross_entropy_gradient<T>(Exec{}, held, held, own_of(p), d_targets.flat(), v, 1.0);
        }
        cross_entropy_merge(Exec{}, losses.flat(), merged.matrix(rows, 3),
                            own.cube(parts, rows, 3));
        const double error = 8 * (static_cast<double>(v) + 4 + 2 * spread) *
                             std::numeric_limits<T>::epsilon() * scale * 4;
        std::vector<double> dy(at(rows * hidden), 0);
        for (std::int64_t p = 0; p < parts; ++p) {
          const std::int64_t ids = begins[at(p) + 1] - begins[at(p)];
          const LogitsPart part{own_of(p), merged.matrix(rows, 3), d_targets.flat(), begins[at(p)],
                                scale,     loss_scale.flat()};
          std::vector<double> mine(at(rows * hidden), 0);
          const std::vector<T> weights = softmax[at(p)].values();
          for (std::int64_t r = 0; r < rows; ++r)
            for (std::int64_t i = 0; i < ids; ++i)
              for (std::int64_t d = 0; d < hidden; ++d)
                mine[at(r * hidden + d)] += static_cast<double>(weights[at(r * ids + i)]) *
                                            table[at((begins[at(p)] + i) * hidden + d)];
          const DeviceArray<T> gradient(mine);
          rescale_output_gradient<T>(Exec{}, gradient.matrix(rows, hidden),
                                     tables[at(p)].matrix(ids, hidden), part);
          const std::vector<T> found = gradient.values();
          for (std::size_t i = 0; i < found.size(); ++i) dy[i] += static_cast<double>(found[i]);

          rescale_softmax<T>(Exec{}, softmax[at(p)].matrix(rows, ids), part);
          const std::vector<T> logit_gradient = softmax[at(p)].values();
          for (std::int64_t r = 0; r < rows; ++r)
            for (std::int64_t i = 0; i < ids; ++i)
              EXPECT_NEAR(static_cast<double>(logit_gradient[at(r * ids + i)]),
                          4 * expected[at(r * v + begins[at(p)] + i)], error);
        }
        for (std::int64_t r = 0; r < rows; ++r)
          for (std::int64_t d = 0; d < hidden; ++d) {
            double sum = 0;
            for (std::int64_t i = 0; i < v; ++i)
              sum += 4 * expected[at(r * v + i)] * table[at(i * hidden + d)];
            EXPECT_NEAR(dy[at(r * hidden + d)], sum, error);
          }
      }
}

}  // namespace
}  // namespace trireme::kernels
