#include <trireme/base/checksum.hpp>

#include <trireme/base/check.hpp>

// Compiles xxHash into this file, with the vector instructions of this build.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <charconv>

namespace trireme {
namespace {

Digest from_xxh(XXH128_hash_t hash) {
  return {hash.low64, hash.high64};
}

void append_hex(std::string& out, std::uint64_t word) {
  constexpr std::string_view digits = "0123456789abcdef";
  for (int shift = 60; shift >= 0; shift -= 4) out += digits[(word >> shift) & 15u];
}

bool parse_hex(std::string_view hex, std::uint64_t& word) {
  const char* end = hex.data() + hex.size();
  const auto [at, error] = std::from_chars(hex.data(), end, word, 16);
  return error == std::errc{} && at == end;
}

}  // namespace

std::string Digest::hex() const {
  std::string out;
  append_hex(out, high);
  append_hex(out, low);
  return out;
}

std::optional<Digest> parse_digest(std::string_view hex) {
  Digest digest;
  if (hex.size() != 32 || !parse_hex(hex.substr(0, 16), digest.high) ||
      !parse_hex(hex.substr(16), digest.low))
    return std::nullopt;
  return digest;
}

Digest checksum(const void* data, std::size_t bytes) {
  return from_xxh(XXH3_128bits(data, bytes));
}

std::uint64_t checksum64(const void* data, std::size_t bytes) {
  return XXH3_64bits(data, bytes);
}

void Checksum::Free::operator()(void* state) const {
  XXH3_freeState(static_cast<XXH3_state_t*>(state));
}

Checksum::Checksum() : state_(XXH3_createState()) {
  check(state_ != nullptr, "cannot allocate the state of a checksum");
  reset();
}

void Checksum::reset() {
  XXH3_128bits_reset(static_cast<XXH3_state_t*>(state_.get()));
}

void Checksum::update(const void* data, std::size_t bytes) {
  XXH3_128bits_update(static_cast<XXH3_state_t*>(state_.get()), data, bytes);
}

Digest Checksum::digest() const {
  return from_xxh(XXH3_128bits_digest(static_cast<const XXH3_state_t*>(state_.get())));
}

}  // namespace trireme
