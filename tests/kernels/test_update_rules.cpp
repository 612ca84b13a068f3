#include <trireme/kernels/update.hpp>

#include <kernels/cases.hpp>
#include <kernels/rule_passes.hpp>
#include <support/device_array.hpp>
#include <support/numbers.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::kernels {
namespace {

using testing::DeviceArray;
using testing::expect_close;
using testing::random_numbers;

constexpr double infinity_ = std::numeric_limits<double>::infinity();
constexpr double nan_ = std::numeric_limits<double>::quiet_NaN();

/// The status of a run and the control of its last step.
struct Steps {
  DeviceArray<double> control{control_size};
  LossScaling scaling;
  DeviceArray<double> status{std::vector<double>{0, 0, 0, 0, -1, 1, 0}};

  /// Control of a step whose gradient has these squares.
  std::vector<double> step(std::int64_t number, const std::vector<double>& sums,
                           double maximum = 1.0, std::int64_t most_skips = 10) {
    const DeviceArray<double> d_sums(sums);
    root_of_sum(Exec{}, View1<double>(status.flat().data() + status_norm, 1), d_sums.flat());
    plan_update(Exec{}, control.flat(), status.flat(), d_sums.flat(),
                {number, maximum, 0.9, 0.95, most_skips, scaling});
    return control.values();
  }
};

TEST(PlanUpdate, ClipsOnlyNormsAboveTheMaximum) {
  const auto clip = [](double norm, double maximum) {
    return Steps().step(1, {norm * norm}, maximum)[control_clip];
  };
  EXPECT_EQ(clip(0.5, 1.0), 1.0);
  EXPECT_EQ(clip(4.0, 1.0), 1.0 / (4.0 + 1e-6));
  EXPECT_EQ(clip(4.0, 0.0), 1.0);
  EXPECT_EQ(clip(0.0, 1.0), 1.0);
}

TEST(PlanUpdate, CountsSkippedStepsApartFromUpdates) {
  Steps run;
  EXPECT_EQ(run.step(1, {1, 2, 3}),
            (std::vector<double>{1, 1 / (std::sqrt(6.0) + 1e-6), 1 - 0.9, 1 - 0.95, 1, 0.5}));
  EXPECT_EQ(run.step(2, {1, infinity_, nan_})[control_proceed], 0);
  const auto after_one = run.status.values();
  EXPECT_EQ(after_one[status_skipped], 1);
  EXPECT_EQ(after_one[status_skipped_in_row], 1);
  EXPECT_EQ(after_one[status_skipped_step], 2);
  EXPECT_EQ(after_one[status_skipped_sum], 1);
  EXPECT_EQ(run.step(3, {nan_, 1, 1})[control_proceed], 0);
  EXPECT_EQ(run.status.values()[status_skipped_in_row], 2);
  EXPECT_EQ(run.status.values()[status_skipped_sum], 0);
  const auto control = run.step(4, {1, 2, 3});
  EXPECT_EQ(control[control_proceed], 1);
  EXPECT_EQ(control[control_update], 2);
  EXPECT_DOUBLE_EQ(control[control_first_correction], 1 - 0.9 * 0.9);
  EXPECT_DOUBLE_EQ(control[control_second_correction], 1 - 0.95 * 0.95);
  EXPECT_EQ(run.status.values(), (std::vector<double>{std::sqrt(6.0), 2, 0, 3, 0, 1, 0}));
}

/// Scale 8, doubled after 2 updates in a row: norms and clipping are those of unscaled gradients.
TEST(PlanUpdate, DividesByTheLossScaleAndAdaptsIt) {
  Steps run;
  run.status.assign({0, 0, 0, 0, -1, 8, 0});
  run.scaling.interval = 2;
  const double bad = std::nan("");
  const std::vector<double> norms{3, 3, 3, bad, bad, 3, 3, 3}, scales{8, 16, 16, 8, 4, 4, 8, 8};
  double scale = 8;
  for (std::size_t i = 0; i < norms.size(); ++i) {
    const auto control =
        run.step(static_cast<std::int64_t>(i) + 1, {norms[i] * norms[i] * scale * scale}, 1.5);
    EXPECT_EQ(control[control_proceed], std::isfinite(norms[i]) ? 1 : 0) << i;
    if (std::isfinite(norms[i])) {
      EXPECT_DOUBLE_EQ(run.status.values()[status_norm], norms[i]);
      EXPECT_DOUBLE_EQ(control[control_clip], 1.5 / (norms[i] + 1e-6) / scale);
    }
    scale = run.status.values()[status_loss_scale];
    EXPECT_EQ(scale, scales[i]) << "after step " << i + 1;
  }
}

TEST(PlanUpdate, KeepsTheLossScaleWithinItsBounds) {
  Steps run;
  run.scaling.interval = 1;
  run.status.assign({0, 0, 0, 0, -1, LossScaling::most, 0});
  run.step(1, {1});
  EXPECT_EQ(run.status.values()[status_loss_scale], LossScaling::most);
  run.status.assign({0, 0, 0, 0, -1, LossScaling::least, 0});
  run.step(2, {std::nan("")});
  EXPECT_EQ(run.status.values()[status_loss_scale], LossScaling::least);
  run.status.assign({0, 0, 0, 0, -1, 1.5, 0});
  run.step(3, {std::nan("")});
  EXPECT_EQ(run.status.values()[status_loss_scale], LossScaling::least) << "not 0.75";
  run.status.assign({0, 0, 0, 0, -1, 0.75 * LossScaling::most, 0});
  run.step(4, {1});
  EXPECT_EQ(run.status.values()[status_loss_scale], LossScaling::most);
}

TEST(PlanUpdate, OverflowOfTheSumNamesNoArray) {
  Steps run;
  const double large = std::numeric_limits<double>::max();
  EXPECT_EQ(run.step(1, {large, large})[control_proceed], 0);
  EXPECT_EQ(run.status.values()[status_skipped_sum], -1);
}

TEST(PlanUpdate, StopsUpdatesAfterTooManySkips) {
  Steps run;
  for (const std::int64_t step : {1, 2, 3})
    EXPECT_EQ(run.step(step, {nan_}, 1.0, 3)[control_proceed], 0);
  EXPECT_EQ(run.step(4, {1.0}, 1.0, 3)[control_proceed], 0);
  EXPECT_EQ(run.status.values()[status_skipped_in_row], 4);
}

template <class T>
class Rules : public ::testing::Test {
 protected:
  static constexpr double eps = std::numeric_limits<T>::epsilon();
};
TYPED_TEST_SUITE(Rules, WideTypes);

TYPED_TEST(Rules, NonFiniteLossMarksTheGradient) {
  using T = TypeParam;
  for (const double loss : {3.5, infinity_, -infinity_, nan_}) {
    const DeviceArray<T> gradient(std::vector<T>{-0.0, 2});
    mark_non_finite<T>(Exec{}, gradient.flat(),
                       DeviceArray<double>(std::vector<double>{loss}).flat());
    const auto values = gradient.values();
    EXPECT_EQ(std::isnan(values[0]), !std::isfinite(loss)) << loss;
    if (std::isfinite(loss)) {
      EXPECT_TRUE(values[0] == 0 && std::signbit(values[0])) << "the bits stay";
    }
    EXPECT_EQ(values[1], T(2));
  }
}

TYPED_TEST(Rules, SkippedStepChangesNothing) {
  using T = TypeParam;
  constexpr std::int64_t n = 5000;
  const auto w = random_numbers<T>(n, 1), b = random_numbers<T>(n, 2), v = random_numbers<T>(n, 3);
  const DeviceArray<T> d_w(w), d_b(b), d_v(v);
  const DeviceArray<T> gradient(std::vector<T>(n, std::numeric_limits<T>::quiet_NaN()));
  const DeviceArray<double> control(std::vector<double>{0, nan_, 0.1, 0.1, 1, 1});
  for (const std::string_view word : names<OptimizerKind>())
    for (const double momentum : {0.0, 0.9}) {
      rules::Settings settings = testing::adam_settings();
      settings.momentum = momentum;
      const auto kind = parse<OptimizerKind>(word).value();
      for (const rules::Pass& pass : rules::rule_of(kind).passes(settings))
        if (pass.kind == rules::PassKind::elements)
          testing::run_pass<T>(std::string(pass.label).substr(std::string("kernels/").size()),
                               {d_w.flat(), gradient.flat(), d_b.flat(), d_v.flat()}, settings, 0.1,
                               control.flat());
    }
  EXPECT_EQ(d_w.values(), DeviceArray<T>(w).values());
  EXPECT_EQ(d_b.values(), DeviceArray<T>(b).values());
  EXPECT_EQ(d_v.values(), DeviceArray<T>(v).values());
}

/// Three steps of each form against the formulas in double. Numbers are below 1 in size and sums
/// have at most 4 terms, so that a step rounds each of them by at most 4 eps of 4.
TYPED_TEST(Rules, SgdMatchesTheFormula) {
  using T = TypeParam;
  constexpr double rate = 0.1;
  for (const rules::Settings& sgd :
       {testing::momentum_settings(0, false, 0.05), testing::momentum_settings(0.9, false, 0.05),
        testing::momentum_settings(0.9, true, 0)})
    for (const std::int64_t n : {1, 13, 128, 10001}) {
      const auto start = random_numbers<T>(n, 1);
      std::vector<double> w(start.begin(), start.end()), b(w.size());
      const DeviceArray<T> d_w(start), d_b(n);
      const double clip = 0.7;
      const DeviceArray<double> control(std::vector<double>{1, clip, 1, 1, 1, 1});
      for (int step = 1; step <= 3; ++step) {
        const auto gradient = random_numbers<T>(n, static_cast<unsigned>(1 + step));
        const DeviceArray<T> d_gradient(gradient);
        testing::run_pass<T>(
            "sgd_update",
            {d_w.flat(), d_gradient.flat(), sgd.momentum == 0 ? View1<T>() : d_b.flat()}, sgd, rate,
            control.flat());
        for (std::size_t i = 0; i < w.size(); ++i) {
          const double g = clip * gradient[i] + sgd.weight_decay * w[i];
          b[i] = sgd.momentum * b[i] + g;
          w[i] -= rate * (sgd.nesterov ? g + sgd.momentum * b[i] : b[i]);
        }
        const double bound = step * 16 * TestFixture::eps;
        expect_close(d_w.values(), w, [&](std::size_t i) { return bound * (1 + std::abs(w[i])); });
        if (sgd.momentum != 0)
          expect_close(d_b.values(), b,
                       [&](std::size_t i) { return bound * (1 + std::abs(b[i])); });
      }
    }
}

/// The factors of a rule's arrays from sums of squares.
void factors_of(OptimizerKind kind, const rules::Settings& settings,
                const DeviceArray<double>& factors, const std::vector<double>& weight_sums,
                const std::vector<double>& other_sums, std::int64_t parts,
                const DeviceArray<double>& control) {
  const std::vector<double> elements(weight_sums.size() / static_cast<std::size_t>(parts), 10.0);
  for (const rules::Pass& pass : rules::rule_of(kind).passes(settings))
    if (pass.kind == rules::PassKind::norms)
      find_factors(Exec{}, pass.number, factors.flat(), DeviceArray<double>(weight_sums).flat(),
                   DeviceArray<double>(other_sums).flat(), DeviceArray<double>(elements).flat(),
                   parts, {kind, settings, 0.1, control.flat(), {}, {}});
}

/// A step of LAMB by hand: m = (1 − β1) g, v = (1 − β2) g², so that without epsilon the direction
/// is sign(g) + decay w, scaled to the weight's norm.
TYPED_TEST(Rules, FirstLambStepFollowsTheSignOfTheGradient) {
  using T = TypeParam;
  const DeviceArray<T> w(std::vector<T>{3, 4}), m(2), v(2), g(std::vector<T>{T(0.25), -8});
  const DeviceArray<double> control(std::vector<double>{1, 1, 1 - 0.9, 1 - 0.95, 1, 1});
  const rules::Settings lamb = testing::adam_settings(1e-30, 0.5);
  testing::run_pass<T>("lamb_direction", {w.flat(), g.flat(), m.flat(), v.flat()}, lamb, 0.1,
                       control.flat());
  const auto direction = g.values();
  EXPECT_NEAR(direction[0], 1 + 0.5 * 3, 16 * TestFixture::eps);
  EXPECT_NEAR(direction[1], -1 + 0.5 * 4, 16 * TestFixture::eps);
  const DeviceArray<double> ratio(1);
  factors_of(OptimizerKind::lamb, lamb, ratio, {9, 16}, {6.25, 1}, 2, control);
  EXPECT_DOUBLE_EQ(ratio.values()[0], 5 / std::sqrt(7.25));
  testing::run_pass<T>("lamb_update", {w.flat(), g.flat(), {}, {}, ratio.flat()}, lamb, 0.1,
                       control.flat());
  EXPECT_NEAR(w.values()[0], 3 - 0.1 * 5 / std::sqrt(7.25) * 2.5, 16 * TestFixture::eps);
  EXPECT_NEAR(w.values()[1], 4 - 0.1 * 5 / std::sqrt(7.25), 16 * TestFixture::eps);
}

/// Arrays [3, 4] in two parts with the gradient [0.6, 0.8], then arrays with a norm of 0.
TEST(LarsFactors, UseTheClippedGradientAndTheDecay) {
  const DeviceArray<double> factors(3, 7.0), control(std::vector<double>{1, 0.5, 1, 1, 1, 1});
  rules::Settings lars = testing::momentum_settings(0.9, false, 0.1);
  lars.trust_coefficient = 0.02;
  factors_of(OptimizerKind::lars, lars, factors, {9, 16, 0, 0, 4, 0}, {0.36, 0.64, 1, 1, 0, 0}, 2,
             control);
  const auto found = factors.values();
  EXPECT_DOUBLE_EQ(found[0], 0.02 * 5 / (0.5 * 1 + 0.1 * 5));
  EXPECT_EQ(found[1], 1);
  EXPECT_EQ(found[2], 1);
}

TEST(LambFactors, AreOneIfANormIsZero) {
  const DeviceArray<double> factors(4, 7.0), control(std::vector<double>{1, 1, 1, 1, 1, 1});
  factors_of(OptimizerKind::lamb, testing::adam_settings(), factors, {0, 4, 0, 36}, {1, 0, 0, 4}, 1,
             control);
  EXPECT_EQ(factors.values(), (std::vector<double>{1, 1, 1, 3}));
}

}  // namespace
}  // namespace trireme::kernels
