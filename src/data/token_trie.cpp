#include <trireme/data/token_trie.hpp>

#include <utility>

namespace trireme::data {

TokenTrie::TokenTrie() : slots_(1024), ids_{none}, mask_(slots_.size() - 1) {}

void TokenTrie::put(std::uint64_t key, std::int32_t node) {
  std::size_t i = slot_of(key);
  while (slots_[i].key != empty) i = (i + 1) & mask_;
  slots_[i] = {key, node};
}

void TokenTrie::grow() {
  std::vector<Slot> former(2 * slots_.size());
  std::swap(former, slots_);
  mask_ = slots_.size() - 1;
  for (const Slot& slot : former)
    if (slot.key != empty) put(slot.key, slot.node);
}

void TokenTrie::add(std::string_view token, std::int32_t id) {
  std::int32_t node = root;
  for (const char byte : token) {
    std::int32_t after = next(node, byte);
    if (after == none) {
      if (2 * ids_.size() >= slots_.size()) grow();
      after = static_cast<std::int32_t>(ids_.size());
      ids_.push_back(none);
      put(key_of(node, byte), after);
    }
    node = after;
  }
  ids_[static_cast<std::size_t>(node)] = id;
}

}  // namespace trireme::data
