// Decodes PNG files with libpng. libpng reports errors with longjmp, so that the functions that
// call setjmp have only variables without destructors.
#include <trireme/io/image_formats.hpp>

#include <trireme/base/check.hpp>

#ifdef TRIREME_HAS_PNG

#include <png.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstring>

namespace trireme::io {
namespace {

constexpr png_alloc_size_t chunk_limit_bytes = 8 << 20;

/// State of a file that is being decoded.
struct PngDecoder {
  explicit PngDecoder(std::span<const std::byte> file) : rest(file) {}
  PngDecoder(const PngDecoder&) = delete;
  PngDecoder& operator=(const PngDecoder&) = delete;
  ~PngDecoder() { png_destroy_read_struct(&png, &info, nullptr); }

  std::span<const std::byte> rest;  ///< bytes that are not yet read
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::array<char, 200> complaint{};
  int channels = 0;
  int orientation = 1;
};

[[noreturn]] void fail(png_structp png, png_const_charp why) {
  auto& decoder = *static_cast<PngDecoder*>(png_get_error_ptr(png));
  std::strncpy(decoder.complaint.data(), why, decoder.complaint.size() - 1);
  png_longjmp(png, 1);
}

void ignore_warning(png_structp, png_const_charp) {}

void read_bytes(png_structp png, png_bytep out, std::size_t bytes) {
  auto& decoder = *static_cast<PngDecoder*>(png_get_io_ptr(png));
  if (bytes > decoder.rest.size()) png_error(png, "the file is truncated");
  std::memcpy(out, decoder.rest.data(), bytes);
  decoder.rest = decoder.rest.subspan(bytes);
}

/// Reads the header and chooses rows of 3 or, with transparency, 4 bytes per pixel.
bool read_png_header(PngDecoder& d) {
  d.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &d, fail, ignore_warning);
  if (d.png == nullptr) return false;
  if (setjmp(png_jmpbuf(d.png)) != 0) return false;
  d.info = png_create_info_struct(d.png);
  if (d.info == nullptr) return false;
  png_set_read_fn(d.png, &d, read_bytes);
  png_set_user_limits(d.png, image_side_limit, image_side_limit);
  png_set_chunk_malloc_max(d.png, chunk_limit_bytes);
  // Other optional chunks are skipped, also compressed texts and profiles.
  constexpr std::array<char, 14 * 5 + 1> skipped{
      "bKGD\0cHRM\0gAMA\0hIST\0iCCP\0iTXt\0oFFs\0pCAL\0sCAL\0sPLT\0sRGB\0tEXt\0tIME\0zTXt"};
  png_set_keep_unknown_chunks(d.png, PNG_HANDLE_CHUNK_NEVER,
                              reinterpret_cast<const png_byte*>(skipped.data()), 14);
  png_read_info(d.png, d.info);
  return true;
}

bool choose_png_rows(PngDecoder& d) {
  if (setjmp(png_jmpbuf(d.png)) != 0) return false;
  png_set_scale_16(d.png);
  png_set_expand(
      d.png);  // palettes and few bits to 8 bits, transparent colours to an alpha channel
  png_set_gray_to_rgb(d.png);
  png_set_interlace_handling(d.png);
  png_read_update_info(d.png, d.info);
  d.channels = png_get_channels(d.png, d.info);
  return true;
}

bool read_png_rows(PngDecoder& d, png_bytepp rows) {
  if (setjmp(png_jmpbuf(d.png)) != 0) return false;
  png_read_image(d.png, rows);
  png_read_end(d.png, d.info);
#ifdef PNG_eXIf_SUPPORTED
  png_bytep exif = nullptr;
  png_uint_32 bytes = 0;
  if (png_get_eXIf_1(d.png, d.info, &bytes, &exif) != 0)
    d.orientation = exif_orientation({exif, bytes});
#endif
  return true;
}

/// Paints pixels of 4 bytes over white, in place.
void remove_alpha(std::vector<std::uint8_t>& pixels) {
  const std::uint8_t* from = pixels.data();
  std::uint8_t* to = pixels.data();
  for (std::size_t left = pixels.size() / 4; left > 0; --left, from += 4) {
    const unsigned alpha = from[3];
    for (int c = 0; c < 3; ++c)
      *to++ = static_cast<std::uint8_t>((alpha * from[c] + (255 - alpha) * 255 + 127) / 255);
  }
  pixels.resize(pixels.size() / 4 * 3);
}

}  // namespace

bool decodes_png() {
  return true;
}

OrientedImage decode_png(std::span<const std::byte> file, const std::string& path) {
  PngDecoder decoder(file);
  const auto expect = [&](bool done) {
    check_usage(done, path, ": is a damaged PNG file: ", decoder.complaint.data(),
                "; copy or make it again, or leave it out");
  };
  expect(read_png_header(decoder));
  const std::int64_t width = png_get_image_width(decoder.png, decoder.info);
  const std::int64_t height = png_get_image_height(decoder.png, decoder.info);
  expect_image_size(width, height, path);
  expect(choose_png_rows(decoder));
  const auto row_bytes = static_cast<std::size_t>(width) * static_cast<unsigned>(decoder.channels);
  check((decoder.channels == 3 || decoder.channels == 4) &&
            png_get_rowbytes(decoder.png, decoder.info) == row_bytes,
        path, ": libpng decodes it to ", decoder.channels, " channels, expected 3 or 4");
  OrientedImage out;
  out.image = {width, height,
               std::vector<std::uint8_t>(row_bytes * static_cast<std::size_t>(height))};
  std::vector<png_bytep> rows;
  for (std::size_t y = 0; y < static_cast<std::size_t>(height); ++y)
    rows.push_back(out.image.pixels.data() + y * row_bytes);
  expect(read_png_rows(decoder, rows.data()));
  if (decoder.channels == 4) remove_alpha(out.image.pixels);
  out.orientation = decoder.orientation;
  return out;
}

}  // namespace trireme::io

#else

namespace trireme::io {

bool decodes_png() {
  return false;
}

OrientedImage decode_png(std::span<const std::byte>, const std::string& path) {
  throw UsageError(text(path,
                        ": is a PNG file, but this trireme was built without libpng; install "
                        "libpng (Debian: libpng-dev, Spack: libpng) and build again, or "
                        "convert it to a NumPy array (.npy, uint8 [h, w, 3])"));
}

}  // namespace trireme::io

#endif
