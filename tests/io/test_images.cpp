#include <trireme/base/check.hpp>
#include <trireme/io/image.hpp>
#include <trireme/io/image_formats.hpp>
#include <trireme/io/image_resize.hpp>

#include <support/messages.hpp>
#include <support/source_folder.hpp>
#include <support/temporary_folder.hpp>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <zlib.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <vector>

namespace trireme::io {
namespace {

using testing::expect_mentions;
using testing::golden_file;
using testing::message_of;
using testing::read_file;
using testing::TemporaryFolder;

Image golden(const std::string& name) {
  return read_image(golden_file("images/" + name));
}

std::string content_of(const std::string& name) {
  return read_file(golden_file("images/" + name));
}

Image decode(const std::string& content) {
  return decode_image(std::as_bytes(std::span(content)), "picture");
}

/// Largest difference of two values of equal places; 256 for images of different sizes.
int largest_difference(const Image& a, const Image& b) {
  if (a.width != b.width || a.height != b.height || a.pixels.size() != b.pixels.size()) return 256;
  int largest = 0;
  for (std::size_t i = 0; i < a.pixels.size(); ++i)
    largest = std::max(largest, std::abs(int{a.pixels[i]} - int{b.pixels[i]}));
  return largest;
}

std::string big_endian(std::uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift);
  return bytes;
}

std::uint32_t number_at(const std::string& bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<std::uint8_t>(bytes[at + i]);
  return value;
}

std::uint32_t crc(std::string_view bytes) {
  return static_cast<std::uint32_t>(
      crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size())));
}

/// Corrects the checksums of a PNG file's chunks, as far as their lengths lead.
void correct_checksums(std::string& png) {
  for (std::size_t at = 8; at + 12 <= png.size();) {
    const std::size_t length = number_at(png, at);
    if (length > png.size() - at - 12) return;
    png.replace(at + 8 + length, 4,
                big_endian(crc(std::string_view(png).substr(at + 4, length + 4))));
    at += length + 12;
  }
}

std::string chunk(const std::string& name, const std::string& data) {
  return big_endian(static_cast<std::uint32_t>(data.size())) + name + data +
         big_endian(crc(name + data));
}

/// A PNG file of 8-bit RGB with black pixels: `rows` of its rows are stored.
std::string black_png(std::uint32_t width, std::uint32_t height, std::size_t rows) {
  const std::string data(rows * (std::size_t{width} * 3 + 1), '\0');
  uLongf bytes = compressBound(data.size());
  std::string packed(bytes, '\0');
  compress2(reinterpret_cast<Bytef*>(packed.data()), &bytes,
            reinterpret_cast<const Bytef*>(data.data()), data.size(), 1);
  packed.resize(bytes);
  return "\x89PNG\r\n\x1a\n" +
         chunk("IHDR", big_endian(width) + big_endian(height) + std::string("\x08\x02\0\0\0", 5)) +
         chunk("IDAT", packed) + chunk("IEND", "");
}

/// Offset of the frame header of a JPEG file: marker FFC0 or FFC2.
std::size_t frame_of(const std::string& jpeg) {
  for (std::size_t at = 2; at + 4 < jpeg.size();) {
    const int marker = static_cast<std::uint8_t>(jpeg[at + 1]);
    if (marker == 0xc0 || marker == 0xc2) return at;
    at += 2 + (number_at(jpeg, at) & 0xffff);
  }
  throw std::runtime_error("no frame");
}

/// Gives a JPEG file another size.
std::string resized_jpeg(std::string jpeg, std::uint32_t width, std::uint32_t height) {
  const std::size_t frame = frame_of(jpeg);
  return jpeg.replace(frame + 5, 4, big_endian(height << 16 | width));
}

TEST(Images, PngFilesOfAllKindsHaveTheirPixels) {
  if (!decodes_png()) GTEST_SKIP() << "built without the library";
  for (const std::string name :
       {"grey1", "grey8", "grey8_transparent", "grey16", "rgb8", "rgb8_interlaced", "rgb16",
        "palette4", "rgba8", "rgba8_interlaced", "grey_alpha16", "rgb8_turned"})
    EXPECT_EQ(largest_difference(golden(name + ".png"), golden(name + ".npy")), 0) << name;
}

/// Versions of libjpeg may round the last bit of colours in another way.
TEST(Images, JpegFilesHaveTheirPixels) {
  if (!decodes_jpeg()) GTEST_SKIP() << "built without the library";
  for (const std::string name : {"colour_444", "colour_420", "progressive", "grey"})
    EXPECT_LE(largest_difference(golden(name + ".jpg"), golden(name + ".npy")), 1) << name;
}

TEST(Images, ExifOrientationTurnsJpegFiles) {
  if (!decodes_jpeg()) GTEST_SKIP() << "built without the library";
  for (int i = 1; i <= 8; ++i) {
    const std::string name = text("orientation_", i);
    EXPECT_LE(largest_difference(golden(name + ".jpg"), golden(name + ".npy")), 1) << name;
  }
}

TEST(Images, ExifOrientationIsReadInBothByteOrders) {
  const auto orientation = [](std::string exif) {
    return exif_orientation({reinterpret_cast<const std::uint8_t*>(exif.data()), exif.size()});
  };
  const std::string big("MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0", 22);
  const std::string little("II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x07\0\0\0", 22);
  EXPECT_EQ(orientation(big), 6);
  EXPECT_EQ(orientation(little), 7);
  for (std::size_t bytes = 0; bytes < 20; ++bytes) {
    EXPECT_EQ(orientation(big.substr(0, bytes)), 1);
    EXPECT_EQ(orientation(little.substr(0, bytes)), 1);
  }
  std::string other = big;
  other[19] = 9;
  EXPECT_EQ(orientation(other), 1);
  std::string far = big;
  far.replace(4, 4, "\xff\xff\xff\xff");
  EXPECT_EQ(orientation(far), 1);
}

TEST(Images, RejectOtherFormatsWithARemedy) {
  const TemporaryFolder folder;
  using namespace std::string_literals;
  if (decodes_jpeg())
    expect_mentions(message_of([&] { golden("cmyk.jpg"); }), {"cmyk.jpg", "CMYK", "sRGB"});
  else
    expect_mentions(message_of([&] { golden("grey.jpg"); }), {"grey.jpg", "libjpeg-dev", ".npy"});
  if (!decodes_png())
    expect_mentions(message_of([&] { golden("grey8.png"); }), {"grey8.png", "libpng-dev", ".npy"});
  expect_mentions(message_of([&] { read_image(folder.write("a", "")); }), {"is empty"});
  expect_mentions(message_of([&] { read_image(folder.write("a", "GIF89a...")); }),
                  {folder.file("a"), "GIF", "PNG"});
  expect_mentions(message_of([&] { decode("RIFF\1\2\3\4WEBP"); }), {"picture: is a WebP file"});
  expect_mentions(message_of([&] {
                    decode(
                        "\0\0\0\x18"
                        "ftypheic"s);
                  }),
                  {"HEIF"});
  expect_mentions(message_of([&] { decode("some text"); }), {"no image of a known format"});
  EXPECT_THROW(read_image(folder.file("missing.png")), UsageError);
  EXPECT_THROW(read_image(folder.path().string()), UsageError);
}

TEST(Images, RejectArraysOfOtherTypesAndShapes) {
  using namespace std::string_literals;
  const auto array = [](const std::string& header, std::size_t bytes) {
    return "\x93NUMPY\x01\0"s + static_cast<char>(header.size()) + "\0"s + header +
           std::string(bytes, 'x');
  };
  const std::string shape = "'shape': (2, 3, 3), }\n";
  const std::string good = "{'descr': '|u1', 'fortran_order': False, " + shape;
  const Image image = decode(array(good, 18));
  EXPECT_EQ(image.width, 3);
  EXPECT_EQ(image.height, 2);
  EXPECT_EQ(image.pixels, std::vector<std::uint8_t>(18, 'x'));
  const std::vector<std::string> headers{
      "{'descr': '<f4', 'fortran_order': False, " + shape,
      "{'descr': '|u1', 'fortran_order': True, " + shape,
      "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3), }",
      "{'descr': '|u1', 'fortran_order': False, 'shape': (3, 2, 3, 1), }",
      "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3, x), }",
      "{'descr': '|u1', 'fortran_order': False, 'shape': 18, }",
      "{'descr': '|u1'",
      ""};
  for (const auto& header : headers)
    expect_mentions(message_of([&] { decode(array(header, 18)); }),
                    {"picture: is a NumPy array of type", "(height, width, 3)"});
  for (const std::size_t bytes : {0u, 17u, 19u})
    expect_mentions(message_of([&] { decode(array(good, bytes)); }), {text(bytes), "18"});
  const std::string huge =
      "{'descr': '|u1', 'fortran_order': False, 'shape': (65535, 9223372036854775807, 3), }";
  expect_mentions(message_of([&] { decode(array(huge, 18)); }), {"9223372036854775807 x 65535"});
  for (std::size_t bytes = 6; bytes < 30; ++bytes)
    expect_mentions(message_of([&] { decode(array(good, 18).substr(0, bytes)); }),
                    {"truncated within the header"});
}

/// Files that claim many pixels are rejected by their header, before any pixel is decoded.
TEST(Images, RejectSizesOutsideTheLimits) {
  if (!decodes_png() || !decodes_jpeg()) GTEST_SKIP() << "built without the library";
  const auto expect_size = [](const std::string& content, const std::string& size) {
    expect_mentions(message_of([&] { decode(content); }), {"picture", size, "67108864 pixels"});
  };
  expect_size(black_png(65535, 65535, 1), "65535 x 65535");
  expect_size(black_png(8193, 8192, 1), "8193 x 8192");
  for (const std::uint32_t side : {0u, 65536u, 0x7fffffffu, 0xffffffffu})
    EXPECT_THROW(decode(black_png(side, 1, 0)), UsageError);
  const std::string jpeg = content_of("colour_444.jpg");
  expect_size(resized_jpeg(jpeg, 65500, 65500), "65500 x 65500");
  EXPECT_THROW(decode(resized_jpeg(jpeg, 0, 10)), UsageError);
}

/// A small file with many pixels, which its data do not have, ends in an error.
TEST(Images, RejectTruncatedFiles) {
  if (!decodes_png() || !decodes_jpeg()) GTEST_SKIP() << "built without the library";
  for (const std::string name : {"rgb8.png", "rgba8_interlaced.png", "colour_444.jpg",
                                 "colour_420.jpg", "progressive.jpg", "grey.jpg", "tall.npy"}) {
    const std::string whole = content_of(name);
    for (std::size_t bytes = 0; bytes < whole.size(); bytes += bytes < 40 ? 1 : 13) {
      const std::string message = message_of([&] { decode(whole.substr(0, bytes)); });
      expect_mentions(message, {"picture: "});
    }
    expect_mentions(message_of([&] { decode(whole.substr(0, whole.size() - 1)); }), {"picture: "});
  }
  expect_mentions(message_of([&] { decode(black_png(8192, 8192, 3)); }), {"damaged PNG file"});
  expect_mentions(
      message_of([&] { decode(resized_jpeg(content_of("progressive.jpg"), 8000, 8000)); }),
      {"damaged JPEG file"});
}

/// A progressive file of one grey block: a scan for the mean, and `scans` scans for the other
/// coefficients, first without and then with the last bit.
std::string jpeg_of_scans(int scans) {
  using namespace std::string_literals;
  const auto segment = [](int marker, const std::string& data) {
    return "\xff"s + static_cast<char>(marker) +
           big_endian(static_cast<std::uint32_t>(data.size() + 2)).substr(2) + data;
  };
  const auto scan = [&](int coefficient, int bits) {
    const auto place = static_cast<char>(coefficient);
    return segment(0xda, "\x01\x01\0"s + place + place + static_cast<char>(bits)) + "\x7f";
  };
  const std::string one_code = "\x01"s + std::string(16, '\0');  // the code 0 of one bit means 0
  std::string jpeg = "\xff\xd8" + segment(0xdb, "\0"s + std::string(64, '\x01')) +
                     segment(0xc2, "\x08\0\x08\0\x08\x01\x01\x11\0"s) +
                     segment(0xc4, "\0"s + one_code) + segment(0xc4, "\x10"s + one_code) +
                     scan(0, 0);
  for (int i = 0; i < scans; ++i) jpeg += scan(1 + i % 63, i < 63 ? 0x01 : 0x10);
  return jpeg + "\xff\xd9";
}

/// Each scan visits all pixels, so that many scans would take much time.
TEST(Images, RejectJpegFilesWithManyScans) {
  if (!decodes_jpeg()) GTEST_SKIP() << "built without the library";
  EXPECT_EQ(decode(jpeg_of_scans(90)).pixels, std::vector<std::uint8_t>(8 * 8 * 3, 128));
  expect_mentions(message_of([] { decode(jpeg_of_scans(110)); }),
                  {"damaged JPEG file", "more than 100 scans"});
}

/// Bytes after the last pixel do not change it.
TEST(Images, AcceptBytesAfterTheImage) {
  if (!decodes_png() || !decodes_jpeg()) GTEST_SKIP() << "built without the library";
  for (const std::string name : {"colour_420", "progressive"}) {
    const std::string whole = content_of(name + ".jpg");
    const Image expected = decode(whole);
    EXPECT_EQ(decode(whole + "more").pixels, expected.pixels);
  }
  const std::string whole = content_of("colour_420.jpg");
  EXPECT_EQ(decode(whole.substr(0, whole.size() - 2) + std::string(5, '\0') + "\xff\xd9").pixels,
            decode(whole).pixels);
  EXPECT_EQ(decode(content_of("rgb8.png") + "more").pixels, golden("rgb8.npy").pixels);
}

TEST(Images, SkipsCompressedTextsThatExpand) {
  if (!decodes_png()) GTEST_SKIP() << "built without the library";
  std::string png = content_of("rgb8.png");
  const std::string text(std::size_t{50} << 20, 'a');
  uLongf bytes = compressBound(text.size());
  std::string packed(bytes, '\0');
  compress2(reinterpret_cast<Bytef*>(packed.data()), &bytes,
            reinterpret_cast<const Bytef*>(text.data()), text.size(), 9);
  packed.resize(bytes);
  png.insert(33, chunk("zTXt", std::string("note\0\0", 6) + packed));
  png.insert(33, chunk("iCCP", std::string("note\0\0", 6) + packed));
  EXPECT_EQ(decode(png).pixels, golden("rgb8.npy").pixels);
}

/// Allows `bytes` more of address space during the object's lifetime.
class MemoryLimit {
 public:
  explicit MemoryLimit(std::int64_t bytes) {
    getrlimit(RLIMIT_AS, &former_);
#if !defined(__SANITIZE_ADDRESS__)
    std::int64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    rlimit small = former_;
    small.rlim_cur = static_cast<rlim_t>(pages * 4096 + bytes);
    EXPECT_EQ(setrlimit(RLIMIT_AS, &small), 0);
#else
    static_cast<void>(bytes);
#endif
  }
  ~MemoryLimit() {
    setrlimit(RLIMIT_AS, &former_);
  }
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

 private:
  rlimit former_{};
};

constexpr std::int64_t most_bytes = std::int64_t{12} * image_pixel_limit + (16 << 20);

/// Damaged files end in one error that names the file, or in an image of a valid size.
void decode_mutations(const std::vector<std::string>& names, int count) {
  const MemoryLimit limit(most_bytes);
  std::mt19937_64 random(23);
  int images = 0;
  for (int trial = 0; trial < count; ++trial) {
    std::string bytes = content_of(names[static_cast<std::size_t>(trial) % names.size()]);
    const auto changes = 1 + random() % 4;
    for (std::uint64_t c = 0; c < changes; ++c) {
      const std::size_t span =
          random() % 2 == 0 ? bytes.size() : std::min<std::size_t>(40, bytes.size());
      const std::size_t at = random() % span;
      switch (random() % 4) {
        case 0:
          bytes.erase(at, random() % 10);
          break;
        case 1:
          bytes.insert(at, bytes.substr(random() % bytes.size(), random() % 30));
          break;
        default:
          bytes[at] = static_cast<char>(random() % 4 == 0 ? 0xff : random());
      }
      if (bytes.empty()) bytes = "x";
    }
    if (random() % 4 != 0) correct_checksums(bytes);
    try {
      const Image image = decode(bytes);
      EXPECT_EQ(std::ssize(image.pixels), image.width * image.height * 3);
      EXPECT_LE(image.width * image.height, image_pixel_limit);
      ++images;
    } catch (const UsageError& error) {
      EXPECT_EQ(std::string_view(error.what()).substr(0, 9), "picture: ") << error.what();
    }
  }
  EXPECT_GT(images, count / 100);
  EXPECT_LT(images, count);
}

int mutations() {
  return std::getenv("TRIREME_SOAK") != nullptr ? 100000 : 1000;
}

TEST(ImageMutations, PngFilesEndInAnErrorOrAnImage) {
  if (!decodes_png()) GTEST_SKIP() << "built without the library";
  decode_mutations(
      {"rgb8.png", "rgba8_interlaced.png", "palette4.png", "grey_alpha16.png", "rgb8_turned.png"},
      mutations());
}

TEST(ImageMutations, JpegFilesEndInAnErrorOrAnImage) {
  if (!decodes_jpeg()) GTEST_SKIP() << "built without the library";
  decode_mutations({"colour_444.jpg", "colour_420.jpg", "progressive.jpg", "grey.jpg", "cmyk.jpg",
                    "orientation_6.jpg"},
                   mutations());
}

TEST(ImageMutations, ArraysEndInAnErrorOrAnImage) {
  decode_mutations({"rgb8.npy", "tall.npy"}, mutations());
}

TEST(ImageResize, EqualsPillowBitForBit) {
  const Image image = golden("resize_input.npy");
  for (const auto& [width, height] : std::vector<std::pair<int, int>>{
           {7, 5}, {1, 1}, {46, 34}, {23, 40}, {9, 17}, {23, 17}, {30, 3}, {2, 51}}) {
    const Image expected = golden(text("resize_", width, "x", height, ".npy"));
    EXPECT_EQ(largest_difference(resize(image, width, height, 0, 0, width, height), expected), 0)
        << width << " x " << height;
    // Parts of the result are equal, too.
    const int w = std::min(width, 3);
    const int h = std::min(height, 2);
    const Image part = resize(image, width, height, width - w, height - h, w, h);
    for (int y = 0; y < h; ++y)
      EXPECT_TRUE(std::equal(part.pixels.data() + y * w * 3, part.pixels.data() + (y + 1) * w * 3,
                             expected.pixels.data() + ((height - h + y) * width + width - w) * 3));
  }
}

TEST(ImageResize, FitsSquaresAsTheProcessorsOfModels) {
  for (const std::string name : {"wide", "tall"})
    for (const auto word : image_fit_names)
      EXPECT_EQ(largest_difference(fitted(golden(name + ".npy"), 24, image_fit(word)),
                                   golden(text(name, "_", word, ".npy"))),
                0)
          << name << " " << word;
}

/// The largest ratios of sides need little more memory than the image.
TEST(ImageResize, BoundsTheMemoryOfNarrowImages) {
  for (const bool wide : {true, false}) {
    const std::int64_t longer = image_side_limit;
    const Image image{wide ? longer : 1, wide ? 1 : longer,
                      std::vector<std::uint8_t>(static_cast<std::size_t>(longer * 3), 77)};
    const MemoryLimit limit(128 << 20);
    for (const auto fit : {ImageFit::crop, ImageFit::stretch}) {
      const Image square = fitted(image, 512, fit);
      EXPECT_EQ(square.width, 512);
      EXPECT_EQ(std::ranges::count(square.pixels, 77), std::ssize(square.pixels));
    }
    EXPECT_EQ(std::ranges::count(fitted(image, 512, ImageFit::pad).pixels, 77), 512 * 3);
  }
}

}  // namespace
}  // namespace trireme::io
