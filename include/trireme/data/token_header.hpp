#pragma once

#include <trireme/base/checksum.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::data {

inline constexpr std::int64_t token_header_bytes = 4096;
inline constexpr char token_magic[16] = "TRIREME TOKENS\n";
inline constexpr std::uint32_t token_version = 1;
/// Version of files with a mask. Programs that do not know masks reject this version.
inline constexpr std::uint32_t masked_token_version = 2;
/// Version of files with images, with or without a mask.
inline constexpr std::uint32_t image_token_version = 3;
/// Largest number of pixels per side of a stored image.
inline constexpr std::int64_t image_size_limit = 4096;
inline constexpr std::int64_t vocabulary_limit = std::int64_t{1} << 31;

/// The first 4096 bytes of a token file, HDF5's user block (docs/token_files.md): offsets and
/// checksums for reading without HDF5. Little endian, every field at its natural alignment.
struct TokenHeader {
  char magic[16];             ///< "TRIREME TOKENS\n"
  std::uint32_t version;      ///< 1, 2 with a mask, 3 with images
  std::uint32_t token_bytes;  ///< bytes per token: 2 up to a vocabulary of 65,536, else 4
  std::int64_t tokens;
  std::int64_t documents;
  std::int64_t vocabulary;
  std::int64_t text_bytes;     ///< bytes of text of all documents
  std::int64_t tokens_begin;   ///< offset of the dataset `tokens` in the file
  std::int64_t offsets_begin;  ///< offset of the dataset `document_offsets`
  std::int64_t file_bytes;
  Digest tokens_digest;
  Digest offsets_digest;
  Digest rest_digest;         ///< digest of the bytes after this block that are in no dataset
  char tokenizer[128];        ///< Tokenizer::name(), padded with zeros
  char tokenizer_path[1024];  ///< the tokenizer's path, as given; zeros for "bytes"
  char end_of_document[128];  ///< the requested token; zeros: the tokenizer's default
  std::int64_t mask_begin;    ///< offset of the dataset `mask`; 0: no mask, all tokens count
  std::int64_t counted;       ///< number of tokens that count in the loss; 0 without a mask
  Digest mask_digest;
  std::int64_t images_begin;           ///< offset of the dataset `images`; 0: no images
  std::int64_t document_images_begin;  ///< offset of the dataset `document_images`
  std::int64_t images;                 ///< the fields of ImageForm; 0 without images
  std::int64_t image_size;
  std::int64_t image_token;
  std::int64_t tokens_per_image;
  std::int64_t most_images;
  Digest images_digest;
  Digest document_images_digest;
  char image_fit[32];  ///< the strings of ImageForm, padded with zeros
  char image_resampling[32];
  char image_begin[256];
  char image_end[256];
  std::int64_t stored_images;        ///< number of distinct images, which `images` holds
  std::int64_t image_numbers_begin;  ///< offset of the dataset `image_numbers`
  Digest image_numbers_digest;
  char unused[1952];     ///< zeros
  std::uint64_t digest;  ///< 64-bit XXH3 of the block up to here

  std::int64_t tokens_end() const { return tokens_begin + tokens * token_bytes; }
  std::int64_t offsets_end() const { return offsets_begin + (documents + 1) * 8; }
  bool has_images() const { return version == image_token_version; }
  bool has_mask() const {
    return version == masked_token_version || (has_images() && mask_begin != 0);
  }
  /// Size of the mask in bytes, one bit per token; 0 without a mask.
  std::int64_t mask_bytes() const { return has_mask() ? (tokens + 7) / 8 : 0; }
  std::int64_t mask_end() const { return mask_begin + mask_bytes(); }
  std::int64_t image_bytes() const { return image_size * image_size * 3; }  ///< of one image
  std::int64_t images_end() const { return images_begin + stored_images * image_bytes(); }
  std::int64_t image_numbers_end() const { return image_numbers_begin + images * 8; }
  std::int64_t document_images_end() const { return document_images_begin + (documents + 1) * 8; }
};
static_assert(sizeof(TokenHeader) == 4096);

/// A dataset of a token file: bytes [begin, end) of the file.
struct TokenDataset {
  const char* name;
  std::int64_t begin;
  std::int64_t end;
  Digest digest;
};

/// The datasets of a file in the order of their offsets.
std::vector<TokenDataset> datasets_of(const TokenHeader& header);

/// Bytes of a stored token: 2 if 16 bits hold every id of the vocabulary, else 4.
std::uint32_t token_bytes_for(std::int64_t vocabulary);

/// Sets header.digest. Call after all other fields are set.
void seal(TokenHeader& header);

/// UsageError unless this is the header of a token file of a known version; Error unless the header
/// is intact and consistent with a file of `file_bytes` bytes. Both name `path`.
void verify(const TokenHeader& header, std::int64_t file_bytes, const std::string& path);

}  // namespace trireme::data
