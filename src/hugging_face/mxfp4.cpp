#include <trireme/hugging_face/mxfp4.hpp>

#include <array>
#include <cmath>
#include <limits>

namespace trireme::hugging_face {
namespace {

/// Values of E2M1: a sign bit, two exponent bits with bias 1, and a mantissa bit.
constexpr std::array<double, 16> e2m1{0,    0.5,  1,  1.5,  2,  3,  4,  6,
                                      -0.0, -0.5, -1, -1.5, -2, -3, -4, -6};

/// 2^(exponent − 127). Double holds every product with a value of E2M1 exactly.
double scale_of(std::uint8_t exponent) {
  return exponent == 255 ? std::numeric_limits<double>::quiet_NaN()
                         : std::ldexp(1.0, exponent - 127);
}

}  // namespace

void decode_mxfp4(const std::uint8_t* codes, const std::uint8_t* scales, std::int64_t first,
                  std::int64_t count, double* out) {
  std::int64_t block = -1;
  double scale = 0;
  for (std::int64_t i = first; i < first + count; ++i) {
    if (i / mxfp4_block != block) {
      block = i / mxfp4_block;
      scale = scale_of(scales[block - first / mxfp4_block]);
    }
    const int code = codes[i / 2 - first / 2] >> (i % 2 == 0 ? 0 : 4) & 15;
    out[i - first] = e2m1[static_cast<std::size_t>(code)] * scale;
  }
}

}  // namespace trireme::hugging_face
