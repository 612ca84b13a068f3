// Spools tokens, offsets and mask to unnamed files while they are counted and hashed, then creates
// the HDF5 file with its metadata, copies the datasets into place and writes the header last.
#include <trireme/data/token_file_writer.hpp>

#include <trireme/base/check.hpp>
#include <trireme/data/token_file.hpp>
#include <trireme/io/hdf5_file.hpp>
#include <trireme/io/input_file.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace trireme::data {
namespace {

constexpr std::size_t buffer_bytes = 1 << 20;
constexpr std::size_t sources_limit_bytes = 32 << 10;
constexpr std::int64_t structure_bytes = 1 << 20;  // space for HDF5's metadata

/// The first whole lines of `sources` within the limit, or a part of the first line, and "...".
std::string shortened(const std::string& sources) {
  if (sources.size() <= sources_limit_bytes) return sources;
  const std::size_t end = sources.rfind('\n', sources_limit_bytes);
  return sources.substr(0, end == std::string::npos ? sources_limit_bytes : end) + "\n...";
}

/// Copies a string that expect_room() has accepted.
template <std::size_t room>
void copy_to(char (&field)[room], const std::string& words) {
  std::memcpy(field, words.data(), words.size());
}

void expect_room(const std::string& path, const char* what, const std::string& value,
                 std::size_t room) {
  check_usage(value.size() < room, path, ": the ", what, " '", value, "' has more than ", room - 1,
              " bytes");
}

}  // namespace

auto DigestNumbers::entry(const Digest& digest) -> Entry& {
  const std::size_t mask = entries_.size() - 1;
  std::size_t at = digest.low & mask;
  while (entries_[at].number >= 0 && entries_[at].digest != digest) at = (at + 1) & mask;
  return entries_[at];
}

auto DigestNumbers::number_of(const Digest& digest) -> Place {
  Entry* found = &entry(digest);
  if (found->number >= 0) return {found->number, false};
  if (4 * (count_ + 1) > 3 * std::ssize(entries_)) {
    const std::vector<Entry> former =
        std::exchange(entries_, std::vector<Entry>(2 * entries_.size()));
    for (const Entry& one : former)
      if (one.number >= 0) entry(one.digest) = one;
    found = &entry(digest);
  }
  *found = {digest, count_};
  return {count_++, true};
}

void TokenFileWriter::Stream::add(const void* data, std::size_t bytes) {
  const auto* begin = static_cast<const char*>(data);
  buffer.insert(buffer.end(), begin, begin + bytes);
  if (buffer.size() >= buffer_bytes) flush();
}

void TokenFileWriter::Stream::flush() {
  checksum.update(buffer.data(), buffer.size());
  spool.append(buffer.data(), buffer.size());
  buffer.clear();
}

TokenFileWriter::TokenFileWriter(const std::string& path, const std::string& tokenizer,
                                 std::int64_t vocabulary, const TokenizerSource& source,
                                 const std::optional<ImageForm>& images)
    : file_(path),
      tokenizer_(tokenizer),
      source_(source.path == "bytes" ? TokenizerSource{"", ""} : source),
      vocabulary_(vocabulary),
      token_stream_(path),
      offset_stream_(path),
      mask_stream_(path),
      image_form_(images) {
  check(vocabulary >= 1 && vocabulary <= vocabulary_limit, path, ": a vocabulary of ", vocabulary,
        " ids, expected 1 to ", vocabulary_limit);
  expect_room(path, "tokenizer's name", tokenizer, sizeof(TokenHeader::tokenizer));
  expect_room(path, "tokenizer's path", source_.path, sizeof(TokenHeader::tokenizer_path));
  expect_room(path, "end-of-document token", source_.end_of_document,
              sizeof(TokenHeader::end_of_document));
  const std::int64_t zero = 0;
  offset_stream_.add(&zero, sizeof zero);
  if (!images) return;
  check(images->size >= 1 && images->size <= image_size_limit, path, ": images of ", images->size,
        " pixels per side, expected 1 to ", image_size_limit);
  check(images->token >= 0 && images->token < vocabulary && images->tokens_per_image >= 1, path,
        ": images with ", images->tokens_per_image, " tokens of id ", images->token,
        ", expected at least 1 of an id of the vocabulary of ", vocabulary);
  expect_room(path, "fit of images", images->fit, sizeof(TokenHeader::image_fit));
  expect_room(path, "resampling of images", images->resampling,
              sizeof(TokenHeader::image_resampling));
  expect_room(path, "text before an image", images->begin, sizeof(TokenHeader::image_begin));
  expect_room(path, "text after an image", images->end, sizeof(TokenHeader::image_end));
  image_form_->images = 0;
  image_form_->most_per_document = 0;
  image_stream_.emplace(path);
  image_place_stream_.emplace(path);
  image_number_stream_.emplace(path);
  image_number_stream_->add(&zero, sizeof zero);
}

template <class Stored>
void TokenFileWriter::append_as(std::span<const std::int32_t> tokens) {
  constexpr std::size_t chunk = 16384;
  std::array<Stored, chunk> stored;
  for (std::size_t at = 0; at < tokens.size(); at += chunk) {
    const std::size_t count = std::min(chunk, tokens.size() - at);
    std::uint32_t largest = 0;  // negative ids are large as unsigned values
    for (std::size_t i = 0; i < count; ++i) {
      const auto id = static_cast<std::uint32_t>(tokens[at + i]);
      largest = std::max(largest, id);
      stored[i] = static_cast<Stored>(id);
    }
    check(largest < vocabulary_, file_.path(), ": token id ", static_cast<std::int32_t>(largest),
          " is outside the vocabulary of ", vocabulary_);
    token_stream_.add(stored.data(), count * sizeof(Stored));
  }
}

/// Token t is bit t mod 8 of byte t / 8. As long as all tokens count, nothing is stored.
void TokenFileWriter::append_to_mask(std::int64_t count, bool counted) {
  if (count == 0) return;
  const bool first = !counted && counted_ == tokens_;
  if (counted) counted_ += count;
  if (counted && counted_ == tokens_ + count) return;
  if (first) {  // the first uncounted token: ones for all earlier tokens
    constexpr std::array<std::uint8_t, 1024> ones = [] {
      std::array<std::uint8_t, 1024> all{};
      all.fill(0xff);
      return all;
    }();
    for (std::int64_t left = tokens_ / 8; left > 0; left -= std::ssize(ones))
      mask_stream_.add(ones.data(),
                       static_cast<std::size_t>(std::min<std::int64_t>(left, std::ssize(ones))));
    mask_byte_ = static_cast<std::uint8_t>((1u << tokens_ % 8) - 1);
  }
  for (std::int64_t t = tokens_; t < tokens_ + count; ++t) {
    if (counted) mask_byte_ = static_cast<std::uint8_t>(mask_byte_ | 1u << t % 8);
    if (t % 8 < 7) continue;
    mask_stream_.add(&mask_byte_, 1);
    mask_byte_ = 0;
  }
}

void TokenFileWriter::append(std::span<const std::int32_t> tokens, bool counted) {
  append_to_mask(std::ssize(tokens), counted);
  if (token_bytes_for(vocabulary_) == 2)
    append_as<std::uint16_t>(tokens);
  else
    append_as<std::uint32_t>(tokens);
  tokens_ += std::ssize(tokens);
  if (image_form_) document_image_tokens_ += std::ranges::count(tokens, image_form_->token);
}

void TokenFileWriter::append_image(std::span<const std::uint8_t> pixels) {
  check(image_form_.has_value(), file_.path(), ": is written without images");
  check(std::ssize(pixels) == image_form_->image_bytes(), file_.path(), ": an image of ",
        pixels.size(), " bytes, expected ", image_form_->image_bytes());
  const auto [number, is_new] = image_digests_.number_of(checksum(pixels.data(), pixels.size()));
  if (is_new) image_stream_->add(pixels.data(), pixels.size());
  image_place_stream_->add(&number, sizeof number);
  ++document_images_;
}

void TokenFileWriter::end_images() {
  if (!image_form_) return;
  const std::int64_t expected = document_images_ * image_form_->tokens_per_image;
  check(document_image_tokens_ == expected, file_.path(), ": document ", documents_, " has ",
        document_image_tokens_, " tokens of id ", image_form_->token, " for ", document_images_,
        " images, expected ", expected);
  image_form_->images += document_images_;
  image_form_->most_per_document = std::max(image_form_->most_per_document, document_images_);
  image_number_stream_->add(&image_form_->images, sizeof image_form_->images);
  document_images_ = 0;
  document_image_tokens_ = 0;
}

void TokenFileWriter::end_document(std::int64_t text_bytes) {
  check(tokens_ > document_begin_ && text_bytes >= 0, file_.path(), ": document ", documents_,
        " has no tokens");
  end_images();
  offset_stream_.add(&tokens_, sizeof tokens_);
  document_begin_ = tokens_;
  text_bytes_ += text_bytes;
  ++documents_;
}

void TokenFileWriter::write_image_fields(TokenHeader& header, io::Hdf5File& file) {
  const ImageForm& form = *image_form_;
  header.images = form.images;
  header.image_size = form.size;
  header.image_token = form.token;
  header.tokens_per_image = form.tokens_per_image;
  header.most_images = form.most_per_document;
  copy_to(header.image_fit, form.fit);
  copy_to(header.image_resampling, form.resampling);
  copy_to(header.image_begin, form.begin);
  copy_to(header.image_end, form.end);
  header.stored_images = image_digests_.count();
  header.images_digest = image_stream_->checksum.digest();
  header.image_numbers_digest = image_place_stream_->checksum.digest();
  header.document_images_digest = image_number_stream_->checksum.digest();
  header.images_begin =
      file.create_dataset("images", DType::uint8, {header.stored_images, form.size, form.size, 3})
          .file_offset();
  header.image_numbers_begin =
      file.create_dataset("image_numbers", DType::int64, {form.images}).file_offset();
  header.document_images_begin =
      file.create_dataset("document_images", DType::int64, {documents_ + 1}).file_offset();
  file.set_attribute("image_token", form.token);
  file.set_attribute("tokens_per_image", form.tokens_per_image);
  file.set_attribute("most_images", form.most_per_document);
  for (const auto& [name, words] :
       {std::pair("image_fit", form.fit), std::pair("image_resampling", form.resampling),
        std::pair("image_begin", form.begin), std::pair("image_end", form.end)})
    if (!words.empty()) file.set_attribute(name, words);
  file.set_attribute("images_xxh3_128", header.images_digest.hex());
  file.set_attribute("image_numbers_xxh3_128", header.image_numbers_digest.hex());
  file.set_attribute("document_images_xxh3_128", header.document_images_digest.hex());
}

/// Creates the file; the datasets are allocated but not written. Returns the header without
/// file_bytes, rest_digest and digest.
TokenHeader TokenFileWriter::write_hdf5(const std::string& sources) {
  TokenHeader header{};
  std::memcpy(header.magic, token_magic, sizeof token_magic);
  header.version = has_images() ? image_token_version
                   : has_mask() ? masked_token_version
                                : token_version;
  header.token_bytes = token_bytes_for(vocabulary_);
  header.tokens = tokens_;
  header.documents = documents_;
  header.vocabulary = vocabulary_;
  header.text_bytes = text_bytes_;
  header.tokens_digest = token_stream_.checksum.digest();
  header.offsets_digest = offset_stream_.checksum.digest();
  copy_to(header.tokenizer, tokenizer_);
  copy_to(header.tokenizer_path, source_.path);
  copy_to(header.end_of_document, source_.end_of_document);

  auto file = io::Hdf5File::create(file_.temporary_path(), token_header_bytes);
  const DType dtype = header.token_bytes == 2 ? DType::uint16 : DType::uint32;
  header.tokens_begin = file.create_dataset("tokens", dtype, {tokens_}).file_offset();
  header.offsets_begin =
      file.create_dataset("document_offsets", DType::int64, {documents_ + 1}).file_offset();
  if (has_mask()) {
    header.mask_begin =
        file.create_dataset("mask", DType::uint8, {(tokens_ + 7) / 8}).file_offset();
    header.mask_digest = mask_stream_.checksum.digest();
    header.counted = counted_;
    file.set_attribute("counted", counted_);
    file.set_attribute("mask_xxh3_128", header.mask_digest.hex());
  }
  if (has_images()) write_image_fields(header, file);
  file.set_attribute("format", "trireme tokens");
  file.set_attribute("version", std::int64_t{header.version});
  file.set_attribute("tokenizer", tokenizer_);
  if (!source_.path.empty()) file.set_attribute("tokenizer_path", source_.path);
  if (!source_.end_of_document.empty())
    file.set_attribute("end_of_document", source_.end_of_document);
  file.set_attribute("vocabulary", vocabulary_);
  file.set_attribute("text_bytes", text_bytes_);
  file.set_attribute("tokens_xxh3_128", header.tokens_digest.hex());
  file.set_attribute("document_offsets_xxh3_128", header.offsets_digest.hex());
  file.set_attribute("sources", shortened(sources));
  file.close_into(file_);
  return header;
}

void TokenFileWriter::commit(const std::string& sources) {
  check_usage(documents_ > 0, file_.path(), ": no text: all documents are empty");
  check(document_begin_ == tokens_, file_.path(), ": the last document was not ended");
  check_usage(counted_ > 0, file_.path(), ": none of the ", tokens_,
              " tokens counts in the loss; give texts with completions or answers of an assistant");
  if (has_mask() && tokens_ % 8 > 0) mask_stream_.add(&mask_byte_, 1);
  mask_stream_.flush();
  token_stream_.flush();
  offset_stream_.flush();
  if (has_images()) {
    image_stream_->flush();
    image_place_stream_->flush();
    image_number_stream_->flush();
  }
  const std::int64_t image_bytes = has_images() ? image_stream_->spool.bytes() +
                                                      image_place_stream_->spool.bytes() +
                                                      image_number_stream_->spool.bytes()
                                                : 0;
  file_.probe_space(token_stream_.spool.bytes() + offset_stream_.spool.bytes() +
                    mask_stream_.spool.bytes() + image_bytes + structure_bytes);
  TokenHeader header = write_hdf5(sources);
  token_stream_.spool.copy_to(file_, header.tokens_begin);
  offset_stream_.spool.copy_to(file_, header.offsets_begin);
  if (has_mask()) mask_stream_.spool.copy_to(file_, header.mask_begin);
  if (has_images()) {
    image_stream_->spool.copy_to(file_, header.images_begin);
    image_place_stream_->spool.copy_to(file_, header.image_numbers_begin);
    image_number_stream_->spool.copy_to(file_, header.document_images_begin);
  }
  const io::InputFile written(file_.temporary_path());
  header.file_bytes = written.size();
  header.rest_digest = digest_of_rest(written, header);
  seal(header);
  file_.write(0, &header, sizeof header);
  verify(header, written.size(), file_.path());
  file_.commit();
}

}  // namespace trireme::data
