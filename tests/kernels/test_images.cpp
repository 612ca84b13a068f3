/// Patches of images, class tokens, and rows of images in the places of tokens: whole, and in parts
/// as ranks compute them.

#include <trireme/kernels/elementwise.hpp>
#include <trireme/kernels/images.hpp>

#include <kernels/cases.hpp>
#include <kernels/tokens.hpp>
#include <reference/parts.hpp>
#include <support/device_array.hpp>
#include <support/numbers.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace trireme::kernels {
namespace {

using reference::uneven_parts;
using testing::DeviceArray;
using testing::expect_close;
using testing::random_numbers;
using testing::rows_of;

template <class T>
class Images : public ::testing::Test {
 protected:
  static constexpr double eps = std::numeric_limits<T>::epsilon();
};
TYPED_TEST_SUITE(Images, WideTypes);

/// (size, patch, images of a sample, class token)
using Case = std::tuple<std::int64_t, std::int64_t, std::int64_t, bool>;
const std::vector<Case> image_cases{
    {1, 1, 1, false}, {5, 5, 3, true}, {6, 2, 1, false}, {9, 3, 2, true}, {14, 7, 3, true}};

std::vector<std::uint8_t> random_bytes(std::int64_t count) {
  std::vector<std::uint8_t> bytes;
  for (std::int64_t i = 0; i < count; ++i)
    bytes.push_back(static_cast<std::uint8_t>((i + 3) * 2654435761 % 4294967296 >> 23));
  return bytes;
}

TYPED_TEST(Images, PatchesAreTheNormalisedPixels) {
  using T = TypeParam;
  constexpr std::int64_t samples = 2;
  for (const auto& [size, patch, images, class_token] : image_cases) {
    ImageShape shape;
    shape.images = images;
    shape.size = size;
    shape.patch = patch;
    shape.class_token = class_token;
    shape.mean[1] = 0.25;
    shape.deviation[2] = 0.3;
    const std::int64_t words = shape.words(), rows = samples * images * shape.rows();
    const auto bytes = random_bytes(samples * words * 4);
    std::vector<std::int32_t> numbers(static_cast<std::size_t>(samples * words));
    std::memcpy(numbers.data(), bytes.data(), bytes.size());
    const std::int64_t values = 3 * patch * patch;
    std::vector<double> expected;
    for (std::int64_t sample = 0; sample < samples; ++sample)
      for (std::int64_t image = 0; image < images; ++image) {
        const std::int64_t first = sample * words * 4 + image * 3 * size * size;
        if (class_token) expected.insert(expected.end(), static_cast<std::size_t>(values), 0.0);
        for (std::int64_t top = 0; top < size; top += patch)
          for (std::int64_t left = 0; left < size; left += patch)
            for (std::int64_t colour = 0; colour < 3; ++colour)
              for (std::int64_t y = top; y < top + patch; ++y)
                for (std::int64_t x = left; x < left + patch; ++x) {
                  const double v =
                      bytes[static_cast<std::size_t>(first + (y * size + x) * 3 + colour)] / 255.0;
                  expected.push_back((v - shape.mean[colour]) / shape.deviation[colour]);
                }
      }
    const DeviceArray<std::int32_t> pixels(numbers);
    const DeviceArray<T> x(rows * values);
    const auto parts = uneven_parts(rows, 3);
    for (std::size_t p = 0; p + 1 < parts.size(); ++p)
      image_patches<T>(Exec{}, rows_of(x, values, parts[p], parts[p + 1]), pixels.flat(), shape,
                       parts[p]);
    // A quotient, a difference of numbers up to 1, a quotient by 0.3 or more, and the store.
    expect_close(x.values(), expected, [&](std::size_t) { return 12 * TestFixture::eps; });
    EXPECT_THROW(image_patches<T>(Exec{}, x.matrix(rows, values), pixels.flat(), shape, 1), Error);
  }
}

TYPED_TEST(Images, ClassTokensAreAddedToTheFirstRows) {
  using T = TypeParam;
  for (const std::int64_t rows : {1, 2, 7})
    for (const std::int64_t columns : small_sizes) {
      const std::int64_t all = 3 * rows;
      const auto y = random_numbers<T>(all * columns, 1);
      const auto token = random_numbers<T>(columns, 2);
      std::vector<double> expected(y.begin(), y.end()), sums = random_numbers<T>(columns, 3);
      std::vector<double> sizes;  // Σ of the terms' magnitudes
      for (const double value : sums) sizes.push_back(std::abs(value));
      const DeviceArray<T> d_token(token), d_y(y), d_sums(sums);
      for (std::int64_t r = 0; r < all; r += rows)
        for (std::int64_t d = 0; d < columns; ++d) {
          const auto at = static_cast<std::size_t>(r * columns + d);
          sums[static_cast<std::size_t>(d)] += y[at];
          sizes[static_cast<std::size_t>(d)] += std::abs(y[at]);
          expected[at] += token[static_cast<std::size_t>(d)];
        }
      const auto parts = uneven_parts(all, 2);
      for (std::size_t p = 0; p + 1 < parts.size(); ++p) {
        const auto part = rows_of(d_y, columns, parts[p], parts[p + 1]);
        class_token_backward<T>(Exec{}, d_sums.flat(), part, rows, parts[p]);
        add_class_token<T>(Exec{}, part, d_token.flat(), rows, parts[p]);
      }
      // One rounding, and three.
      expect_close(d_y.values(), expected,
                   [&](std::size_t i) { return TestFixture::eps * std::abs(expected[i]); });
      expect_close(d_sums.values(), sums,
                   [&](std::size_t i) { return 2 * TestFixture::eps * sizes[i]; });
    }
}

/// Tokens of two samples of 5; the second sample has no row of image 1.
const std::vector<std::int32_t> image_of_token{-1, 2, 0, -1, 1, 3, -1, -1, 0, 2};
constexpr ImagePlaces places_of_all{5, 4, 0};

TYPED_TEST(Images, RowsOfImagesTakeThePlacesOfTokens) {
  using T = TypeParam;
  for (const std::int64_t columns : small_sizes) {
    const auto x = random_numbers<T>(10 * columns, 1), images = random_numbers<T>(8 * columns, 2);
    const auto dy = random_numbers<T>(10 * columns, 3);
    std::vector<double> y, dx, dimages(images.size(), 0.0);
    for (std::int64_t t = 0; t < 10; ++t)
      for (std::int64_t d = 0; d < columns; ++d) {
        const std::int64_t row = image_of_token[static_cast<std::size_t>(t)];
        const auto at = static_cast<std::size_t>(t * columns + d);
        const auto of_image = static_cast<std::size_t>((t / 5 * 4 + row) * columns + d);
        y.push_back(row < 0 ? x[at] : images[of_image]);
        dx.push_back(row < 0 ? dy[at] : 0);
        if (row >= 0) dimages[of_image] = dy[at];
      }
    const DeviceArray<std::int32_t> rows(image_of_token);
    const DeviceArray<T> d_x(x), d_images(images), d_dy(dy);
    const DeviceArray<T> d_y(10 * columns), some(8 * columns), sum(8 * columns);
    const auto parts = uneven_parts(10, 3);
    for (std::size_t p = 0; p + 1 < parts.size(); ++p) {
      ImagePlaces places = places_of_all;
      places.first_row = parts[p];
      const auto part = [&](const DeviceArray<T>& array) {
        return rows_of(array, columns, parts[p], parts[p + 1]);
      };
      splice_images<T>(Exec{}, part(d_y), part(d_x), d_images.matrix(8, columns), rows.flat(),
                       places);
      fill<T>(Exec{}, some.flat(), std::numeric_limits<double>::quiet_NaN());
      splice_images_backward<T>(Exec{}, part(d_dy), some.matrix(8, columns), part(d_dy),
                                rows.flat(), places);
      accumulate<T>(Exec{}, sum.flat(), some.flat());
    }
    const auto exact = [](std::size_t) { return 0.0; };
    expect_close(d_y.values(), y, exact);
    expect_close(d_dy.values(), dx, exact);  // in place
    expect_close(sum.values(), dimages, exact);
  }
}

TYPED_TEST(Images, SquaresOfPatchesHaveTheirMeans) {
  using T = TypeParam;
  constexpr std::int64_t images = 3;
  for (const auto& [side, pool] :
       {std::pair<std::int64_t, std::int64_t>{1, 1}, {4, 2}, {6, 3}, {6, 2}, {5, 5}})
    for (const std::int64_t columns : small_sizes) {
      const PatchSquares squares{side, pool};
      const std::int64_t patches = images * side * side, across = side / pool;
      const std::int64_t means = images * across * across;
      const auto x = random_numbers<T>(patches * columns, 1),
                 dy = random_numbers<T>(means * columns, 2);
      std::vector<double> y(static_cast<std::size_t>(means * columns)), sizes(y), dx;
      const double number = static_cast<double>(pool * pool);
      for (std::int64_t image = 0; image < images; ++image)
        for (std::int64_t line = 0; line < side; ++line)
          for (std::int64_t column = 0; column < side; ++column)
            for (std::int64_t d = 0; d < columns; ++d) {
              const auto at = static_cast<std::size_t>(
                  (image * side * side + line * side + column) * columns + d);
              const auto square = static_cast<std::size_t>(
                  ((image * across + line / pool) * across + column / pool) * columns + d);
              y[square] += x[at] / number;
              sizes[square] += std::abs(x[at]) / number;
              dx.push_back(dy[square] / number);
            }
      const DeviceArray<T> d_x(x), d_y(means * columns), d_dy(dy), d_dx(patches * columns);
      pool_patches<T>(Exec{}, d_y.matrix(means, columns), d_x.matrix(patches, columns), squares);
      const auto parts = uneven_parts(patches, 3);
      for (std::size_t p = 0; p + 1 < parts.size(); ++p)
        pool_patches_backward<T>(Exec{}, rows_of(d_dx, columns, parts[p], parts[p + 1]),
                                 d_dy.matrix(means, columns), squares, parts[p]);
      // A sum of `number` terms in any order, here and there, and the quotient.
      expect_close(d_y.values(), y,
                   [&](std::size_t i) { return (2 * number + 1) * TestFixture::eps * sizes[i]; });
      expect_close(d_dx.values(), dx,
                   [&](std::size_t i) { return TestFixture::eps * std::abs(dx[i]); });
      EXPECT_THROW(pool_patches_backward<T>(Exec{}, d_dx.matrix(patches, columns),
                                            d_dy.matrix(means, columns), squares, 1),
                   Error);
      EXPECT_THROW(pool_patches<T>(Exec{}, d_y.matrix(means, columns), d_x.matrix(patches, columns),
                                   {side, pool + side}),
                   Error);
    }
}

TYPED_TEST(Images, WrongShapesAreErrors) {
  using T = TypeParam;
  const DeviceArray<std::int32_t> rows(image_of_token);
  const DeviceArray<T> x(20), images(16);
  const auto splice = [&](std::int64_t image_rows, const ImagePlaces& places) {
    splice_images<T>(Exec{}, x.matrix(10, 2), x.matrix(10, 2), images.matrix(image_rows, 2),
                     rows.flat(), places);
  };
  EXPECT_NO_THROW(splice(8, places_of_all));
  EXPECT_THROW(splice(7, places_of_all), Error);
  EXPECT_THROW(splice(8, {5, 4, 1}), Error);
  EXPECT_THROW(splice(8, {3, 4, 0}), Error);
  ImageShape shape;
  shape.size = 5;
  shape.patch = 2;
  EXPECT_THROW(image_patches<T>(Exec{}, x.matrix(1, 12), rows.flat(), shape, 0), Error);
  EXPECT_THROW(add_class_token<T>(Exec{}, x.matrix(10, 2), images.flat(), 5, 0), Error);
}

}  // namespace
}  // namespace trireme::kernels
