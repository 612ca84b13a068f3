#pragma once

#include <trireme/data/bpe_merges.hpp>
#include <trireme/data/token_model.hpp>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace trireme::data {

/// Ids of the tokens of one character; find() returns -1 for characters without a token.
class CharacterIds {
 public:
  CharacterIds() : low_(0x10000, -1) {}
  void add(char32_t c, std::int32_t id) {
    if (c < low_.size())
      low_[c] = id;
    else
      high_[c] = id;
  }
  std::int32_t find(char32_t c) const {
    if (c < low_.size()) return low_[c];
    const auto found = high_.find(c);
    return found == high_.end() ? -1 : found->second;
  }

 private:
  std::vector<std::int32_t> low_;
  std::unordered_map<char32_t, std::int32_t> high_;
};

/// The BPE model of a tokenizer.json (Sennrich et al. 2016). Its symbols are characters, optionally
/// with byte fallback (Kudo and Richardson 2018), or raw bytes (Radford et al. 2019). `names` must
/// outlive this object. Thread-safe.
class BpeWords final : public TokenModel {
 public:
  /// `of_bytes`: the symbols are raw bytes, written by characters_of_bytes(); otherwise characters.
  BpeWords(const JsonNode& node, TokenNames& names, bool of_bytes = false);

  const char* kind() const override { return "bpe"; }
  std::unique_ptr<WordEncoder> encoder() const override;
  void add_to(Checksum& sum) const override;

  /// An encoder for whole words of raw bytes, which throws a UsageError that names `where` for a
  /// byte without a token. `where` must outlive the encoder.
  std::unique_ptr<WordEncoder> byte_encoder(const std::string& where) const;

  /// Whether some merge joins a token that ends with the character of id `left` and a token that
  /// begins with the character of id `right`.
  bool joins(std::int32_t left, std::int32_t right) const {
    return borders.find(left, right).rank != BpeMerges::none;
  }

  TokenNames& names;
  std::vector<BpeMerge> list;
  BpeMerges merges{std::span<const BpeMerge>()};
  // For each merge: ids of the left token's last character and of the right token's first
  // character. Empty for words of bytes.
  BpeMerges borders{std::span<const BpeMerge>()};
  CharacterIds characters;
  std::vector<std::int32_t> bytes;           // ids of "<0x00>" to "<0xFF>"; -1: none
  std::array<std::int32_t, 256> id_of_byte;  // ids of the bytes' characters; -1: none
  std::int32_t unknown = -1;
  bool fuse_unknown = false;
  bool byte_fallback = false;
  bool ignore_merges = false;  // a word that is a token gets its id without merges
  bool merges_others = false;  // some merge joins a byte token or the unknown token

 private:
  void find_borders();
};

}  // namespace trireme::data
