#include <trireme/train/trainer.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

namespace trireme::train {
namespace {

Metrics metrics() {
  Metrics m;
  m.step = 20;
  m.loss = 5.6979;
  m.gradient_norm = 0.622;
  m.global_batch = 8;
  m.tokens_per_second = 10694;
  m.flops_utilization = 0.209;
  return m;
}

TEST(StepLine, ShowsStepEpochLossNormSpeedAndRemainingTime) {
  EXPECT_EQ(step_line(metrics(), 120, 0.42, 19, false),
            "step  20/120 epoch 0.42  loss 5.698 norm 0.62  10.7k tok/s 21% MFU  eta 0:19");
  EXPECT_EQ(step_line(metrics(), 120, 0.42, 19, true),
            "step  20/120 epoch 0.42 batch 8  loss 5.698 norm 0.62  10.7k tok/s  eta 0:19");
}

TEST(StepLine, NumbersHaveTheirSignificantDigits) {
  const auto line = [](double loss, double norm, double rate, double left) {
    Metrics m = metrics();
    m.loss = loss;
    m.gradient_norm = norm;
    m.tokens_per_second = rate;
    return step_line(m, 120, 12.345, left, false);
  };
  EXPECT_EQ(line(0.00473, 0.000042, 3521340, 3725),
            "step  20/120 epoch 12.3  loss 0.0047 norm 4.2e-5  3.52M tok/s  eta 1h02m");
  EXPECT_EQ(line(12.3456, 1234.5, 99.96, 3 * 86400 + 4 * 3600),
            "step  20/120 epoch 12.3  loss 12.346 norm 1.23k  100 tok/s 21% MFU  eta 3d04h");
  EXPECT_EQ(line(std::nan(""), std::numeric_limits<double>::infinity(), 0,
                 std::numeric_limits<double>::infinity()),
            "step  20/120 epoch 12.3  loss nan norm inf  0.00 tok/s 21% MFU  eta ?");
}

TEST(StepLine, HasAtMost79Columns) {
  for (const std::int64_t steps : {1, 120, 9999, 20000, 1000000, 100000000})
    for (const double loss : {0.0001, 5.6975, 12.3456, 12345.678})
      for (const double norm : {1e-9, 0.62, 123.4, 1e6})
        for (const double rate : {0.1, 999.6, 12345.0, 999.9e6})
          for (const double left : {0.0, 3599.9, 86399.0, 99 * 86400.0, 1e18})
            for (const std::int64_t batch : {0, 512, 1000000}) {
              Metrics m = metrics();
              m.step = steps;
              m.loss = loss;
              m.gradient_norm = norm;
              m.tokens_per_second = rate;
              m.global_batch = batch;
              const std::string line = step_line(m, steps, norm / 10, left, batch > 0);
              EXPECT_LE(line.size(), 79u) << line;
              EXPECT_NE(line.find(" eta "), std::string::npos) << line;
            }
}

}  // namespace
}  // namespace trireme::train
