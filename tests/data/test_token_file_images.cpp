#include <trireme/data/token_file.hpp>
#include <trireme/io/hdf5_file.hpp>

#include <support/temporary_folder.hpp>

#include "support.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <set>
#include <vector>

namespace trireme::data {
namespace {

using testing::read_file;
using testing::TemporaryFolder;

constexpr std::int64_t image_size = 5;
constexpr std::int64_t image_token = 7;
constexpr std::int64_t tokens_per_image = 3;

/// Pixels of image `number`.
std::vector<std::uint8_t> pixels_of(std::int64_t number) {
  std::mt19937 random(static_cast<unsigned>(number));
  std::vector<std::uint8_t> pixels(image_size * image_size * 3);
  for (auto& value : pixels) value = static_cast<std::uint8_t>(random());
  return pixels;
}

/// Writes documents with these numbers of images. Image tokens do not count if `masked`.
void write_images(const std::string& path, const std::vector<std::int64_t>& images_of_documents,
                  bool masked = true) {
  TokenFileWriter writer(path, "test", 257, {},
                         ImageForm{image_size, 0, image_token, tokens_per_image, 0});
  std::int64_t number = 0;
  for (const std::int64_t images : images_of_documents) {
    const std::vector<std::int32_t> copies(static_cast<std::size_t>(images * tokens_per_image),
                                           image_token);
    writer.append(copies, !masked);
    for (std::int64_t i = 0; i < images; ++i) writer.append_image(pixels_of(number++));
    writer.append(std::vector<std::int32_t>{1, 2});
    writer.end_document(10);
  }
  writer.commit("a.jsonl");
}

TEST(TokenFileImages, RoundTripImagesOfDocuments) {
  const TemporaryFolder folder;
  const auto path = folder.file("t.h5");
  for (const bool masked : {true, false}) {
    write_images(path, {0, 2, 1, 0, 4}, masked);
    const TokenFile file(path);
    EXPECT_EQ(file.header().version, image_token_version);
    EXPECT_EQ(file.has_mask(), masked);
    EXPECT_EQ(file.counted(0, file.tokens()), masked ? 10 : file.tokens());
    ASSERT_TRUE(file.images().has_value());
    EXPECT_EQ(*file.images(), (ImageForm{image_size, 7, image_token, tokens_per_image, 4}));
    std::vector<std::int64_t> first(6);
    file.read_document_images(0, first);
    EXPECT_EQ(first, (std::vector<std::int64_t>{0, 0, 2, 3, 3, 7}));
    std::vector<std::uint8_t> two(2 * image_size * image_size * 3);
    file.read_images(5, two);
    auto expected = pixels_of(5);
    std::ranges::copy(pixels_of(6), std::back_inserter(expected));
    EXPECT_EQ(two, expected);
    file.verify();
  }
  EXPECT_EQ(files_in(folder), 1);
}

TEST(TokenFileImages, StateTheFitAndTheTextsAround) {
  const TemporaryFolder folder;
  const auto path = folder.file("t.h5");
  const ImageForm form{image_size,        1,   image_token, 2, 1, "pad", "bicubic-pillow12",
                       "\n<image_begin>", "\n"};
  const auto write = [&](const ImageForm& with) {
    TokenFileWriter writer(path, "test", 257, {}, with);
    writer.append(std::vector<std::int32_t>{image_token, image_token, 1});
    writer.append_image(pixels_of(0));
    writer.end_document(1);
    writer.commit("a.jsonl");
  };
  write(form);
  EXPECT_EQ(*TokenFile(path).images(), form);
  {
    const auto file = io::Hdf5File::open(path);
    EXPECT_EQ(file.string_attribute("image_fit"), "pad");
    EXPECT_EQ(file.string_attribute("image_resampling"), "bicubic-pillow12");
    EXPECT_EQ(file.string_attribute("image_begin"), "\n<image_begin>");
    EXPECT_EQ(file.string_attribute("image_end"), "\n");
  }
  ImageForm longer = form;
  longer.end = std::string(256, 'x');
  expect_mentions(message_of([&] { write(longer); }),
                  {path, "the text after an image 'xxx", "has more than 255 bytes"});
  longer.end.pop_back();
  write(longer);
  EXPECT_EQ(TokenFile(path).images()->end, longer.end);
}

TEST(TokenFileImages, AreDatasetsOfTheHdf5File) {
  const TemporaryFolder folder;
  const auto path = folder.file("t.h5");
  write_images(path, {1, 2});
  const auto file = io::Hdf5File::open(path);
  const auto images = file.dataset("images");
  EXPECT_EQ(images.dtype(), DType::uint8);
  EXPECT_EQ(images.shape(), (std::vector<std::int64_t>{3, image_size, image_size, 3}));
  EXPECT_EQ(images.file_offset(), TokenFile(path).header().images_begin);
  std::vector<std::uint8_t> last(image_size * image_size * 3);
  images.read(std::vector<std::int64_t>{2, 0, 0, 0},
              std::vector<std::int64_t>{1, image_size, image_size, 3}, last.data());
  EXPECT_EQ(last, pixels_of(2));
  EXPECT_EQ(file.dataset("document_images").shape(), std::vector<std::int64_t>{3});
  EXPECT_EQ(file.integer_attribute("image_token"), image_token);
  EXPECT_EQ(file.integer_attribute("tokens_per_image"), tokens_per_image);
  EXPECT_EQ(file.integer_attribute("most_images"), 2);
}

/// The table of digests grows, and a file of one repeated image has its pixels once.
TEST(TokenFileImages, StoreEachImageOnce) {
  const TemporaryFolder folder;
  const auto path = folder.file("t.h5");
  TokenFileWriter writer(path, "test", 257, {},
                         ImageForm{image_size, 0, image_token, tokens_per_image, 0});
  constexpr std::int64_t distinct = 200, documents = 500;
  const auto image_of = [](std::int64_t document, std::int64_t i) {
    return (document * 7 + i * document / 3) % distinct;
  };
  std::set<std::int64_t> used;
  for (std::int64_t d = 0; d < documents; ++d) {
    writer.append(std::vector<std::int32_t>(2 * tokens_per_image, image_token), false);
    for (std::int64_t i = 0; i < 2; ++i) {
      writer.append_image(pixels_of(image_of(d, i)));
      used.insert(image_of(d, i));
    }
    writer.append(std::vector<std::int32_t>{1});
    writer.end_document(1);
  }
  writer.commit("a.jsonl");
  const TokenFile file(path);
  EXPECT_EQ(file.images()->images, 2 * documents);
  EXPECT_EQ(file.header().stored_images, std::ssize(used));
  EXPECT_EQ(file.header().images_end() - file.header().images_begin,
            std::ssize(used) * image_size * image_size * 3);
  file.verify();
  std::vector<std::uint8_t> all(2 * documents * image_size * image_size * 3), expected;
  file.read_images(0, all);
  for (std::int64_t d = 0; d < documents; ++d)
    for (std::int64_t i = 0; i < 2; ++i) {
      const auto pixels = pixels_of(image_of(d, i));
      expected.insert(expected.end(), pixels.begin(), pixels.end());
    }
  EXPECT_EQ(all, expected);
  // A number without an image, in a file with right checksums.
  std::string bytes = read_file(path);
  TokenHeader header = file.header();
  const std::int64_t number = header.stored_images;
  std::memcpy(bytes.data() + header.image_numbers_begin + 8, &number, sizeof number);
  header.image_numbers_digest = checksum(bytes.data() + header.image_numbers_begin,
                                         static_cast<std::size_t>(8 * header.images));
  seal(header);
  std::memcpy(bytes.data(), &header, sizeof header);
  folder.write("t.h5", bytes);
  const TokenFile damaged(path);
  expect_mentions(message_of([&] { damaged.verify(); }),
                  {path, text("image 1 is number ", number, " of ", number, " distinct images")});
  EXPECT_THROW(damaged.read_images(0, all), Error);
}

TEST(TokenFileImages, RejectReadsOutsideTheFile) {
  const TemporaryFolder folder;
  const auto path = folder.file("t.h5");
  write_images(path, {1, 2});
  const TokenFile file(path);
  std::vector<std::uint8_t> one(image_size * image_size * 3);
  file.read_images(2, one);
  for (const std::int64_t first : {std::int64_t{3}, std::int64_t{-1}, INT64_MAX})
    EXPECT_THROW(file.read_images(first, one), Error);
  one.pop_back();
  expect_mentions(message_of([&] { file.read_images(0, one); }), {path, "74", "75"});
  std::vector<std::int64_t> numbers(2);
  file.read_document_images(1, numbers);
  EXPECT_THROW(file.read_document_images(2, numbers), Error);
  EXPECT_THROW(file.read_document_images(-1, numbers), Error);
}

TEST(TokenFileImages, AreAbsentFromOtherFiles) {
  const TemporaryFolder folder;
  const auto path = folder.file("t.h5");
  write_images(path, {0, 0});
  const TokenFile file(path);
  EXPECT_EQ(file.header().version, token_version);
  EXPECT_EQ(file.images(), std::nullopt);
  std::vector<std::uint8_t> pixels;
  expect_mentions(message_of([&] { file.read_images(0, pixels); }), {path, "no images"});
  std::vector<std::int64_t> numbers(1);
  expect_mentions(message_of([&] { file.read_document_images(0, numbers); }), {path, "no images"});
}

TEST(TokenFileImages, FingerprintCoversPixelsAndPlaces) {
  const TemporaryFolder folder;
  const auto path = folder.file("t.h5");
  const auto fingerprint = [&](std::uint8_t value, std::int64_t token) {
    TokenFileWriter writer(path, "test", 257, {}, ImageForm{1, 0, token, 1, 0});
    writer.append(std::vector<std::int32_t>{1, 2});
    const std::vector<std::uint8_t> pixels{value, 0, 0};
    writer.append_image(pixels);
    writer.end_document(1);
    writer.commit("");
    return TokenFile(path).fingerprint();
  };
  EXPECT_EQ(fingerprint(1, 1), fingerprint(1, 1));
  EXPECT_NE(fingerprint(1, 1), fingerprint(2, 1));
  EXPECT_NE(fingerprint(1, 1), fingerprint(1, 2));
  // The same pixels, tokens and numbers of images in another order.
  const auto in_order = [&](int first, int second, int third) {
    TokenFileWriter writer(path, "test", 257, {}, ImageForm{1, 0, 1, 1, 0});
    for (const int value : {0, 1, first, second, third}) {
      writer.append(std::vector<std::int32_t>{1, 2});
      writer.append_image(std::vector<std::uint8_t>{static_cast<std::uint8_t>(value), 0, 0});
      writer.end_document(1);
    }
    writer.commit("");
    return TokenFile(path).fingerprint();
  };
  EXPECT_EQ(in_order(0, 0, 1), in_order(0, 0, 1));
  EXPECT_NE(in_order(0, 0, 1), in_order(0, 1, 0));
}

TEST(TokenFileImages, WriterRejectsOtherCountsOfImageTokens) {
  const TemporaryFolder folder;
  const auto path = folder.file("t.h5");
  TokenFileWriter writer(path, "test", 257, {}, ImageForm{image_size, 0, image_token, 2, 0});
  writer.append(std::vector<std::int32_t>{image_token, 1});
  writer.append_image(pixels_of(0));
  expect_mentions(message_of([&] { writer.end_document(1); }),
                  {path, "1 tokens of id 7", "1 images", "expected 2"});
  expect_mentions(message_of([&] { writer.append_image(std::vector<std::uint8_t>(3)); }),
                  {path, "3 bytes", "75"});
  TokenFileWriter plain(path, "test", 257);
  EXPECT_THROW(plain.append_image(pixels_of(0)), Error);
}

TEST(TokenFileImages, DetectAFlippedByteAnywhere) {
  const TemporaryFolder folder;
  const auto path = folder.file("t.h5");
  write_images(path, {1, 0, 3});
  const std::string whole = read_file(path);
  const TokenHeader header = TokenFile(path).header();
  for (std::size_t at = 0; at<whole.size(); at += at> 1400 && at < 2200 ? 1 : 23) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    folder.write("t.h5", damaged);
    const std::string message = message_of([&] { TokenFile(path).verify(); });
    expect_mentions(message, {path});
    const auto byte = static_cast<std::int64_t>(at);
    if (byte >= header.images_begin && byte < header.images_end())
      expect_mentions(message, {"dataset 'images' is damaged"});
  }
}

/// A file whose checksums are right is still rejected if image tokens and images differ.
TEST(TokenFileImages, VerifyCountsTheImageTokensOfEachDocument) {
  const TemporaryFolder folder;
  const auto path = folder.file("t.h5");
  write_images(path, {1, 1});
  const std::string whole = read_file(path);
  TokenHeader header = TokenFile(path).header();
  std::string bytes = whole;
  const std::uint16_t id = 9;
  std::memcpy(bytes.data() + header.tokens_begin, &id, sizeof id);
  header.tokens_digest = checksum(bytes.data() + header.tokens_begin,
                                  static_cast<std::size_t>(header.tokens * header.token_bytes));
  seal(header);
  std::memcpy(bytes.data(), &header, sizeof header);
  folder.write("t.h5", bytes);
  expect_mentions(message_of([&] { TokenFile(path).verify(); }),
                  {path, "document 0 has 2 tokens of id 7 for 1 images, expected 3"});
}

/// The fields of mask and images are redundant: a header with other fields and a valid digest is
/// rejected.
TEST(TokenFileImages, RejectMutatedHeaders) {
  const TemporaryFolder folder;
  const auto path = folder.file("t.h5");
  write_images(path, {2, 0, 1, 1});
  const std::string whole = read_file(path);
  std::mt19937_64 random(17);
  for (int trial = 0; trial < 500; ++trial) {
    std::string bytes = whole;
    for (std::uint64_t c = 0; c < 1 + random() % 3; ++c)
      bytes[1408 + random() % 120] = static_cast<char>(random() % 3 == 0 ? 0xff : random());
    TokenHeader header;
    std::memcpy(&header, bytes.data(), sizeof header);
    seal(header);
    std::memcpy(bytes.data(), &header, sizeof header);
    folder.write("t.h5", bytes);
    try {
      const TokenFile file(path);
      file.verify();
      EXPECT_EQ(bytes, whole);
    } catch (const Error& error) {
      expect_mentions(error.what(), {path});
    }
  }
}

}  // namespace
}  // namespace trireme::data
