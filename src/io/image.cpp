// Recognises and decodes files of images, reads NumPy's arrays, and turns images upright.
#include <trireme/io/image.hpp>

#include <trireme/base/check.hpp>
#include <trireme/io/image_formats.hpp>
#include <trireme/io/input_file.hpp>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

namespace trireme::io {
namespace {

constexpr const char* remedy = "; convert it to PNG, JPEG or a NumPy array (.npy, uint8 [h, w, 3])";

/// Number of `bytes` bytes at `at` of Exif data; std::nullopt after their end.
std::optional<std::uint32_t> number_at(std::span<const std::uint8_t> exif, std::size_t at,
                                       std::size_t bytes, bool little) {
  if (at > exif.size() || bytes > exif.size() - at) return std::nullopt;
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < bytes; ++i)
    value = value << 8 | exif[at + (little ? bytes - 1 - i : i)];
  return value;
}

/// Value of `key` in the header of a .npy file, such as "(3, 4, 3)"; "" if there is none.
std::string_view npy_value(std::string_view header, std::string_view key) {
  const std::size_t found = header.find("'" + std::string(key) + "':");
  if (found == header.npos) return {};
  std::string_view rest = header.substr(found + key.size() + 3);
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  const bool list = rest.starts_with('(');
  const std::size_t end = rest.find_first_of(list ? ")" : ",}");
  return end == rest.npos ? std::string_view{} : rest.substr(0, end + (list ? 1 : 0));
}

/// Numbers of a tuple such as "(3, 4, 3)"; empty for other texts.
std::vector<std::int64_t> numbers_of(std::string_view tuple) {
  std::vector<std::int64_t> numbers;
  if (!tuple.starts_with('(') || !tuple.ends_with(')')) return {};
  tuple = tuple.substr(1, tuple.size() - 2);
  while (!tuple.empty()) {
    const std::string_view part = tuple.substr(0, tuple.find(','));
    tuple.remove_prefix(std::min(part.size() + 1, tuple.size()));
    const std::size_t begin = std::min(part.find_first_not_of(' '), part.size());
    std::int64_t number = 0;
    const auto [end, error] =
        std::from_chars(part.data() + begin, part.data() + part.size(), number);
    if (error != std::errc() || end != part.data() + part.size()) return {};
    numbers.push_back(number);
  }
  return numbers;
}

/// NumPy's format: a magic word, a version, the length of the header, the header, the elements.
/// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
Image decode_array(std::span<const std::byte> file, const std::string& path) {
  constexpr std::size_t fixed = 8;
  const auto byte = [&](std::size_t at) { return std::to_integer<std::size_t>(file[at]); };
  check_usage(file.size() >= 12, path, ": is truncated within the header of a NumPy array");
  const std::size_t version = byte(6);
  check_usage(version >= 1 && version <= 3, path, ": is a NumPy array of format ", version,
              ", expected 1 to 3; save it again with numpy.save");
  const std::size_t size_bytes = version == 1 ? 2 : 4;
  std::size_t header_bytes = 0;
  for (std::size_t i = size_bytes; i-- > 0;) header_bytes = header_bytes << 8 | byte(fixed + i);
  const std::size_t begin = fixed + size_bytes;
  check_usage(header_bytes <= file.size() - begin, path,
              ": is truncated within the header of a NumPy array");
  const std::string_view header(reinterpret_cast<const char*>(file.data()) + begin, header_bytes);
  const std::string_view type = npy_value(header, "descr");
  const std::string_view order = npy_value(header, "fortran_order");
  const std::string_view shape = npy_value(header, "shape");
  const std::vector<std::int64_t> sizes = numbers_of(shape);
  check_usage(type == "'|u1'" && order == "False" && sizes.size() == 3 && sizes[2] == 3, path,
              ": is a NumPy array of type ", type, ", fortran_order ", order, " and shape ", shape,
              ", expected '|u1', False and (height, width, 3); save "
              "numpy.ascontiguousarray(array, numpy.uint8)");
  expect_image_size(sizes[1], sizes[0], path);
  const std::int64_t bytes = sizes[0] * sizes[1] * 3;
  const auto data = file.subspan(begin + header_bytes);
  check_usage(std::ssize(data) == bytes, path, ": has ", data.size(), " bytes of elements, but ",
              bytes, " for shape ", shape, "; copy or save it again");
  Image image{sizes[1], sizes[0], {}};
  image.pixels.resize(data.size());
  std::memcpy(image.pixels.data(), data.data(), data.size());
  return image;
}

/// Turns an image upright. Orientations 5 to 8 exchange rows and columns.
Image upright(OrientedImage oriented) {
  if (oriented.orientation == 1) return std::move(oriented.image);
  const Image& from = oriented.image;
  const int o = oriented.orientation;
  const bool turned = o >= 5;
  Image to{turned ? from.height : from.width, turned ? from.width : from.height, {}};
  to.pixels.resize(from.pixels.size());
  const bool flips_columns = o == 2 || o == 3 || o == 7 || o == 8;  // columns of `from`
  const bool flips_rows = o == 3 || o == 4 || o == 6 || o == 7;
  std::uint8_t* out = to.pixels.data();
  for (std::int64_t y = 0; y < to.height; ++y)
    for (std::int64_t x = 0; x < to.width; ++x) {
      std::int64_t column = turned ? y : x;
      std::int64_t row = turned ? x : y;
      if (flips_columns) column = from.width - 1 - column;
      if (flips_rows) row = from.height - 1 - row;
      out = std::copy_n(from.pixels.data() + (row * from.width + column) * 3, 3, out);
    }
  return to;
}

bool begins_with(std::span<const std::byte> file, std::string_view magic) {
  return file.size() >= magic.size() && std::memcmp(file.data(), magic.data(), magic.size()) == 0;
}

/// Name of a known format that is not read, or "no image".
const char* other_format(std::span<const std::byte> file) {
  struct Known {
    std::string_view magic;
    const char* name;
  };
  using namespace std::string_view_literals;
  constexpr Known known[] = {{"GIF8"sv, "a GIF file"},
                             {"BM"sv, "a BMP file"},
                             {"RIFF"sv, "a WebP file"},
                             {"II*\0"sv, "a TIFF file"},
                             {"MM\0*"sv, "a TIFF file"},
                             {"\x89HDF"sv, "an HDF5 file"},
                             {"%PDF"sv, "a PDF document"},
                             {"<svg"sv, "an SVG file"},
                             {"\0\0\0\x0CjP"sv, "a JPEG 2000 file"}};
  for (const auto& [magic, name] : known)
    if (begins_with(file, magic)) return name;
  if (file.size() >= 12 && begins_with(file.subspan(4), "ftyp")) return "a HEIF or AVIF file";
  return "no image of a known format";
}

}  // namespace

void expect_image_size(std::int64_t width, std::int64_t height, const std::string& path) {
  const bool has_sides =
      width >= 1 && height >= 1 && width <= image_side_limit && height <= image_side_limit;
  check_usage(has_sides && width * height <= image_pixel_limit, path, ": is an image of ", width,
              " x ", height, " pixels, expected sides of 1 to ", image_side_limit, " and at most ",
              image_pixel_limit, " pixels; make it smaller, or leave it out");
}

int exif_orientation(std::span<const std::uint8_t> exif) {
  constexpr std::uint32_t orientation_tag = 0x0112;
  constexpr std::uint32_t type_short = 3;
  if (exif.size() < 8) return 1;
  const bool little = exif[0] == 'I';
  if (exif[0] != exif[1] || (!little && exif[0] != 'M')) return 1;
  const std::uint32_t directory = number_at(exif, 4, 4, little).value_or(0);
  const std::uint32_t entries = number_at(exif, directory, 2, little).value_or(0);
  for (std::uint32_t i = 0; i < entries; ++i) {
    const std::size_t entry = std::size_t{directory} + 2 + std::size_t{i} * 12;
    if (number_at(exif, entry, 2, little) != orientation_tag) continue;
    const auto value = number_at(exif, entry + 8, 2, little);
    if (number_at(exif, entry + 2, 2, little) != type_short || !value) return 1;
    return *value >= 1 && *value <= 8 ? static_cast<int>(*value) : 1;
  }
  return 1;
}

Image decode_image(std::span<const std::byte> file, const std::string& path) {
  check_usage(!file.empty(), path, ": is empty, expected an image");
  if (begins_with(file, "\x89PNG\r\n\x1a\n")) return upright(decode_png(file, path));
  if (begins_with(file, "\xff\xd8\xff")) return upright(decode_jpeg(file, path));
  if (begins_with(file, "\x93NUMPY")) return decode_array(file, path);
  throw UsageError(text(path, ": is ", other_format(file), remedy));
}

Image read_image(const std::string& path) {
  const InputFile file(path);
  check_usage(file.size() <= image_file_limit, path, ": has ", file.size(),
              " bytes, expected an image of at most ", image_file_limit,
              "; make it smaller, or leave it out");
  std::vector<std::byte> bytes(static_cast<std::size_t>(file.size()));
  file.read(0, bytes.data(), bytes.size());
  return decode_image(bytes, path);
}

}  // namespace trireme::io
