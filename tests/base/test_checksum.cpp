#include <trireme/base/checksum.hpp>

#include <gtest/gtest.h>

#include <algorithm>

namespace trireme {
namespace {

/// Known values of XXH3-128 (xxHash's own `xxhsum -H2`), so that files stay readable across
/// versions and libraries.
TEST(Checksum, MatchesXxhsumForAnyPieces) {
  EXPECT_EQ(checksum("", 0).hex(), "99aa06d3014798d86001c324468d497f");
  std::string data(100000, '\0');
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * i % 251);
  const Digest whole = checksum(data.data(), data.size());
  Checksum pieces;
  for (std::size_t at = 0; at < data.size(); at += 777)
    pieces.update(data.data() + at, std::min<std::size_t>(777, data.size() - at));
  EXPECT_EQ(pieces.digest(), whole);
  EXPECT_EQ(parse_digest(whole.hex()), whole);
  EXPECT_FALSE(parse_digest("12"));
  EXPECT_FALSE(parse_digest(std::string(32, 'x')));
}

}  // namespace
}  // namespace trireme
