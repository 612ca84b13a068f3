// SentencePiece's normalization rules (Kudo and Richardson 2018): a double-array trie of byte
// strings whose values are places in a list of replacements, each ended by a zero byte.
#include <trireme/data/charsmap.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/utf8.hpp>
#include <trireme/data/unicode.hpp>

#include <array>
#include <cstring>
#include <optional>
#include <utility>

namespace trireme::data {
namespace {

constexpr std::size_t most_bytes = 64 << 20;
constexpr std::size_t longest_cluster = 5;  // longer clusters are looked up by character

std::optional<std::string> from_base64(std::string_view text) {
  std::string bytes;
  while (text.ends_with('=') && text.size() % 4 == 0) {
    text.remove_suffix(1);
    if (text.ends_with('=')) text.remove_suffix(1);
  }
  if (text.size() % 4 == 1) return std::nullopt;
  constexpr std::string_view digits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::array<int, 256> value;
  value.fill(-1);
  for (std::size_t i = 0; i < digits.size(); ++i)
    value[static_cast<unsigned char>(digits[i])] = static_cast<int>(i);
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const int digit = value[static_cast<unsigned char>(c)];
    if (digit < 0) return std::nullopt;
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 0xFF);
  }
  return bytes;
}

/// A unit of the array holds the label of its node, the offset of its children, and whether it has
/// a value, which its child 0 holds.
struct Charsmap {
  std::vector<std::uint32_t> units;
  std::string replacements;
  std::string where;

  explicit Charsmap(const JsonNode& node);

  /// The replacement of the shortest prefix of `key` that has one.
  std::optional<std::string_view> find(std::string_view key) const;

 private:
  std::optional<std::string_view> replacement_at(std::size_t begin) const;
};

Charsmap::Charsmap(const JsonNode& node) : where(node.path) {
  const std::string& encoded = node.string();
  check_usage(encoded.size() <= most_bytes, where, " has ", encoded.size(), " bytes; expected at ",
              "most ", most_bytes);
  const auto bytes = from_base64(encoded);
  if (!bytes) node.refuse("SentencePiece's rules in base64");
  std::uint32_t trie_bytes = 0;
  if (bytes->size() >= sizeof trie_bytes)
    std::memcpy(&trie_bytes, bytes->data(), sizeof trie_bytes);
  check_usage(
      trie_bytes >= 4 && trie_bytes % 4 == 0 && bytes->size() >= 4 + std::size_t{trie_bytes}, where,
      ": its trie has ", trie_bytes, " bytes of ", bytes->size(),
      "; expected a multiple of 4 that fits; export the tokenizer again");
  units.resize(trie_bytes / 4);
  std::memcpy(units.data(), bytes->data() + 4, trie_bytes);
  replacements = bytes->substr(4 + std::size_t{trie_bytes});
  const std::size_t valid = utf8_run(replacements).valid;
  check_usage(valid == replacements.size(), where, ": its replacements are not UTF-8 at byte ",
              valid, "; export the tokenizer again");
}

std::optional<std::string_view> Charsmap::replacement_at(std::size_t begin) const {
  check_usage(begin < replacements.size() && character_begin(replacements, begin) == begin, where,
              ": a rule has its replacement at byte ", begin, " of ", replacements.size(),
              "; export the tokenizer again");
  return std::string_view(replacements).substr(begin, replacements.find('\0', begin) - begin);
}

std::optional<std::string_view> Charsmap::find(std::string_view key) const {
  const auto offset = [](std::uint32_t unit) {
    return std::size_t{unit >> 10} << ((unit & 1u << 9) >> 6);
  };
  std::size_t at = offset(units[0]);
  for (const char c : key) {
    const std::size_t byte = static_cast<unsigned char>(c);
    at ^= byte;
    if (byte == 0 || at >= units.size()) return std::nullopt;
    const std::uint32_t unit = units[at];
    if ((unit & (1u << 31 | 0xFF)) != byte) return std::nullopt;
    at ^= offset(unit);
    if ((unit >> 8 & 1) == 0) continue;
    check_usage(at < units.size(), where, ": a node's value is at unit ", at, " of ", units.size(),
                "; export the tokenizer again");
    return replacement_at(units[at] & ((1u << 31) - 1));
  }
  return std::nullopt;
}

/// Replaces each grapheme cluster that has a rule, or else each of its characters.
class Precompiled final : public TextStep {
 public:
  explicit Precompiled(std::shared_ptr<const Charsmap> map) : map_(std::move(map)) {
    for (std::size_t c = 0x20; c < plain_.size(); ++c) {
      const char character = static_cast<char>(c);
      plain_[c] = !map_->find(std::string_view(&character, 1)).has_value();
    }
  }

  std::size_t run(std::string_view text, Edge edge, TextSink& out) override {
    normal_.clear();
    std::size_t at = 0;
    while (at < text.size()) {
      if (at + 1 < text.size() && is_plain(text[at]) && is_ascii(text[at + 1])) {
        normal_ += text[at++];
        continue;
      }
      const std::size_t end = grapheme_end(text, at);
      if (end == text.size() && !edge.last) break;  // the cluster may grow
      replace(text.substr(at, end - at));
      at = end;
    }
    if (!normal_.empty() || edge.last) out.piece(normal_, edge.last);
    return at;
  }
  std::unique_ptr<TextStep> copy() const override { return std::make_unique<Precompiled>(map_); }

 private:
  static bool is_ascii(char c) { return static_cast<unsigned char>(c) < 0x80; }
  bool is_plain(char c) const { return is_ascii(c) && plain_[static_cast<unsigned char>(c)]; }

  void replace(std::string_view cluster) {
    if (cluster.size() <= longest_cluster) {
      if (const auto whole = map_->find(cluster)) {
        normal_ += *whole;
        return;
      }
    }
    for (std::size_t at = 0; at < cluster.size();) {
      const std::size_t begin = at;
      next_character(cluster, at);
      const std::string_view character = cluster.substr(begin, at - begin);
      normal_ += map_->find(character).value_or(character);
    }
  }

  std::shared_ptr<const Charsmap> map_;
  std::array<bool, 128> plain_{};  // visible ASCII characters without a rule
  std::string normal_;
};

}  // namespace

std::unique_ptr<TextStep> make_precompiled(const JsonNode& charsmap) {
  return std::make_unique<Precompiled>(std::make_shared<const Charsmap>(charsmap));
}

}  // namespace trireme::data
