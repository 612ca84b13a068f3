// Reads token files with pread, at the offsets of the datasets in the header.
#include <trireme/data/token_file.hpp>

#include <trireme/base/check.hpp>
#include <trireme/io/hdf5_file.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace trireme::data {
namespace {

constexpr std::int64_t rest_limit_bytes = 16 << 20;
TokenHeader read_header(const io::InputFile& file) {
  TokenHeader header{};
  const auto bytes = std::min<std::int64_t>(file.size(), token_header_bytes);
  file.read(0, &header, static_cast<std::size_t>(bytes));
  verify(header, file.size(), file.path());
  return header;
}

/// Converts ids to 32 bits, and returns the largest id.
template <class Stored>
std::uint32_t widen(const Stored* from, std::int32_t* to, std::size_t count) {
  Stored largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    largest = std::max(largest, from[i]);
    to[i] = static_cast<std::int32_t>(from[i]);
  }
  return largest;
}

template <class Stored>
void read_as(const io::InputFile& file, const TokenHeader& header, std::int64_t first,
             std::span<std::int32_t> out) {
  std::array<Stored, numbers_at_a_time> stored;
  for (std::size_t at = 0; at < out.size(); at += numbers_at_a_time) {
    const std::size_t count = std::min(numbers_at_a_time, out.size() - at);
    const std::int64_t token = first + static_cast<std::int64_t>(at);
    file.read(header.tokens_begin + token * header.token_bytes, stored.data(),
              count * sizeof(Stored));
    const std::uint32_t largest = widen(stored.data(), out.data() + at, count);
    check(largest < header.vocabulary, file.path(), ": token id ", largest, " among tokens ", token,
          " to ", token + static_cast<std::int64_t>(count) - 1, " is outside the vocabulary of ",
          header.vocabulary, "; run `trireme inspect --verify` to check the file for damage");
  }
}

}  // namespace

Digest digest_of_rest(const io::InputFile& file, const TokenHeader& h) {
  const auto datasets = datasets_of(h);
  std::int64_t bytes = h.file_bytes - token_header_bytes;
  for (const TokenDataset& dataset : datasets) bytes -= dataset.end - dataset.begin;
  check(bytes <= rest_limit_bytes, file.path(), ": has ", bytes,
        " bytes besides its datasets, expected at most ", rest_limit_bytes);
  Checksum sum;
  std::int64_t at = token_header_bytes;
  const auto add_until = [&](std::int64_t end) {
    file.for_each_block(at, end,
                        [&](const std::byte* data, std::size_t size) { sum.update(data, size); });
  };
  for (const TokenDataset& dataset : datasets) {
    add_until(dataset.begin);
    at = dataset.end;
  }
  add_until(h.file_bytes);
  return sum.digest();
}

TokenFile::TokenFile(const std::string& path)
    : file_(path), header_(read_header(file_)), tokenizer_(header_.tokenizer) {
  check(digest_of_rest(file_, header_) == header_.rest_digest, path,
        ": the HDF5 structures around its tokens are damaged (checksum differs)");
  std::array<std::int64_t, 2> ends{};
  file_.read(header_.offsets_begin, &ends[0], 8);
  file_.read(header_.offsets_end() - 8, &ends[1], 8);
  check(ends[0] == 0 && ends[1] == header_.tokens, path, ": its documents span tokens [", ends[0],
        ", ", ends[1], "), expected [0, ", header_.tokens, ")");
  if (!header_.has_images()) return;
  file_.read(header_.document_images_begin, &ends[0], 8);
  file_.read(header_.document_images_end() - 8, &ends[1], 8);
  check(ends[0] == 0 && ends[1] == header_.images, path, ": its documents have images [", ends[0],
        ", ", ends[1], "), expected [0, ", header_.images, ")");
}

TokenizerSource TokenFile::tokenizer_source() const {
  if (tokenizer_ == "bytes") return {};
  return {header_.tokenizer_path, header_.end_of_document};
}

std::string TokenFile::fingerprint() const {
  Checksum sum;
  for (const std::int64_t number : {header_.tokens, header_.documents, header_.counted})
    sum.update(&number, sizeof number);
  for (const Digest& part : {header_.tokens_digest, header_.offsets_digest, header_.mask_digest})
    sum.update(&part, sizeof part);
  if (const auto form = images()) {
    for (const std::int64_t number : {form->size, form->token, form->tokens_per_image})
      sum.update(&number, sizeof number);
    for (const Digest& part :
         {header_.images_digest, header_.image_numbers_digest, header_.document_images_digest})
      sum.update(&part, sizeof part);
  }
  return sum.digest().hex();
}

void TokenFile::expect_inside(std::int64_t first, std::int64_t count) const {
  check(first >= 0 && count <= tokens() && first <= tokens() - count, path(), ": has ", tokens(),
        " tokens, but ", count, " from token ", first, " were requested");
}

template <class Use>
void TokenFile::visit_mask(std::int64_t first, std::int64_t count, const Use& use) const {
  expect_inside(first, count);
  std::array<std::uint8_t, 2048> bytes;
  const std::int64_t end = first + count;
  for (std::int64_t at = first; at < end;) {
    const std::int64_t first_byte = at / 8;
    const std::int64_t held = std::min(std::ssize(bytes), (end + 7) / 8 - first_byte);
    file_.read(header_.mask_begin + first_byte, bytes.data(), static_cast<std::size_t>(held));
    for (std::int64_t b = 0; b < held; ++b) {
      const std::int64_t next = std::min(end, (first_byte + b + 1) * 8);
      const auto n = static_cast<int>(next - at);
      const std::uint32_t bits = std::uint32_t{bytes.at(static_cast<std::size_t>(b))} >> at % 8;
      use(at, bits & ((1u << n) - 1), n);
      at = next;
    }
  }
}

void TokenFile::mask(std::int64_t first, std::span<std::int32_t> ids) const {
  if (!has_mask()) return;
  visit_mask(first, std::ssize(ids), [&](std::int64_t token, std::uint32_t bits, int n) {
    for (int i = 0; i < n; ++i)
      if ((bits >> i & 1) == 0) ids[static_cast<std::size_t>(token - first + i)] = uncounted;
  });
}

std::int64_t TokenFile::counted(std::int64_t first, std::int64_t count) const {
  if (!has_mask()) return count;
  std::int64_t sum = 0;
  visit_mask(first, count,
             [&](std::int64_t, std::uint32_t bits, int) { sum += std::popcount(bits); });
  return sum;
}

void TokenFile::read(std::int64_t first, std::span<std::int32_t> out) const {
  expect_inside(first, std::ssize(out));
  if (header_.token_bytes == 2)
    read_as<std::uint16_t>(file_, header_, first, out);
  else
    read_as<std::uint32_t>(file_, header_, first, out);
}

void TokenFile::read_document_offsets(std::int64_t first, std::span<std::int64_t> out) const {
  const std::int64_t count = std::ssize(out);
  check(first >= 0 && count <= documents() + 1 && first <= documents() + 1 - count, path(),
        ": has ", documents() + 1, " document offsets, but ", count, " from ", first,
        " were requested");
  file_.read(header_.offsets_begin + first * 8, out.data(), out.size_bytes());
  for (std::size_t i = 0; i < out.size(); ++i)
    check(out[i] >= 0 && out[i] <= tokens() && (i == 0 || out[i] > out[i - 1]), path(),
          ": document ", first + static_cast<std::int64_t>(i), " begins at token ", out[i],
          ", outside the file or not after the previous document's; the file is damaged");
}

std::optional<ImageForm> TokenFile::images() const {
  if (!header_.has_images()) return std::nullopt;
  return ImageForm{header_.image_size,       header_.images,      header_.image_token,
                   header_.tokens_per_image, header_.most_images, header_.image_fit,
                   header_.image_resampling, header_.image_begin, header_.image_end};
}

void TokenFile::read_document_images(std::int64_t first, std::span<std::int64_t> offsets) const {
  check(header_.has_images(), path(), ": has no images");
  const std::int64_t count = std::ssize(offsets);
  check(first >= 0 && count <= documents() + 1 && first <= documents() + 1 - count, path(),
        ": has ", documents() + 1, " image numbers of documents, but ", count, " from ", first,
        " were requested");
  file_.read(header_.document_images_begin + first * 8, offsets.data(), offsets.size_bytes());
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    const std::int64_t before = i == 0 ? 0 : offsets[i - 1];
    check(offsets[i] >= before && offsets[i] <= header_.images &&
              (i == 0 || offsets[i] - before <= header_.most_images),
          path(), ": the images of document ", first + static_cast<std::int64_t>(i),
          " begin at image ", offsets[i], " of ", header_.images, " after image ", before,
          "; the file is damaged");
  }
}

void TokenFile::read_images(std::int64_t first, std::span<std::uint8_t> out) const {
  check(header_.has_images(), path(), ": has no images");
  const std::int64_t count = std::ssize(out) / header_.image_bytes();
  check(count * header_.image_bytes() == std::ssize(out), path(), ": ", out.size(),
        " bytes were requested, which are no multiple of an image's ", header_.image_bytes());
  check(first >= 0 && count <= header_.images && first <= header_.images - count, path(), ": has ",
        header_.images, " images, but ", count, " from image ", first, " were requested");
  std::array<std::int64_t, 64> numbers;
  const std::int64_t bytes = header_.image_bytes();
  for (std::int64_t at = 0; at < count; at += std::ssize(numbers)) {
    const auto part = std::span(numbers).first(
        static_cast<std::size_t>(std::min(std::ssize(numbers), count - at)));
    read_image_numbers(first + at, part);
    for (std::size_t i = 0; i < part.size(); ++i)
      file_.read(header_.images_begin + part[i] * bytes,
                 out.data() + (at + static_cast<std::int64_t>(i)) * bytes,
                 static_cast<std::size_t>(bytes));
  }
}

/// The numbers of images among the distinct ones. Error for a number that has no image.
void TokenFile::read_image_numbers(std::int64_t first, std::span<std::int64_t> out) const {
  file_.read(header_.image_numbers_begin + first * 8, out.data(), out.size_bytes());
  for (std::size_t i = 0; i < out.size(); ++i)
    check(out[i] >= 0 && out[i] < header_.stored_images, path(), ": image ",
          first + static_cast<std::int64_t>(i), " is number ", out[i], " of ",
          header_.stored_images, " distinct images; the file is damaged");
}

std::string TokenFile::sources() const {
  const auto file = io::Hdf5File::open(path());
  return file.string_attribute("sources");
}

void TokenFile::verify_bytes() const {
  for (const TokenDataset& dataset : datasets_of(header_)) {
    Checksum sum;
    file_.for_each_block(dataset.begin, dataset.end, [&](const std::byte* data, std::size_t bytes) {
      sum.update(data, bytes);
    });
    const Digest found = sum.digest();
    check(found == dataset.digest, path(), ": dataset '", dataset.name, "' is damaged: checksum ",
          found.hex(), ", expected ", dataset.digest.hex(), "; copy or make the file again");
  }
}

/// Error unless each document has tokens_per_image image tokens for each of its images.
void TokenFile::verify_images() const {
  std::vector<std::int64_t> offsets(numbers_at_a_time);
  std::vector<std::int64_t> first_images(numbers_at_a_time);
  std::vector<std::int32_t> ids(1 << 16);
  std::int64_t most = 0;
  for (std::int64_t at = 0; at < documents(); at += std::ssize(offsets) - 1) {
    const auto count =
        static_cast<std::size_t>(std::min(std::ssize(offsets), documents() + 1 - at));
    read_document_offsets(at, std::span(offsets).first(count));
    read_document_images(at, std::span(first_images).first(count));
    std::size_t document = 0;  // of the token, from `at`
    std::int64_t found = 0;
    for (std::int64_t token = offsets[0]; token < offsets[count - 1]; token += std::ssize(ids)) {
      const auto part = std::span(ids).first(
          static_cast<std::size_t>(std::min(std::ssize(ids), offsets[count - 1] - token)));
      read(token, part);
      for (std::size_t i = 0; i < part.size(); ++i) {
        found += part[i] == header_.image_token ? 1 : 0;
        if (token + static_cast<std::int64_t>(i) + 1 < offsets[document + 1]) continue;
        const std::int64_t held = first_images[document + 1] - first_images[document];
        check(found == held * header_.tokens_per_image, path(), ": document ",
              at + static_cast<std::int64_t>(document), " has ", found, " tokens of id ",
              header_.image_token, " for ", held, " images, expected ",
              held * header_.tokens_per_image, "; make the file again");
        most = std::max(most, held);
        ++document;
        found = 0;
      }
    }
  }
  std::int64_t distinct = 0;
  for (std::int64_t at = 0; at < header_.images; at += std::ssize(first_images)) {
    const auto numbers = std::span(first_images)
                             .first(static_cast<std::size_t>(
                                 std::min(std::ssize(first_images), header_.images - at)));
    read_image_numbers(at, numbers);
    for (const std::int64_t number : numbers) {
      check(number <= distinct, path(),
            ": distinct images are used in another order than they are ",
            "stored; make the file again");
      distinct = std::max(distinct, number + 1);
    }
  }
  check(distinct == header_.stored_images, path(), ": uses ", distinct, " of its ",
        header_.stored_images, " distinct images; make the file again");
  check(most == header_.most_images, path(), ": its documents have at most ", most,
        " images, its header says ", header_.most_images, "; make the file again");
}

void TokenFile::verify() const {
  verify_bytes();
  std::vector<std::int32_t> ids(1 << 18);
  for (std::int64_t at = 0; at < tokens(); at += std::ssize(ids))
    read(at,
         std::span(ids).first(static_cast<std::size_t>(std::min(std::ssize(ids), tokens() - at))));
  if (has_mask()) {
    const std::int64_t found = counted(0, tokens());
    check(found == header_.counted, path(), ": its mask counts ", found, " tokens, its header ",
          header_.counted, "; copy or make the file again");
  }
  std::vector<std::int64_t> offsets(numbers_at_a_time);
  // Blocks overlap by one offset.
  for (std::int64_t at = 0; at < documents(); at += std::ssize(offsets) - 1)
    read_document_offsets(at, std::span(offsets).first(static_cast<std::size_t>(
                                  std::min(std::ssize(offsets), documents() + 1 - at))));
  if (header_.has_images()) verify_images();
}

}  // namespace trireme::data
