#include <trireme/base/check.hpp>
#include <trireme/io/image.hpp>
#include <trireme/io/image_resize.hpp>

#include <cstdint>
#include <cstdlib>
#include <span>

using namespace trireme;

/// Files of images: decoded to a size within the limits, or rejected by a UsageError.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  try {
    const io::Image image = io::decode_image(std::as_bytes(std::span(bytes, size)), "picture");
    if (image.width < 1 || image.height < 1 || image.width > io::image_side_limit ||
        image.height > io::image_side_limit || image.width * image.height > io::image_pixel_limit ||
        std::ssize(image.pixels) != image.width * image.height * 3)
      std::abort();
    if (image.width * image.height < 1 << 16) io::fitted(image, 16, io::ImageFit::crop);
  } catch (const UsageError&) {
  }
  return 0;
}
