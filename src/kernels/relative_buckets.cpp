#include <trireme/kernels/relative_buckets.hpp>

#include <trireme/base/check.hpp>

#include <cmath>

namespace trireme::kernels {
namespace {

/// Logarithms are computed in fp64 and rounded, because libraries differ in the last bit of fp32.
float log_of(double x) {
  return static_cast<float>(std::log(x));
}

}  // namespace

RelativeBuckets relative_buckets(std::int64_t count, std::int64_t max_distance, bool both_sides) {
  const std::int64_t side = both_sides ? count / 2 : count, near = side / 2;
  check(side >= 2 && side - near <= RelativeBuckets::most_far && (!both_sides || count % 2 == 0),
        count, " buckets of relative positions, expected ",
        both_sides ? "an even number from 4 to " : "2 to ",
        (both_sides ? 4 : 2) * RelativeBuckets::most_far);
  check(max_distance > near && max_distance <= 1 << 24, "relative positions up to ", max_distance,
        ", expected ", near + 1, " to ", 1 << 24, " with ", count, " buckets");
  RelativeBuckets b;
  b.count = static_cast<int>(count);
  b.side = static_cast<int>(side);
  b.near = static_cast<int>(near);
  b.both_sides = both_sides;
  const float range = log_of(static_cast<double>(max_distance) / static_cast<double>(near));
  const auto far = static_cast<float>(side - near);
  int known = 0;  // buckets whose smallest distance has been found
  for (std::int64_t distance = near; known < side - near; ++distance) {
    const float share = static_cast<float>(distance) / static_cast<float>(near);
    const auto bucket = static_cast<int>(log_of(static_cast<double>(share)) / range * far);
    while (known <= bucket && known < side - near)
      b.far[known++] = static_cast<std::int32_t>(distance);
  }
  return b;
}

}  // namespace trireme::kernels
