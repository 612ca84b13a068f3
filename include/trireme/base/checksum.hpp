#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace trireme {

/// A 128-bit XXH3 hash (Collet, xxHash 0.8): detects damage, but does not resist an adversary.
struct Digest {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  bool operator==(const Digest&) const = default;
  /// 32 lower-case hexadecimal digits, most significant first, as `xxhsum -H2` prints them.
  std::string hex() const;
};

/// Inverse of Digest::hex; std::nullopt unless `hex` has 32 hexadecimal digits.
std::optional<Digest> parse_digest(std::string_view hex);

Digest checksum(const void* data, std::size_t bytes);
std::uint64_t checksum64(const void* data, std::size_t bytes);

/// Digest of data that arrive in pieces. Equals checksum() of the concatenated pieces.
class Checksum {
 public:
  Checksum();
  void reset();  ///< Begins a new digest.
  void update(const void* data, std::size_t bytes);
  Digest digest() const;

 private:
  struct Free {
    void operator()(void* state) const;
  };
  std::unique_ptr<void, Free> state_;
};

}  // namespace trireme
