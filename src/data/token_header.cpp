#include <trireme/data/token_header.hpp>

#include <trireme/base/check.hpp>

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
  check(h.mask_end() <= h.offsets_begin || h.offsets_end() <= h.mask_begin, path,
        ": mask and document offsets overlap");
  check(h.mask_end() <= h.tokens_begin || h.tokens_end() <= h.mask_begin, path,
        ": mask and tokens overlap");
  check(h.counted >= 1 && h.counted <= h.tokens, path, ": its header says that ", h.counted, " of ",
        h.tokens, " tokens count in the loss");
}

}  // namespace

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
  check_usage(h.version == token_version || h.version == masked_token_version, path,
              ": is a token file of version ", h.version, ", this program reads versions ",
              token_version, " and ", masked_token_version);
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
  check(h.tokens_end() <= h.offsets_begin || h.offsets_end() <= h.tokens_begin, path,
        ": tokens and document offsets overlap");
  verify_mask(h, file_bytes, path);
  check(std::memchr(h.tokenizer, 0, sizeof h.tokenizer) != nullptr &&
            std::memchr(h.tokenizer_path, 0, sizeof h.tokenizer_path) != nullptr &&
            std::memchr(h.end_of_document, 0, sizeof h.end_of_document) != nullptr,
        path, ": the name, path or end-of-document token of its tokenizer has no terminating zero");
}

}  // namespace trireme::data
