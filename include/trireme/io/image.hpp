#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace trireme::io {

/// Limits of images, verified before memory for pixels is allocated.
inline constexpr std::int64_t image_file_limit = std::int64_t{256} << 20;  ///< bytes of a file
inline constexpr std::int64_t image_pixel_limit = std::int64_t{64} << 20;  ///< width times height
inline constexpr std::int64_t image_side_limit = 65535;                    ///< width or height

/// 8-bit RGB pixels [height, width, 3]: rows from top to bottom.
struct Image {
  std::int64_t width = 0;
  std::int64_t height = 0;
  std::vector<std::uint8_t> pixels = {};
};

/// Decodes a PNG file, a JPEG file or a NumPy array (.npy, uint8 [height, width, 3]), recognised by
/// its content.
///
///   grey levels          become equal red, green and blue
///   16 bits              are rounded to 8
///   transparent pixels   are painted over white: (a·c + (255 − a)·255) / 255, rounded
///   Exif orientation     turns the image; damaged Exif data are ignored
///   colour profiles      are ignored, and so is gamma
///
/// UsageError that begins with `path` and has the remedy: a damaged or truncated file, a size
/// outside the limits, CMYK, another format, or a build without the format's library. Memory: at
/// most the file and 12 bytes per pixel.
Image decode_image(std::span<const std::byte> file, const std::string& path);

/// decode_image() of a file; UsageErrors of InputFile.
Image read_image(const std::string& path);

}  // namespace trireme::io
