#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace trireme::data {

/// Finds the tokens that begin at a position of a text: a trie with an edge per byte. Thread-safe
/// after the last add().
class TokenTrie {
 public:
  static constexpr std::int32_t none = -1;
  static constexpr std::int32_t root = 0;

  TokenTrie();
  /// Adds a non-empty token; replaces the id of an earlier token with the same bytes.
  void add(std::string_view token, std::int32_t id);

  /// Child of a node for the next byte; `none` if no token continues with this byte.
  std::int32_t next(std::int32_t node, char byte) const {
    const std::uint64_t key = key_of(node, byte);
    for (std::size_t i = slot_of(key);; i = (i + 1) & mask_) {
      if (slots_[i].key == key) return slots_[i].node;
      if (slots_[i].key == empty) return none;
    }
  }
  /// Id of the token that ends at a node; `none` if there is none.
  std::int32_t id(std::int32_t node) const { return ids_[static_cast<std::size_t>(node)]; }

 private:
  static constexpr std::uint64_t empty = UINT64_MAX;
  struct Slot {
    std::uint64_t key = empty;
    std::int32_t node = none;
  };
  static std::uint64_t key_of(std::int32_t node, char byte) {
    return std::uint64_t{static_cast<std::uint32_t>(node)} << 8 | static_cast<unsigned char>(byte);
  }
  std::size_t slot_of(std::uint64_t key) const {
    return static_cast<std::size_t>((key * 0x9E3779B97F4A7C15u) >> 32) & mask_;
  }
  void put(std::uint64_t key, std::int32_t node);
  void grow();

  std::vector<Slot> slots_;  // open addressing, at most half full
  std::vector<std::int32_t> ids_;
  std::size_t mask_ = 0;
};

}  // namespace trireme::data
