#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace trireme::data {

/// A merge: the neighbouring tokens `left` and `right` become the token `result`. Earlier merges of
/// a list have priority.
struct BpeMerge {
  std::int32_t left = 0;
  std::int32_t right = 0;
  std::int32_t result = 0;
};

/// Hash table of a BPE model's merges by the two tokens that they join. Thread-safe.
class BpeMerges {
 public:
  explicit BpeMerges(std::span<const BpeMerge> merges);

  static constexpr std::uint32_t none = UINT32_MAX;
  struct Found {
    std::uint32_t rank = none;  ///< index in the list; lowest merged first; none: no merge
    std::int32_t result = 0;
  };
  Found find(std::int32_t left, std::int32_t right) const {
    const std::uint64_t key = key_of(left, right);
    for (std::size_t i = slot_of(key);; i = (i + 1) & mask_) {
      const Slot& slot = slots_[i];
      if (slot.key == key) return {slot.rank, slot.result};
      if (slot.key == empty_key) return {};
    }
  }

  /// Merges the tokens in place and returns the number of remaining tokens. Each step merges the
  /// pair of the lowest rank, and of equal pairs the leftmost pair.
  std::size_t apply(std::span<std::int32_t> tokens) const;

 private:
  static constexpr std::uint64_t empty_key = UINT64_MAX;  // no pair's key: ids are not negative
  struct Slot {
    std::uint64_t key = empty_key;
    std::uint32_t rank = 0;
    std::int32_t result = 0;
  };
  static std::uint64_t key_of(std::int32_t left, std::int32_t right) {
    return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 |
           static_cast<std::uint32_t>(right);
  }
  std::size_t slot_of(std::uint64_t key) const {
    return static_cast<std::size_t>((key * 0x9E3779B97F4A7C15u) >> shift_) & mask_;
  }
  std::size_t apply_to_few(std::span<std::int32_t> tokens) const;
  std::size_t apply_to_many(std::span<std::int32_t> tokens) const;

  std::vector<Slot> slots_;  // open addressing, at most half full
  std::size_t mask_ = 0;
  int shift_ = 0;
};

}  // namespace trireme::data
