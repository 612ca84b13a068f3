// Decodes JPEG files with libjpeg-turbo. libjpeg reports errors with longjmp, so that the functions
// that call setjmp have only variables without destructors.
#include <trireme/io/image_formats.hpp>

#include <trireme/base/check.hpp>

#ifdef TRIREME_HAS_JPEG

#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstring>

// jpeglib.h needs the types of <cstdio>.
#include <jpeglib.h>

#include <jerror.h>

namespace trireme::io {
namespace {

constexpr int scan_limit = 100;  // of a progressive file; each scan visits all pixels
constexpr long memory_limit_bytes = long{1} << 30;  // coefficients of a progressive file

/// State of a file that is being decoded.
struct JpegDecoder {
  JpegDecoder();
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;
  ~JpegDecoder() { jpeg_destroy_decompress(&info); }

  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  jpeg_progress_mgr progress{};
  std::jmp_buf jump{};
  std::array<char, JMSG_LENGTH_MAX> complaint{};
  bool complete = false;  ///< all pixels are decoded
};

JpegDecoder& decoder_of(j_common_ptr info) {
  return *static_cast<JpegDecoder*>(info->client_data);
}

[[noreturn]] void stop(j_common_ptr info) {
  JpegDecoder& decoder = decoder_of(info);
  (*info->err->format_message)(info, decoder.complaint.data());
  std::longjmp(decoder.jump, 1);
}

/// Ends at warnings, which mean that pixels are missing or wrong. Bytes between the last pixel and
/// the end of the image are harmless.
void stop_at_warnings(j_common_ptr info, int level) {
  const bool harmless = decoder_of(info).complete && info->err->msg_code == JWRN_EXTRANEOUS_DATA;
  if (level < 0 && !harmless) stop(info);
}

void count_scans(j_common_ptr info) {
  const auto& decompressed = *reinterpret_cast<const jpeg_decompress_struct*>(info);
  if (decompressed.input_scan_number <= scan_limit) return;
  JpegDecoder& decoder = decoder_of(info);
  std::snprintf(decoder.complaint.data(), decoder.complaint.size(), "it has more than %d scans",
                scan_limit);
  std::longjmp(decoder.jump, 1);
}

JpegDecoder::JpegDecoder() {
  info.err = jpeg_std_error(&errors);
  info.client_data = this;
  errors.error_exit = stop;
  errors.emit_message = stop_at_warnings;
  progress.progress_monitor = count_scans;
}

bool read_jpeg_header(JpegDecoder& d, std::span<const std::byte> file) {
  if (setjmp(d.jump) != 0) return false;
  jpeg_create_decompress(&d.info);
  d.info.progress = &d.progress;
  d.info.mem->max_memory_to_use = memory_limit_bytes;
  jpeg_save_markers(&d.info, JPEG_APP0 + 1, 0xffff);
  // Older versions of libjpeg take a pointer to bytes that are not const.
  jpeg_mem_src(&d.info,
               const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(file.data())),
               file.size());
  jpeg_read_header(&d.info, TRUE);
  return true;
}

/// The orientation of the first segment with Exif data.
int orientation_of(const jpeg_decompress_struct& info) {
  constexpr std::size_t name_bytes = 6;
  for (const auto* marker = info.marker_list; marker != nullptr; marker = marker->next)
    if (marker->marker == JPEG_APP0 + 1 && marker->data_length >= name_bytes &&
        std::memcmp(marker->data, "Exif\0", name_bytes) == 0)
      return exif_orientation(
          std::span<const std::uint8_t>(marker->data, marker->data_length).subspan(name_bytes));
  return 1;
}

bool read_jpeg_rows(JpegDecoder& d, std::uint8_t* pixels) {
  if (setjmp(d.jump) != 0) return false;
  d.info.out_color_space = JCS_RGB;
  jpeg_start_decompress(&d.info);
  while (d.info.output_scanline < d.info.output_height) {
    JSAMPROW row = pixels + std::size_t{d.info.output_scanline} * d.info.output_width * 3;
    jpeg_read_scanlines(&d.info, &row, 1);
  }
  d.complete = true;
  jpeg_finish_decompress(&d.info);
  return true;
}

}  // namespace

bool decodes_jpeg() {
  return true;
}

OrientedImage decode_jpeg(std::span<const std::byte> file, const std::string& path) {
  JpegDecoder decoder;
  const auto expect = [&](bool done) {
    check_usage(done, path,
                ": is a damaged JPEG file, or of an unknown kind: ", decoder.complaint.data(),
                "; copy or make it again, or leave it out");
  };
  expect(read_jpeg_header(decoder, file));
  const auto space = decoder.info.jpeg_color_space;
  check_usage(space != JCS_CMYK && space != JCS_YCCK, path,
              ": is a JPEG file with CMYK colours, which need a profile to become RGB; convert it "
              "(`magick in.jpg -colorspace sRGB out.jpg`)");
  check_usage(space == JCS_GRAYSCALE || space == JCS_YCbCr || space == JCS_RGB, path,
              ": is a JPEG file with ", decoder.info.num_components,
              " colour components, expected grey or RGB; convert it to RGB");
  expect_image_size(decoder.info.image_width, decoder.info.image_height, path);
  OrientedImage out;
  out.orientation = orientation_of(decoder.info);
  out.image = {decoder.info.image_width, decoder.info.image_height,
               std::vector<std::uint8_t>(std::size_t{decoder.info.image_width} *
                                         decoder.info.image_height * 3)};
  expect(read_jpeg_rows(decoder, out.image.pixels.data()));
  return out;
}

}  // namespace trireme::io

#else

namespace trireme::io {

bool decodes_jpeg() {
  return false;
}

OrientedImage decode_jpeg(std::span<const std::byte>, const std::string& path) {
  throw UsageError(text(path,
                        ": is a JPEG file, but this trireme was built without libjpeg-turbo; "
                        "install it (Debian: libjpeg-dev, Spack: libjpeg-turbo) and build "
                        "again, or convert the file to a NumPy array (.npy, uint8 [h, w, 3])"));
}

}  // namespace trireme::io

#endif
