#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace trireme::data {

/// Names and ids of a model's tokens.
class TokenNames {
 public:
  static constexpr std::int64_t id_limit = 1 << 24;

  /// Adds a token. UsageError that names `where` if the id has another name, the name has another
  /// id, or the id is 2^24 or more.
  void add(const std::string& name, std::int64_t id, const std::string& where);
  /// Adds the next token of a list, in which names may be repeated: id() returns the last id of a
  /// name. UsageError that names `where` if the list has more than 2^24 tokens.
  void append(const std::string& name, const std::string& where);
  /// Call after the last add() or append(). UsageError that names `where` if too many ids are
  /// unused.
  void finish(const std::string& where);

  /// Hides a name: find() does not return its id. Call before the model is read.
  void hide(const std::string& name) { hidden_.insert(name); }

  /// Id of a name; -1 if there is no such token.
  std::int32_t id(std::string_view name) const {
    const auto found = ids_.find(name);
    return found == ids_.end() ? -1 : found->second;
  }
  /// Like id(), but -1 for a hidden name.
  std::int32_t find(std::string_view name) const { return is_hidden(name) ? -1 : id(name); }
  bool is_hidden(std::string_view name) const { return hidden_.contains(name); }
  /// Number of ids: the largest id plus one.
  std::int64_t size() const { return std::ssize(names_); }
  /// Name of an id; "" if the id is unused.
  const std::string& name(std::int32_t id) const { return names_[static_cast<std::size_t>(id)]; }
  const std::vector<std::string>& names() const { return names_; }
  std::size_t longest() const { return longest_; }
  /// Ids of "<0x00>" to "<0xFF>"; -1 for a missing token.
  std::vector<std::int32_t> byte_tokens() const;

 private:
  void put(const std::string& name, std::int64_t id);

  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view name) const {
      return std::hash<std::string_view>()(name);
    }
  };
  std::unordered_map<std::string, std::int32_t, Hash, std::equal_to<>> ids_;
  std::unordered_set<std::string, Hash, std::equal_to<>> hidden_;
  std::unordered_map<std::int64_t, std::string> by_id_;  // names by id, until finish()
  std::vector<std::string> names_;
  std::int64_t largest_ = -1;
  std::size_t longest_ = 0;
};

}  // namespace trireme::data
