// Seals and verifies the headers of token files: every field against the file's size and the other
// fields.
#include <trireme/data/token_header.hpp>

#include <trireme/base/check.hpp>

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace trireme::data {
namespace {

std::uint64_t digest_of(const TokenHeader& header) {
  return checksum64(&header, offsetof(TokenHeader, digest));
}

/// Whether [begin, begin + count * size) is between the header and the end of the file.
bool inside(std::int64_t begin, std::int64_t count, std::int64_t size, std::int64_t file_bytes) {
  return begin >= token_header_bytes && begin <= file_bytes && count >= 0 &&
         count <= (file_bytes - begin) / size;
}

void verify_mask(const TokenHeader& h, std::int64_t file_bytes, const std::string& path) {
  if (!h.has_mask()) return;
  check(inside(h.mask_begin, h.mask_bytes(), 1, file_bytes), path, ": a mask of ", h.tokens,
        " bits from byte ", h.mask_begin, " does not fit into its ", file_bytes, " bytes");
  check(h.counted >= 1 && h.counted <= h.tokens, path, ": its header says that ", h.counted, " of ",
        h.tokens, " tokens count in the loss");
}

void verify_images(const TokenHeader& h, std::int64_t file_bytes, const std::string& path) {
  if (!h.has_images()) return;
  check(h.image_size >= 1 && h.image_size <= image_size_limit && h.image_token >= 0 &&
            h.image_token < h.vocabulary && h.tokens_per_image >= 1 &&
            h.tokens_per_image <= h.tokens && h.images >= 1 &&
            h.images <= h.tokens / h.tokens_per_image && h.most_images >= 1 &&
            h.most_images <= h.images,
        path, ": its header says ", h.images, " images of ", h.image_size, " x ", h.image_size,
        " pixels, at most ", h.most_images, " in a document, each for ", h.tokens_per_image,
        " tokens of id ", h.image_token);
  const auto ends = [](const auto& words) {
    return std::memchr(words, 0, sizeof words) != nullptr;
  };
  check(ends(h.image_fit) && ends(h.image_resampling) && ends(h.image_begin) && ends(h.image_end),
        path, ": the fit or a text of its images has no terminating zero");
  check(h.stored_images >= 1 && h.stored_images <= h.images, path, ": its header says that ",
        h.stored_images, " of ", h.images, " images are distinct");
  check(inside(h.images_begin, h.stored_images, h.image_bytes(), file_bytes), path, ": ",
        h.stored_images, " images of ", h.image_bytes(), " bytes from byte ", h.images_begin,
        " do not fit into its ", file_bytes, " bytes");
  check(inside(h.image_numbers_begin, h.images, 8, file_bytes), path, ": ", h.images,
        " numbers of images from byte ", h.image_numbers_begin, " do not fit into its ", file_bytes,
        " bytes");
  check(inside(h.document_images_begin, h.documents + 1, 8, file_bytes), path, ": ",
        h.documents + 1, " image numbers of documents from byte ", h.document_images_begin,
        " do not fit into its ", file_bytes, " bytes");
}

}  // namespace

std::vector<TokenDataset> datasets_of(const TokenHeader& h) {
  std::vector<TokenDataset> all{
      {"tokens", h.tokens_begin, h.tokens_end(), h.tokens_digest},
      {"document_offsets", h.offsets_begin, h.offsets_end(), h.offsets_digest}};
  if (h.has_mask()) all.push_back({"mask", h.mask_begin, h.mask_end(), h.mask_digest});
  if (h.has_images()) {
    all.push_back({"images", h.images_begin, h.images_end(), h.images_digest});
    all.push_back(
        {"image_numbers", h.image_numbers_begin, h.image_numbers_end(), h.image_numbers_digest});
    all.push_back({"document_images", h.document_images_begin, h.document_images_end(),
                   h.document_images_digest});
  }
  std::ranges::sort(all, {}, &TokenDataset::begin);
  return all;
}

std::uint32_t token_bytes_for(std::int64_t vocabulary) {
  return vocabulary <= 65536 ? 2 : 4;
}

void seal(TokenHeader& header) {
  header.digest = digest_of(header);
}

void verify(const TokenHeader& h, std::int64_t file_bytes, const std::string& path) {
  check_usage(std::memcmp(h.magic, token_magic, sizeof token_magic) == 0, path,
              " is not a token file; make one with `trireme tokenize -o tokens.h5 TEXT...`");
  check(h.digest == digest_of(h), path, ": its header is damaged (checksum differs)");
  check_usage(h.version >= token_version && h.version <= image_token_version, path,
              ": is a token file of version ", h.version, ", this program reads versions ",
              token_version, " to ", image_token_version);
  check(h.file_bytes == file_bytes, path, ": has ", file_bytes, " bytes, its header says ",
        h.file_bytes, file_bytes < h.file_bytes ? "; the file is truncated, copy it again" : "");
  check(h.vocabulary >= 1 && h.vocabulary <= vocabulary_limit &&
            h.token_bytes == token_bytes_for(h.vocabulary),
        path, ": its header says ", h.token_bytes, " bytes per token for a vocabulary of ",
        h.vocabulary);
  check(h.tokens >= 1 && h.documents >= 1 && h.documents <= h.tokens && h.text_bytes >= 0, path,
        ": its header says ", h.tokens, " tokens in ", h.documents, " documents of ", h.text_bytes,
        " bytes");
  check(inside(h.tokens_begin, h.tokens, h.token_bytes, file_bytes), path, ": ", h.tokens,
        " tokens from byte ", h.tokens_begin, " do not fit into its ", file_bytes, " bytes");
  check(inside(h.offsets_begin, h.documents + 1, 8, file_bytes), path, ": ", h.documents + 1,
        " document offsets from byte ", h.offsets_begin, " do not fit into its ", file_bytes,
        " bytes");
  verify_mask(h, file_bytes, path);
  verify_images(h, file_bytes, path);
  const auto datasets = datasets_of(h);
  for (std::size_t i = 1; i < datasets.size(); ++i)
    check(datasets[i - 1].end <= datasets[i].begin, path, ": the datasets '", datasets[i - 1].name,
          "' and '", datasets[i].name, "' overlap");
  check(std::memchr(h.tokenizer, 0, sizeof h.tokenizer) != nullptr &&
            std::memchr(h.tokenizer_path, 0, sizeof h.tokenizer_path) != nullptr &&
            std::memchr(h.end_of_document, 0, sizeof h.end_of_document) != nullptr,
        path, ": the name, path or end-of-document token of its tokenizer has no terminating zero");
}

}  // namespace trireme::data
