#pragma once

#include <trireme/data/bpe_model.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace trireme::data {

/// Gathers a BPE model's tokens and merges by their names, in the characters of
/// utf8.hpp, as files list them. Every error names `where`.
class BpeVocabulary {
 public:
  void add_token(const std::string& name, std::int64_t id, const std::string& where);
  /// After all tokens. The merge of `left` and `right`, or of the two that `both` has with a blank
  /// between.
  void add_merge(std::string_view left, std::string_view right, const std::string& where);
  void add_merge(std::string_view both, const std::string& where);
  /// After all tokens; it may be one of them.
  void add_added(AddedToken token, std::int64_t id, const std::string& where);
  /// A token "<|endoftext|>", if there is one, is special.
  void add_end_of_text();
  bool has_all_bytes() const;

  /// The model without patterns and flags.
  BpeModel take();

 private:
  std::int32_t find(std::string_view name, const std::string& where) const;

  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view name) const {
      return std::hash<std::string_view>()(name);
    }
  };
  std::unordered_map<std::string, std::int32_t, Hash, std::equal_to<>> ids_;
  std::unordered_map<std::int32_t, std::string> names_;  // what an id is, of tokens and added ones
  std::vector<BpeMerge> merges_;
  std::vector<AddedToken> added_;
  std::int64_t largest_ = -1;
};

}  // namespace trireme::data
