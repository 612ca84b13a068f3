// Resizes images: coefficients in fixed point for each row or column of the result, rows first, in
// strips of the result so that little memory holds the rows between the two passes.
#include <trireme/io/image_resize.hpp>

#include <trireme/base/check.hpp>

#include <algorithm>
#include <cmath>
#include <vector>

namespace trireme::io {
namespace {

constexpr int fraction_bits = 22;  // 32 bits without 8 of a pixel and 2 of sums beyond 255
constexpr double kernel_support = 2;
constexpr std::int64_t strip_rows = 64;

/// Cubic convolution, a = -1/2. Keys 1981, equation 4.
double bicubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

/// Coefficients of results [first, first + count) along a side of n pixels that becomes m.
struct Coefficients {
  struct Range {
    std::int64_t first;  ///< first input pixel
    std::int64_t count;
  };
  Coefficients(std::int64_t n, std::int64_t m, std::int64_t first, std::int64_t count);
  const std::int32_t* of(std::int64_t i) const { return values.data() + i * most; }

  std::int64_t most;  ///< most coefficients of a result
  std::vector<Range> ranges;
  std::vector<std::int32_t> values;  // [count, most]
};

Coefficients::Coefficients(std::int64_t n, std::int64_t m, std::int64_t first, std::int64_t count) {
  const double scale = static_cast<double>(n) / static_cast<double>(m);
  const double stretch = std::max(scale, 1.0);
  const double support = kernel_support * stretch;
  most = static_cast<std::int64_t>(std::ceil(support)) * 2 + 1;
  values.resize(static_cast<std::size_t>(count * most));
  std::vector<double> weights(static_cast<std::size_t>(most));
  for (std::int64_t i = 0; i < count; ++i) {
    const double center = (static_cast<double>(first + i) + 0.5) * scale;
    // Conversions round towards zero, also below 0.
    const auto begin = std::max<std::int64_t>(static_cast<std::int64_t>(center - support + 0.5), 0);
    const auto end = std::min<std::int64_t>(static_cast<std::int64_t>(center + support + 0.5), n);
    double sum = 0;
    for (std::int64_t j = begin; j < end; ++j) {
      const double weight = bicubic((static_cast<double>(j) - center + 0.5) * (1 / stretch));
      weights[static_cast<std::size_t>(j - begin)] = weight;
      sum += weight;
    }
    for (std::int64_t j = 0; j < end - begin; ++j) {
      const double weight = weights[static_cast<std::size_t>(j)] / (sum != 0 ? sum : 1);
      values[static_cast<std::size_t>(i * most + j)] =
          static_cast<std::int32_t>(weight * (1 << fraction_bits) + (weight < 0 ? -0.5 : 0.5));
    }
    ranges.push_back({begin, end - begin});
  }
}

std::uint8_t rounded(std::int32_t sum) {
  return static_cast<std::uint8_t>(std::clamp(sum >> fraction_bits, 0, 255));
}

constexpr std::int32_t half = 1 << (fraction_bits - 1);

/// One row of the result of the first pass.
void resize_row(const std::uint8_t* row, const Coefficients& columns, std::uint8_t* out) {
  for (std::int64_t i = 0; i < std::ssize(columns.ranges); ++i, out += 3) {
    const auto [first, count] = columns.ranges[static_cast<std::size_t>(i)];
    const std::int32_t* coefficient = columns.of(i);
    const std::uint8_t* pixel = row + first * 3;
    std::int32_t red = half;
    std::int32_t green = half;
    std::int32_t blue = half;
    for (std::int64_t j = 0; j < count; ++j, pixel += 3) {
      red += coefficient[j] * pixel[0];
      green += coefficient[j] * pixel[1];
      blue += coefficient[j] * pixel[2];
    }
    out[0] = rounded(red);
    out[1] = rounded(green);
    out[2] = rounded(blue);
  }
}

/// One row of the result: sums of `count` rows of `width` bytes.
void resize_columns(const std::uint8_t* rows, const std::int32_t* coefficient, std::int64_t count,
                    std::int64_t width, std::vector<std::int32_t>& sums, std::uint8_t* out) {
  sums.assign(static_cast<std::size_t>(width), half);
  for (std::int64_t j = 0; j < count; ++j)
    for (std::int64_t x = 0; x < width; ++x)
      sums[static_cast<std::size_t>(x)] += coefficient[j] * rows[j * width + x];
  std::ranges::transform(sums, out, rounded);
}

}  // namespace

ImageFit image_fit(std::string_view word) {
  const auto* found = std::ranges::find(image_fit_names, word);
  check(found != std::end(image_fit_names), "'", word, "' is no way to fit an image");
  return static_cast<ImageFit>(found - image_fit_names);
}

Image resize(const Image& image, std::int64_t full_width, std::int64_t full_height,
             std::int64_t left, std::int64_t top, std::int64_t width, std::int64_t height) {
  check(left >= 0 && width >= 1 && left <= full_width - width && top >= 0 && height >= 1 &&
            top <= full_height - height,
        "a part of ", width, " x ", height, " pixels from ", left, ", ", top,
        " is outside an image of ", full_width, " x ", full_height);
  const std::int64_t row_bytes = width * 3;
  Image out{width, height, std::vector<std::uint8_t>(static_cast<std::size_t>(height * row_bytes))};
  const Coefficients columns(image.width, full_width, left, width);
  const Coefficients rows(image.height, full_height, top, height);
  std::vector<std::uint8_t> strip;
  std::vector<std::int32_t> sums;
  for (std::int64_t begin = 0; begin < height; begin += strip_rows) {
    const std::int64_t end = std::min(begin + strip_rows, height);
    const std::int64_t first_row = rows.ranges[static_cast<std::size_t>(begin)].first;
    const auto [last_first, last_count] = rows.ranges[static_cast<std::size_t>(end - 1)];
    const std::int64_t end_row = last_first + last_count;
    strip.resize(static_cast<std::size_t>((end_row - first_row) * row_bytes));
    for (std::int64_t y = first_row; y < end_row; ++y) {
      const std::uint8_t* from = image.pixels.data() + y * image.width * 3;
      std::uint8_t* to = strip.data() + (y - first_row) * row_bytes;
      if (full_width == image.width)
        std::copy_n(from + left * 3, row_bytes, to);
      else
        resize_row(from, columns, to);
    }
    for (std::int64_t y = begin; y < end; ++y) {
      const auto [first, count] = rows.ranges[static_cast<std::size_t>(y)];
      std::uint8_t* to = out.pixels.data() + y * row_bytes;
      if (full_height == image.height)
        std::copy_n(strip.data() + (top + y - first_row) * row_bytes, row_bytes, to);
      else
        resize_columns(strip.data() + (first - first_row) * row_bytes, rows.of(y), count, row_bytes,
                       sums, to);
    }
  }
  return out;
}

Image fitted(const Image& image, std::int64_t size, ImageFit fit) {
  const std::int64_t shorter = std::min(image.width, image.height);
  const std::int64_t longer = std::max(image.width, image.height);
  const bool wide = image.width > image.height;
  switch (fit) {
    case ImageFit::stretch:
      return resize(image, size, size, 0, 0, size, size);
    case ImageFit::crop: {
      const std::int64_t full = size * longer / shorter;
      const std::int64_t begin = (full - size) / 2;
      return resize(image, wide ? full : size, wide ? size : full, wide ? begin : 0,
                    wide ? 0 : begin, size, size);
    }
    case ImageFit::pad: {
      const std::int64_t part =
          std::max<std::int64_t>((2 * size * shorter + longer) / (2 * longer), 1);
      const std::int64_t width = wide ? size : part;
      const std::int64_t height = wide ? part : size;
      const Image inner = resize(image, width, height, 0, 0, width, height);
      Image out{size, size, std::vector<std::uint8_t>(static_cast<std::size_t>(size * size * 3))};
      const std::int64_t left = (size - width) / 2;
      const std::int64_t top = (size - height) / 2;
      for (std::int64_t y = 0; y < height; ++y)
        std::copy_n(inner.pixels.data() + y * width * 3, width * 3,
                    out.pixels.data() + ((top + y) * size + left) * 3);
      return out;
    }
  }
  return {};
}

}  // namespace trireme::io
