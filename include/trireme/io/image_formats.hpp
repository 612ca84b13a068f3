#pragma once

#include <trireme/io/image.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

/// Decoders of single formats, for io/image.cpp. All throw UsageErrors that begin with `path`.
namespace trireme::io {

/// A decoded image, and the Exif orientation of its file: 1 (upright) to 8.
struct OrientedImage {
  Image image;
  int orientation = 1;
};

/// Whether this build has the format's library. Without, the decoder throws a UsageError that says
/// what to install.
bool decodes_png();
bool decodes_jpeg();
OrientedImage decode_png(std::span<const std::byte> file, const std::string& path);
OrientedImage decode_jpeg(std::span<const std::byte> file, const std::string& path);

/// UsageError unless an image has sides of 1 to image_side_limit pixels, and at most
/// image_pixel_limit pixels.
void expect_image_size(std::int64_t width, std::int64_t height, const std::string& path);

/// The orientation in Exif data, which begin with the byte order "II" or "MM"; 1 if the data are
/// damaged or have none. Exif 2.32, section 4.6.
int exif_orientation(std::span<const std::uint8_t> exif);

}  // namespace trireme::io
