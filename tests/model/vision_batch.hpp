#pragma once

#include <trireme/data/token_file_writer.hpp>
#include <trireme/data/token_source.hpp>
#include <trireme/deck/config.hpp>

#include "support/small_gpt.hpp"
#include "support/temporary_folder.hpp"

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

/// The samples with images of tests/golden/llava_fp64/make.py.
namespace trireme::model {

inline constexpr std::int64_t image_samples = 3, image_sequence = 31, image_vocabulary = 53;
inline constexpr std::int32_t placeholder = 50;
inline constexpr std::int64_t image_stride = 7;  ///< of the stored elements of gradients

inline constexpr std::int64_t image_gap = 5;  ///< tokens between images

/// Token s of sample b, which has b images, from token 2 and from token 2 + 9 + gap.
inline std::int32_t vision_token(const deck::VisionConfig& vision, std::int64_t b, std::int64_t s,
                                 std::int64_t gap = image_gap) {
  const std::int64_t place = s - 2, image = place / (vision.tokens() + gap);
  if (place >= 0 && image < b && place % (vision.tokens() + gap) < vision.tokens())
    return placeholder;
  return static_cast<std::int32_t>((7919 + b * 104729 + s * 1299709 + s * s * (b + 31)) %
                                   placeholder);
}

/// Byte k of image i of sample b.
inline std::uint8_t vision_pixel(std::int64_t b, std::int64_t i, std::int64_t k) {
  constexpr std::int64_t most = 2;
  return static_cast<std::uint8_t>(((b * most + i) * 7001 + k) * 2654435761 % 4294967296 /
                                   16777216);
}

/// Tokens of images do not count.
template <class P>
void set_vision_batch(const testing::WholeModel<P>& stage, const deck::VisionConfig& vision,
                      std::int64_t gap = image_gap) {
  using namespace trireme::testing;
  std::vector<std::int32_t> tokens, targets, rows, ends;
  std::vector<std::uint8_t> bytes(
      static_cast<std::size_t>(image_samples * vision.pixel_words() * 4), 77);  // of absent images
  for (std::int64_t b = 0; b < image_samples; ++b) {
    std::int32_t next = 0;  // token of the sample's images
    for (std::int64_t s = 0; s < image_sequence; ++s) {
      tokens.push_back(vision_token(vision, b, s, gap));
      const std::int32_t target = vision_token(vision, b, s + 1, gap);
      targets.push_back(target == placeholder ? data::uncounted : target);
      const auto before = static_cast<std::int32_t>(vision.projected_rows() - vision.tokens());
      const auto image = next / static_cast<std::int32_t>(vision.tokens());
      rows.push_back(tokens.back() == placeholder ? next++ + before * (image + 1) : -1);
      std::int64_t end = s + 1;  // an image's tokens see all of its tokens
      while (tokens.back() == placeholder && end < image_sequence &&
             vision_token(vision, b, end, gap) == placeholder)
        ++end;
      ends.push_back(static_cast<std::int32_t>(end));
    }
    for (std::int64_t i = 0; i < b; ++i)
      for (std::int64_t k = 0; k < vision.pixel_bytes(); ++k)
        bytes[static_cast<std::size_t>(b * vision.pixel_words() * 4 + i * vision.pixel_bytes() +
                                       k)] = vision_pixel(b, i, k);
  }
  std::vector<std::int32_t> words(bytes.size() / 4);
  std::memcpy(words.data(), bytes.data(), bytes.size());
  set_values(stage.tokens(0), tokens);
  set_values(stage.targets(0), targets);
  set_values(stage.field(0, "image_rows"), rows);
  set_values(stage.field(0, "pixels"), words);
  if (vision.sees_whole_images()) set_values(stage.field(0, "key_end"), ends);
}

/// The mean is over the counted targets of the golden batch: all but 9 per image.
inline MicroContext vision_context(double dropout = 0) {
  MicroContext c;
  c.seed = 7;
  c.step = 3;
  c.sequence = image_sequence;
  c.dropout = dropout;
  c.token_weight = 1.0 / (image_samples * image_sequence - 3 * 9);
  return c;
}

/// A token file with the golden samples as its documents.
inline std::string write_golden_documents(const testing::TemporaryFolder& folder,
                                          const deck::VisionConfig& v) {
  const std::string path = folder.file("images.h5");
  data::TokenFileWriter writer(path, "bytes", image_vocabulary, {},
                               data::ImageForm{v.image, 0, placeholder, v.tokens(), 0});
  for (std::int64_t b = 0; b < image_samples; ++b) {
    for (std::int64_t s = 0; s <= image_sequence; ++s) {
      const std::int32_t token = vision_token(v, b, s);
      writer.append(std::vector{token}, token != placeholder);
    }
    for (std::int64_t i = 0; i < b; ++i) {
      std::vector<std::uint8_t> pixels;
      for (std::int64_t k = 0; k < v.pixel_bytes(); ++k) pixels.push_back(vision_pixel(b, i, k));
      writer.append_image(pixels);
    }
    writer.end_document(10);
  }
  writer.commit("test");
  return path;
}

}  // namespace trireme::model
