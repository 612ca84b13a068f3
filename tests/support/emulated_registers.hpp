#pragma once

#include <trireme/base/check.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <vector>

#include "support/emulated_products.hpp"

namespace trireme::testing::emulator {

/// One thread's registers used by asynchronous products. Sums in flight hold a special NaN until
/// they are waited for, so that premature reads are visible; changes in the meantime are an error.
class RegistersInFlight {
 public:
  /// A signalling NaN: arithmetic quiets it, so that in-place updates change it.
  static constexpr std::uint32_t unusable = 0x7fa5a5a5, quiet = 0x00400000;
  static void check_usable(float x) {
    check((std::bit_cast<std::uint32_t>(x) | quiet) != (unusable | quiet),
          "sums of a product are used before it was waited for");
  }

  /// Begins a new set of arrays that products may use.
  void begin() { covered_.clear(); }
  void cover(const void* registers, std::size_t bytes) {
    check(!overlaps(registers, bytes),
          "registers of products in flight are given to begin_products");
    const auto* from = static_cast<const unsigned char*>(registers);
    covered_.push_back({from, {from, from + bytes}});
  }

  void issue(const Product& product, const std::uint32_t* left) {
    const auto count = static_cast<std::size_t>(product.kind.columns / 2);
    if (left != nullptr) {
      check_covered(left, 16);
      left_.push_back({left, product.left, batches_});
    }
    if (Sums* sums = find(product.sums)) {
      sums->batch = batches_;
    } else {
      check_covered(product.sums, 4 * count);
      sums_.push_back({product.sums, {product.sums, product.sums + count}, batches_});
      for (std::size_t i = 0; i < count; ++i) std::memcpy(product.sums + i, &unusable, 4);
    }
    open_.push_back(product);
  }
  /// The sums stored for this array.
  float* values(const float* at) { return find(at)->values.data(); }

  const std::deque<Product>& open() const { return open_; }
  void committed() {
    open_.clear();
    ++batches_;
  }

  /// Index of the last batch that has ended.
  std::int32_t wait(int pending) {
    const std::int32_t done = batches_ - pending - 1;
    for (const Sums& s : sums_) {
      if (s.batch > done) continue;
      for (std::size_t i = 0; i < s.values.size(); ++i)
        check(std::memcmp(s.at + i, &unusable, 4) == 0,
              "sums of a product are written before it was waited for");
      std::memcpy(s.at, s.values.data(), 4 * s.values.size());
    }
    for (const Left& l : left_)
      check(std::memcmp(l.at, l.values.data(), 16) == 0,
            "a left operand changes before its product was waited for");
    std::erase_if(sums_, [&](const Sums& s) { return s.batch <= done; });
    std::erase_if(left_, [&](const Left& l) { return l.batch <= done; });
    return done > 0 ? done : 0;
  }
  void check_waited(const void* registers, std::size_t bytes) const {
    check(!overlaps(registers, bytes), "products that use these registers are still in flight");
  }
  std::int32_t batch() const { return batches_; }
  bool idle() const { return open_.empty() && sums_.empty() && left_.empty(); }

 private:
  struct Sums {
    float* at;
    std::vector<float> values;
    std::int32_t batch;
  };
  struct Left {
    const std::uint32_t* at;
    std::array<std::uint32_t, 4> values;
    std::int32_t batch;
  };
  struct Covered {
    const unsigned char* at;
    std::vector<unsigned char> values;
  };

  Sums* find(const float* at) {
    for (Sums& s : sums_)
      if (s.at == at) return &s;
    return nullptr;
  }
  static bool meet(const void* a, std::size_t m, const void* b, std::size_t n) {
    const auto first = reinterpret_cast<std::uintptr_t>(a),
               second = reinterpret_cast<std::uintptr_t>(b);
    return first < second + n && second < first + m;
  }
  bool overlaps(const void* at, std::size_t bytes) const {
    for (const Sums& s : sums_)
      if (meet(at, bytes, s.at, 4 * s.values.size())) return true;
    for (const Left& l : left_)
      if (meet(at, bytes, l.at, 16)) return true;
    return false;
  }
  void check_covered(const void* at, std::size_t bytes) const {
    const auto* from = static_cast<const unsigned char*>(at);
    for (const Covered& c : covered_)
      if (from >= c.at && from + bytes <= c.at + c.values.size()) {
        check(std::memcmp(from, c.values.data() + (from - c.at), bytes) == 0,
              "registers of a product were changed after begin_products");
        return;
      }
    check(false, "a product uses registers that were not given to begin_products");
  }

  std::vector<Sums> sums_;
  std::vector<Left> left_;
  std::vector<Covered> covered_;
  std::deque<Product> open_;
  std::int32_t batches_ = 1;  // index of the open batch
};

}  // namespace trireme::testing::emulator
