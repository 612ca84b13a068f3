#include <trireme/architecture/objective.hpp>
#include <trireme/base/check.hpp>
#include <trireme/data/batch_reader.hpp>
#include <trireme/data/image_documents.hpp>
#include <trireme/data/token_file.hpp>
#include <trireme/data/token_file_writer.hpp>

#include <support/temporary_folder.hpp>

#include "support.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <span>
#include <vector>

namespace trireme::data {
namespace {

using testing::TemporaryFolder;

constexpr std::int32_t image_token = 7;
constexpr std::int64_t image_size = 6;

deck::VisionConfig clip_of(std::int64_t images) {
  return {.layers = 2,
          .hidden = 8,
          .heads = 2,
          .feed_forward = 8,
          .image = image_size,
          .patch = 3,
          .images = images};
}

/// Three documents: a text, an image between two words, and two images.
std::string write_documents(const TemporaryFolder& folder, bool masked = true) {
  const std::string path = folder.file("images.h5");
  TokenFileWriter writer(path, "test", 257, {}, ImageForm{image_size, 0, image_token, 4, 0});
  const auto words = [&](std::vector<std::int32_t> ids, bool counted = true) {
    writer.append(ids, counted);
  };
  std::uint8_t value = 0;
  const auto image = [&] {
    words(std::vector<std::int32_t>(4, image_token), !masked);
    std::vector<std::uint8_t> pixels(image_size * image_size * 3);
    std::iota(pixels.begin(), pixels.end(), value++);
    writer.append_image(pixels);
  };
  words({10, 11, 12});
  writer.end_document(1);
  words({20}, !masked);
  image();
  words({21, 22});
  writer.end_document(1);
  image();
  image();
  words({30});
  writer.end_document(1);
  writer.commit("test");
  return path;
}

TEST(ImageDocuments, HaveTheRowsAndThePixelsOfTheirImages) {
  const TemporaryFolder folder;
  const TokenFile file(write_documents(folder));
  const deck::VisionConfig vision = clip_of(2);
  const ImageDocuments documents(file, vision, 9);
  ASSERT_EQ(documents.samples(), 3);
  EXPECT_EQ(documents.counted(0), 2);
  EXPECT_EQ(documents.counted(1), 2);
  EXPECT_EQ(documents.counted(2), 1);
  EXPECT_EQ(documents.description(), "3 documents with 3 images, 40.7 % padding");
  std::vector<std::int32_t> inputs(9), targets(9), rows(9);
  std::vector<std::int32_t> pixels(static_cast<std::size_t>(vision.pixel_words()));
  const auto read = [&](std::int64_t sample) {
    documents.read(sample, {inputs, targets, rows, pixels});
  };
  using Row = std::vector<std::int32_t>;
  read(0);
  EXPECT_EQ(inputs, (Row{10, 11, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(targets, (Row{11, 12, -1, -1, -1, -1, -1, -1, -1}));
  EXPECT_EQ(rows, Row(9, -1));
  EXPECT_EQ(pixels, Row(pixels.size(), 0));
  read(1);
  EXPECT_EQ(inputs, (Row{20, 7, 7, 7, 7, 21, 0, 0, 0}));
  EXPECT_EQ(targets, (Row{-1, -1, -1, -1, 21, 22, -1, -1, -1}));
  EXPECT_EQ(rows, (Row{-1, 1, 2, 3, 4, -1, -1, -1, -1}));
  std::vector<std::uint8_t> bytes(pixels.size() * 4);
  std::memcpy(bytes.data(), pixels.data(), bytes.size());
  EXPECT_EQ(bytes[0], 0);
  EXPECT_EQ(bytes[107], 107);
  EXPECT_EQ(bytes[108], 0) << "no second image";
  read(2);
  EXPECT_EQ(inputs, (Row{7, 7, 7, 7, 7, 7, 7, 7, 0}));
  EXPECT_EQ(rows, (Row{1, 2, 3, 4, 6, 7, 8, 9, -1}));
  std::memcpy(bytes.data(), pixels.data(), bytes.size());
  EXPECT_EQ(bytes[0], 1);
  EXPECT_EQ(bytes[108], 2);
}

TEST(ImageDocuments, BatchesHaveTheEndsOfTheKeysOfWholeImages) {
  const TemporaryFolder folder;
  const TokenFile file(write_documents(folder));
  deck::Config config;
  deck::ModelConfig& m = config.model;
  m.layers = 1;
  m.hidden = m.feed_forward = 8;
  m.heads = m.key_value_heads = 2;
  m.sequence = 9;
  m.vocabulary = 257;
  m.vision = clip_of(2);
  m.vision.family = VisionFamily::gemma3;
  m.vision.patch = 1;
  m.vision.pool = 3;
  const auto reader = make_batch_reader(config);
  const auto objective = architecture::objective_of(m);
  std::vector<std::vector<std::int32_t>> fields;
  for (const auto& field : objective.fields)
    fields.emplace_back(static_cast<std::size_t>(4 * field.per_sample), 99);
  const std::vector<std::span<std::int32_t>> spans(fields.begin(), fields.end());
  reader->read(Windows(file, SampleForm(m)), 0, 3, spans);  // of four samples
  using Row = std::vector<std::int32_t>;
  EXPECT_EQ(fields[objective.field("image_rows")],
            (Row{-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0,  1,  2,  3,  -1, -1, -1, -1,
                 0,  1,  2,  3,  4,  5,  6,  7,  -1, -1, -1, -1, -1, -1, -1, -1, -1, -1}));
  EXPECT_EQ(fields[objective.field("key_end")],
            (Row{1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 5, 5, 5, 5, 6, 7, 8, 9,
                 8, 8, 8, 8, 8, 8, 8, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9}))
      << "two images without text between them are one";
}

TEST(ImageDocuments, RejectFilesThatDoNotFitTheModel) {
  const TemporaryFolder folder;
  const TokenFile file(write_documents(folder));
  const auto mistake = [&](deck::VisionConfig vision, std::int64_t sequence) -> std::string {
    try {
      const ImageDocuments documents(file, vision, sequence);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "none";
  };
  const std::string path = file.path();
  EXPECT_EQ(mistake(clip_of(2), 8), "none");
  EXPECT_EQ(mistake(clip_of(1), 8),
            path + " has samples with 2 images, but [vision] images = 1; choose images = 2");
  EXPECT_EQ(mistake(clip_of(2), 7),
            path +
                ": its longest document has 9 tokens, but a sample of [model] sequence = 7 has "
                "room for 8; choose sequence = 8, or shorten documents");
  deck::VisionConfig other = clip_of(2);
  other.image = 9;
  EXPECT_EQ(mistake(other, 8),
            path +
                ": its images have sides of 6 pixels, but [vision] image = 9; choose image = 6, "
                "or tokenize with --images 9");
  other = clip_of(2);
  other.patch = 2;
  EXPECT_EQ(mistake(other, 8),
            path +
                ": an image has 4 tokens, but [vision] image = 6 and patch = 2 give 9 patches; "
                "tokenize with --image-tokens 9");
  other.family = VisionFamily::gemma3;
  other.patch = 1;
  other.pool = 2;
  EXPECT_EQ(mistake(other, 8),
            path +
                ": an image has 4 tokens, but [vision] image = 6, patch = 1 and pool = 2 give 9 "
                "squares of patches; tokenize with --image-tokens 9");
  EXPECT_THROW(Windows(file, SampleForm(8)), UsageError) << "a model that sees no images";
}

TEST(ImageDocuments, RejectImageTokensThatCount) {
  const TemporaryFolder folder;
  const TokenFile file(write_documents(folder, false));
  EXPECT_THROW(ImageDocuments(file, clip_of(2), 8), Error);
}

}  // namespace
}  // namespace trireme::data
