// Validation of UTF-8, eight ASCII bytes at a time.
#include <trireme/base/utf8.hpp>

#include <cstdint>
#include <cstring>

namespace trireme {
namespace {

/// Continuation bytes for a first byte: their number, and the range of the first one.
struct Follow {
  unsigned count;
  unsigned char low;
  unsigned char high;
};

Follow follow(unsigned char first) {
  if (first < 0xC2) return {0, 0, 0};
  if (first < 0xE0) return {1, 0x80, 0xBF};
  if (first < 0xF0)
    return {2, static_cast<unsigned char>(first == 0xE0 ? 0xA0 : 0x80),
            static_cast<unsigned char>(first == 0xED ? 0x9F : 0xBF)};
  if (first < 0xF5)
    return {3, static_cast<unsigned char>(first == 0xF0 ? 0x90 : 0x80),
            static_cast<unsigned char>(first == 0xF4 ? 0x8F : 0xBF)};
  return {0, 0, 0};
}

bool eight_ascii(const char* at) {
  std::uint64_t word = 0;
  std::memcpy(&word, at, sizeof word);
  return (word & 0x8080808080808080u) == 0;
}

}  // namespace

Utf8Run utf8_run(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    if (text.size() - at >= 8 && eight_ascii(text.data() + at)) {
      at += 8;
      continue;
    }
    const auto first = static_cast<unsigned char>(text[at]);
    if (first < 0x80) {
      ++at;
      continue;
    }
    const Follow f = follow(first);
    if (f.count == 0) return {at, false};
    for (unsigned i = 1; i <= f.count; ++i) {
      if (at + i == text.size()) return {at, true};
      const auto byte = static_cast<unsigned char>(text[at + i]);
      if (byte < (i == 1 ? f.low : 0x80) || byte > (i == 1 ? f.high : 0xBF)) return {at, false};
    }
    at += f.count + 1;
  }
  return {at, false};
}

}  // namespace trireme
