// Patches of images, and rows of images in the places of tokens.
#include <trireme/kernels/images.hpp>

#include <trireme/base/check.hpp>
#include <trireme/kernels/elementwise.hpp>
#include <trireme/kernels/packs.hpp>
#include <trireme/tensor/expect.hpp>

namespace trireme::kernels {

template <class T>
void image_patches(const Exec& exec, View2<T> x, View1<const std::int32_t> pixels,
                   const ImageShape& shape, std::int64_t first_row) {
  using Acc = Accumulate<T>;
  check(shape.patch > 0 && shape.size % shape.patch == 0, "patches of ", shape.patch,
        " pixels in images of ", shape.size);
  const std::int64_t patch = shape.patch, values = 3 * patch * patch;
  expect_shape(x, "x", {extent(x, 0), values});
  const std::int64_t words = shape.words(), rows = shape.rows(), side = shape.side();
  check(extent(pixels, 0) % words == 0, extent(pixels, 0), " words of pixels, expected ", words,
        " for each sample");
  check(
      first_row >= 0 && first_row + extent(x, 0) <= extent(pixels, 0) / words * shape.images * rows,
      "rows [", first_row, ", ", first_row + extent(x, 0), ") are not within the ", rows,
      " rows of each image");
  const ImageShape s = shape;
  const std::int64_t before = shape.class_token ? 1 : 0;
  for_rows(
      "kernels/image_patches", exec, extent(x, 0), KOKKOS_LAMBDA(const Team& team, std::int64_t r) {
        T* x_row = row_of(x, r);
        const std::int64_t image = (first_row + r) / rows;
        const std::int64_t place = (first_row + r) % rows - before;
        if (place < 0) {
          map_lanes(team, values, x_row, [](std::int64_t) { return T(0); });
          return;
        }
        const auto* bytes =
            reinterpret_cast<const std::uint8_t*>(pixels.data() + image / s.images * words);
        bytes += image % s.images * 3 * s.size * s.size;
        const std::int64_t top = place / side * patch, left = place % side * patch;
        for_lanes(team, values, [&](std::int64_t i) {
          const std::int64_t colour = i / (patch * patch);
          const std::int64_t line = i / patch % patch, column = i % patch;
          const Acc v =
              static_cast<Acc>(bytes[((top + line) * s.size + left + column) * 3 + colour]);
          const Acc mean = static_cast<Acc>(s.mean[colour]);
          const Acc deviation = static_cast<Acc>(s.deviation[colour]);
          x_row[i] = static_cast<T>((v / Acc(255) - mean) / deviation);
        });
      });
}

namespace {

/// First row r ≥ 0 with (first_row + r) mod rows = 0.
std::int64_t first_of_image(std::int64_t rows, std::int64_t first_row) {
  check(rows >= 1 && first_row >= 0, "images of ", rows, " rows from row ", first_row);
  return (rows - first_row % rows) % rows;
}

}  // namespace

template <class T>
void add_class_token(const Exec& exec, View2<T> y, View1<const T> token, std::int64_t rows,
                     std::int64_t first_row) {
  using Acc = Accumulate<T>;
  const std::int64_t columns = extent(y, 1);
  expect_shape(token, "token", {columns});
  const std::int64_t first = first_of_image(rows, first_row);
  const std::int64_t images = first < extent(y, 0) ? (extent(y, 0) - first - 1) / rows + 1 : 0;
  for_rows(
      "kernels/add_class_token", exec, images, KOKKOS_LAMBDA(const Team& team, std::int64_t i) {
        T* y_row = row_of(y, first + i * rows);
        const T* from = token.data();
        map_lanes(
            team, columns, y_row, [](std::int64_t, Acc v, Acc more) { return v + more; }, y_row,
            from);
      });
}

template <class T>
void class_token_backward(const Exec& exec, View1<Accumulate<T>> dtoken, View2<const T> dy,
                          std::int64_t rows, std::int64_t first_row) {
  using Acc = Accumulate<T>;
  expect_shape(dtoken, "dtoken", {extent(dy, 1)});
  const std::int64_t first = first_of_image(rows, first_row), all = extent(dy, 0);
  for_chunks(
      "kernels/class_token_backward", exec, extent(dy, 1),
      KOKKOS_LAMBDA(const Team& team, std::int64_t begin, std::int64_t count) {
        Acc* to = dtoken.data() + begin;
        for (std::int64_t r = first; r < all; r += rows) {
          const T* from = row_of(dy, r) + begin;
          map_lanes(
              team, count, to, [](std::int64_t, Acc sum, Acc v) { return sum + v; }, to, from);
        }
      });
}

namespace {

/// Number of images of `rows` squares.
std::int64_t expect_squares(const PatchSquares& s, std::int64_t rows) {
  check(s.pool >= 1 && s.side >= 1 && s.side % s.pool == 0, "squares of ", s.pool,
        " patches in images of ", s.side);
  check(rows % s.squares() == 0, rows, " squares, expected ", s.squares(), " for each image");
  return rows / s.squares();
}

}  // namespace

template <class T>
void pool_patches(const Exec& exec, View2<T> y, View2<const T> x, const PatchSquares& squares) {
  using Acc = Accumulate<T>;
  const std::int64_t columns = extent(y, 1);
  expect_shape(x, "x", {expect_squares(squares, extent(y, 0)) * squares.patches(), columns});
  const PatchSquares s = squares;
  const std::int64_t across = s.side / s.pool, all = s.squares();
  for_rows(
      "kernels/pool_patches", exec, extent(y, 0), KOKKOS_LAMBDA(const Team& team, std::int64_t r) {
        const std::int64_t top = r % all / across * s.pool, left = r % across * s.pool;
        const std::int64_t first = r / all * s.patches() + top * s.side + left;
        T* to = row_of(y, r);
        for_lanes(team, columns, [&](std::int64_t d) {
          Acc sum = 0;
          for (std::int64_t line = 0; line < s.pool; ++line)
            for (std::int64_t column = 0; column < s.pool; ++column)
              sum += static_cast<Acc>(x(first + line * s.side + column, d));
          to[d] = static_cast<T>(sum / static_cast<Acc>(s.pool * s.pool));
        });
      });
}

template <class T>
void pool_patches_backward(const Exec& exec, View2<T> dx, View2<const T> dy,
                           const PatchSquares& squares, std::int64_t first_row) {
  using Acc = Accumulate<T>;
  const std::int64_t columns = extent(dx, 1);
  const std::int64_t images = expect_squares(squares, extent(dy, 0));
  expect_shape(dy, "dy", {extent(dy, 0), columns});
  check(first_row >= 0 && first_row + extent(dx, 0) <= images * squares.patches(), "rows [",
        first_row, ", ", first_row + extent(dx, 0), ") are not within the ", squares.patches(),
        " patches of each image");
  const PatchSquares s = squares;
  const std::int64_t across = s.side / s.pool, all = s.squares();
  for_rows(
      "kernels/pool_patches_backward", exec, extent(dx, 0),
      KOKKOS_LAMBDA(const Team& team, std::int64_t r) {
        const std::int64_t image = (first_row + r) / s.patches();
        const std::int64_t patch = (first_row + r) % s.patches();
        const std::int64_t square = patch / s.side / s.pool * across + patch % s.side / s.pool;
        const T* from = row_of(dy, image * all + square);
        const Acc number = static_cast<Acc>(s.pool * s.pool);
        map_lanes(
            team, columns, row_of(dx, r), [=](std::int64_t, Acc d) { return d / number; }, from);
      });
}

namespace {

template <class T>
std::int64_t expect_places(View2<T> images, View1<const std::int32_t> rows, std::int64_t held,
                           const ImagePlaces& places) {
  const std::int64_t tokens = extent(rows, 0);
  check(places.sequence >= 1 && tokens % places.sequence == 0 && places.first_row >= 0 &&
            places.first_row + held <= tokens,
        "rows [", places.first_row, ", ", places.first_row + held, ") of ", tokens,
        " tokens in samples of ", places.sequence);
  check(extent(images, 0) == tokens / places.sequence * places.image_rows, extent(images, 0),
        " rows of images, expected ", places.image_rows, " for each sample");
  return extent(images, 1);
}

}  // namespace

template <class T>
void splice_images(const Exec& exec, View2<T> y, View2<const T> x, View2<const T> images,
                   View1<const std::int32_t> rows, const ImagePlaces& places) {
  const std::int64_t columns = expect_places(images, rows, extent(y, 0), places);
  expect_shape(y, "y", {extent(y, 0), columns});
  expect_shape(x, "x", {extent(y, 0), columns});
  const ImagePlaces p = places;
  for_rows(
      "kernels/splice_images", exec, extent(y, 0), KOKKOS_LAMBDA(const Team& team, std::int64_t r) {
        const std::int64_t token = p.first_row + r, image = rows(token);
        T* to = row_of(y, r);
        const T* from =
            image < 0 ? row_of(x, r) : row_of(images, token / p.sequence * p.image_rows + image);
        copy_lanes(team, columns, to, from);
      });
}

template <class T>
void splice_images_backward(const Exec& exec, View2<T> dx, View2<T> dimages, View2<const T> dy,
                            View1<const std::int32_t> rows, const ImagePlaces& places) {
  const std::int64_t columns = expect_places(dimages, rows, extent(dy, 0), places);
  expect_shape(dy, "dy", {extent(dy, 0), columns});
  expect_shape(dx, "dx", {extent(dy, 0), columns});
  fill(exec, flat(dimages), 0.0);
  using Acc = Accumulate<T>;
  const ImagePlaces p = places;
  for_rows(
      "kernels/splice_images_backward", exec, extent(dy, 0),
      KOKKOS_LAMBDA(const Team& team, std::int64_t r) {
        const std::int64_t token = p.first_row + r, image = rows(token);
        T* dx_row = row_of(dx, r);
        const T* dy_row = row_of(dy, r);
        if (image < 0) {
          if (dx_row != dy_row) copy_lanes(team, columns, dx_row, dy_row);
          return;
        }
        T* to = row_of(dimages, token / p.sequence * p.image_rows + image);
        map_lanes_to_two(
            team, columns, to, dx_row,
            [](std::int64_t, Acc d) {
              return Two<Acc>{d, Acc(0)};
            },
            dy_row);
      });
}

#define TRIREME_INSTANTIATE(T)                                                               \
  template void image_patches<T>(const Exec&, View2<T>, View1<const std::int32_t>,           \
                                 const ImageShape&, std::int64_t);                           \
  template void add_class_token<T>(const Exec&, View2<T>, View1<const T>, std::int64_t,      \
                                   std::int64_t);                                            \
  template void class_token_backward<T>(const Exec&, View1<Accumulate<T>>, View2<const T>,   \
                                        std::int64_t, std::int64_t);                         \
  template void pool_patches<T>(const Exec&, View2<T>, View2<const T>, const PatchSquares&); \
  template void pool_patches_backward<T>(const Exec&, View2<T>, View2<const T>,              \
                                         const PatchSquares&, std::int64_t);                 \
  template void splice_images<T>(const Exec&, View2<T>, View2<const T>, View2<const T>,      \
                                 View1<const std::int32_t>, const ImagePlaces&);             \
  template void splice_images_backward<T>(const Exec&, View2<T>, View2<T>, View2<const T>,   \
                                          View1<const std::int32_t>, const ImagePlaces&);
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(Bf16)
TRIREME_INSTANTIATE(Fp16)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels
