#pragma once

#include <trireme/base/types.hpp>
#include <trireme/tensor/views.hpp>

#include <cstdint>

/// Kernels of models that see images. Asynchronous on exec; instantiated for float, double, Bf16
/// and Fp16.
namespace trireme::kernels {

/// The images of a sample, and their rows in an encoder (Dosovitskiy et al. 2020, arXiv 2010.11929,
/// section 3.1): P = (size / patch)² rows of patches, row by row of the image, after one row of a
/// class token if there is one.
struct ImageShape {
  std::int64_t images = 1;  ///< I: images of a sample
  std::int64_t size = 0;    ///< pixels of a side
  std::int64_t patch = 0;   ///< pixels of a patch's side
  bool class_token = false;
  /// A pixel's value v in 0 … 255 becomes (v / 255 − mean) / deviation, for red, green and blue.
  double mean[3] = {0.5, 0.5, 0.5};
  double deviation[3] = {0.5, 0.5, 0.5};

  std::int64_t side() const { return size / patch; }  ///< patches of a side
  /// Rows of an image.
  std::int64_t rows() const { return side() * side() + (class_token ? 1 : 0); }
  /// Words of four bytes of a sample: its images [I, size, size, 3] of bytes, and padding.
  std::int64_t words() const { return (images * 3 * size * size + 3) / 4; }
};

/// x[r] = the values of the patch of row first_row + r, in the order colour, line, column of a
/// convolution's weights; zeros in the row of a class token. x [R, 3 patch²]; pixels [B words()].
/// Error if the pixels are not those of whole samples.
template <class T>
void image_patches(const Exec& exec, View2<T> x, View1<const std::int32_t> pixels,
                   const ImageShape& shape, std::int64_t first_row);

/// y[r] += token, for each row r that is the first of an image: (first_row + r) mod rows = 0.
/// y [R, D]; token [D].
template <class T>
void add_class_token(const Exec& exec, View2<T> y, View1<const T> token, std::int64_t rows,
                     std::int64_t first_row);
/// dtoken += Σ dy over these rows, in ascending order. dtoken [D]; dy [R, D].
template <class T>
void class_token_backward(const Exec& exec, View1<Accumulate<T>> dtoken, View2<const T> dy,
                          std::int64_t rows, std::int64_t first_row);

/// Squares of `pool` × `pool` patches in images of `side` × `side` patches, row by row.
struct PatchSquares {
  std::int64_t side = 0;  ///< a multiple of `pool`
  std::int64_t pool = 1;
  std::int64_t patches() const { return side * side; }  ///< of an image
  std::int64_t squares() const { return patches() / (pool * pool); }
};

/// y[s] = mean of x over the patches of square s. y [N squares(), D]; x [N patches(), D], for N
/// whole images.
template <class T>
void pool_patches(const Exec& exec, View2<T> y, View2<const T> x, const PatchSquares& squares);
/// The gradient of pool_patches for the patches from first_row on: dx[r] = dy[s] / pool², where s
/// is the square of patch first_row + r. dx [R, D]; dy [N squares(), D].
template <class T>
void pool_patches_backward(const Exec& exec, View2<T> dx, View2<const T> dy,
                           const PatchSquares& squares, std::int64_t first_row);

/// The tokens of whole samples, of which a rank has consecutive rows, and the rows of their images.
struct ImagePlaces {
  std::int64_t sequence = 0;    ///< S: tokens of a sample
  std::int64_t image_rows = 0;  ///< rows of images of a sample
  std::int64_t first_row = 0;   ///< number of the rank's first row of tokens
};

/// y[r] = x[r], or row b · image_rows + i of `images` if the row's token t = first_row + r of
/// sample b = ⌊t / S⌋ has i = rows[t] ≥ 0. x, y [R, D], without overlap; images [B image_rows, D];
/// rows [B S]. At most one token of a sample may have an i, and i < image_rows: other values are
/// errors of the caller that are not found.
template <class T>
void splice_images(const Exec& exec, View2<T> y, View2<const T> x, View2<const T> images,
                   View1<const std::int32_t> rows, const ImagePlaces& places);
/// The gradients of splice_images: dx = dy, or 0 where y has an image's row; dimages = dy there,
/// and 0 in rows that no token of this rank has. dx may be dy.
template <class T>
void splice_images_backward(const Exec& exec, View2<T> dx, View2<T> dimages, View2<const T> dy,
                            View1<const std::int32_t> rows, const ImagePlaces& places);

}  // namespace trireme::kernels
