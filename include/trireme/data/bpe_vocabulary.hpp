#pragma once

#include <trireme/data/bpe_model.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace trireme::data {

/// Collects a BPE model's tokens and merges by their names, which files write in the characters of
/// utf8.hpp. Every error names `where`.
class BpeVocabulary {
 public:
  void add_token(const std::string& name, std::int64_t id, const std::string& where);
  /// Adds the merge of `left` and `right`, or of the two tokens in `both`, separated by a blank.
  /// Call after all tokens were added.
  void add_merge(std::string_view left, std::string_view right, const std::string& where);
  void add_merge(std::string_view both, const std::string& where);
  /// Call after all tokens were added; the added token may be one of them.
  void add_added(AddedToken token, std::int64_t id, const std::string& where);
  /// Makes the token "<|endoftext|>" special, if there is one.
  void add_end_of_text();
  bool has_all_bytes() const;

  /// The model without patterns and flags.
  BpeModel take(const std::string& path);

 private:
  std::int32_t find(std::string_view name, const std::string& where) const;

  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view name) const {
      return std::hash<std::string_view>()(name);
    }
  };
  std::unordered_map<std::string, std::int32_t, Hash, std::equal_to<>> ids_;
  std::unordered_map<std::int32_t, std::string> names_;  // tokens and added tokens by id
  std::vector<BpeMerge> merges_;
  std::vector<AddedToken> added_;
  std::int64_t largest_ = -1;
};

}  // namespace trireme::data
