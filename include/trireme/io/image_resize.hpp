#pragma once

#include <trireme/io/image.hpp>

#include <cstdint>
#include <string_view>

namespace trireme::io {

/// How an image becomes a square.
enum class ImageFit : std::uint8_t {
  crop,  ///< the shorter side becomes `size`, and the centre is cut out, as CLIP's processor does
  stretch,  ///< both sides become `size`, as SigLIP's processor does
  pad       ///< the longer side becomes `size`; black bars of equal width fill the square
};

/// The fit of a word: "crop", "stretch" or "pad", the words of image_fit_names.
ImageFit image_fit(std::string_view word);
inline constexpr std::string_view image_fit_names[] = {"crop", "stretch", "pad"};
inline std::string_view name_of(ImageFit fit) {
  return image_fit_names[static_cast<std::size_t>(fit)];
}

/// The interpolation of resize(), which changes with the values that it computes. Token files and
/// checkpoints state it.
inline constexpr std::string_view image_resampling = "bicubic-pillow12";

/// Part [left, left + width) x [top, top + height) of the image resized to full_width x full_height
/// pixels. The part is inside the resized image, whose sides may be larger than image_side_limit.
///
/// Bit for bit the result of Image.resize((full_width, full_height), BICUBIC) of Pillow 12: first
/// rows, then columns, 8 bits between them. Along a side of n pixels that becomes m, with scale s =
/// n / m and stretch f = max(s, 1), result pixel i is the sum over input pixels j of
///
///   k((j + 1/2 - (i + 1/2) s) / f), normalised to sum 1 and rounded to multiples of 2^-22,
///
/// times pixel j, rounded to an integer of 0 to 255. k is the cubic convolution kernel of Keys 1981
/// with a = -1/2, which is 0 from 2 on. Reference: src/libImaging/Resample.c of Pillow 12.
/// Pillow 13 resizes columns first where the height shrinks much more than the width; results then
/// differ by rounding.
Image resize(const Image& image, std::int64_t full_width, std::int64_t full_height,
             std::int64_t left, std::int64_t top, std::int64_t width, std::int64_t height);

/// The image as a square of `size` pixels per side. Memory besides the images: about 200 bytes per
/// pixel of a side.
Image fitted(const Image& image, std::int64_t size, ImageFit fit);

}  // namespace trireme::io
