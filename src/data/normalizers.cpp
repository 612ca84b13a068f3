// The types of normalizers in a tokenizer.json.
#include <trireme/data/text_step.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/utf8.hpp>
#include <trireme/data/unicode.hpp>
#include <trireme/data/word_splitter.hpp>

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uniset.h>

#include <array>
#include <cstring>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

namespace trireme::data {
namespace {

// Normal forms by ICU, as in the `tokenizers` library: characters newer than Unicode 9 do not
// change.

/// NFC, NFD, NFKC, NFKD (Unicode Standard Annex 15).
enum class NormalForm { nfc, nfd, nfkc, nfkd };

const icu::Normalizer2& newest(NormalForm form) {
  UErrorCode code = U_ZERO_ERROR;
  const icu::Normalizer2* found = nullptr;
  switch (form) {
    case NormalForm::nfc:
      found = icu::Normalizer2::getNFCInstance(code);
      break;
    case NormalForm::nfd:
      found = icu::Normalizer2::getNFDInstance(code);
      break;
    case NormalForm::nfkc:
      found = icu::Normalizer2::getNFKCInstance(code);
      break;
    case NormalForm::nfkd:
      found = icu::Normalizer2::getNFKDInstance(code);
      break;
  }
  check(U_SUCCESS(code) != 0, "ICU cannot load its data for normal forms: ", u_errorName(code));
  return *found;
}

const icu::UnicodeSet& characters_of_unicode_9() {
  static const icu::UnicodeSet* const set = [] {
    UErrorCode code = U_ZERO_ERROR;
    auto* made = new icu::UnicodeSet(icu::UnicodeString("[:age=9.0:]"), code);
    check(U_SUCCESS(code) != 0, "ICU cannot list the characters of Unicode 9: ", u_errorName(code));
    made->freeze();
    return made;
  }();
  return *set;
}

const icu::Normalizer2& instance(NormalForm form) {
  using Filtered = icu::FilteredNormalizer2;
  static const auto& set = characters_of_unicode_9();
  static const std::array<Filtered, 4> all{
      Filtered(newest(NormalForm::nfc), set), Filtered(newest(NormalForm::nfd), set),
      Filtered(newest(NormalForm::nfkc), set), Filtered(newest(NormalForm::nfkd), set)};
  return all[static_cast<std::size_t>(form)];
}

class Normalize final : public TextStep {
 public:
  explicit Normalize(NormalForm form) : form_(form), normalizer_(instance(form)) {}

  std::size_t run(std::string_view text, Edge edge, TextSink& out) override {
    const std::size_t end = edge.last ? text.size() : boundary(text);
    if (end == 0) {
      if (edge.last) out.piece({}, true);
      return 0;
    }
    normal_.clear();
    icu::StringByteSink<std::string> sink(&normal_);
    UErrorCode code = U_ZERO_ERROR;
    const icu::StringPiece part(text.data(), static_cast<std::int32_t>(end));
    normalizer_.normalizeUTF8(0, part, sink, nullptr, code);
    check(U_SUCCESS(code) != 0, "ICU cannot normalize a text: ", u_errorName(code));
    out.piece(normal_, edge.last);
    return end;
  }

  std::unique_ptr<TextStep> copy() const override { return std::make_unique<Normalize>(form_); }

 private:
  /// Length of the beginning whose normal form later text cannot change.
  std::size_t boundary(std::string_view text) const {
    while (!text.empty())
      if (normalizer_.hasBoundaryBefore(static_cast<UChar32>(take_last_character(text)))) break;
    return text.size();
  }

  NormalForm form_;
  const icu::Normalizer2& normalizer_;
  std::string normal_;
};

std::unique_ptr<TextStep> make_normal_form(NormalForm form) {
  return std::make_unique<Normalize>(form);
}

std::size_t leading_space(std::string_view text) {
  std::size_t at = 0;
  for (std::size_t next = 0; next < text.size(); at = next)
    if (!is_white_space(next_character(text, next))) return at;
  return at;
}

std::size_t without_trailing_space(std::string_view text) {
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::size_t size = rest.size();
    if (!is_white_space(take_last_character(rest))) return size;
  }
  return 0;
}

class Strip final : public TextStep {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}

  std::size_t run(std::string_view text, Edge edge, TextSink& out) override {
    const std::size_t begin = left_ && edge.first ? leading_space(text) : 0;
    const bool only_space = begin == text.size();
    if (only_space && !edge.last) return 0;
    const std::size_t end = right_ ? std::max(begin, without_trailing_space(text)) : text.size();
    if (end > begin || edge.last) out.piece(text.substr(begin, end - begin), edge.last);
    return edge.last ? text.size() : end;
  }
  std::unique_ptr<TextStep> copy() const override { return std::make_unique<Strip>(left_, right_); }

 private:
  bool left_;
  bool right_;
};

class Prepend final : public TextStep {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}

  std::size_t run(std::string_view text, Edge edge, TextSink& out) override {
    if (edge.first && !text.empty()) out.piece(prefix_, false);
    if (!text.empty() || edge.last) out.piece(text, edge.last);
    return text.size();
  }
  std::unique_ptr<TextStep> copy() const override { return std::make_unique<Prepend>(prefix_); }

 private:
  std::string prefix_;
};

class ReplaceLiteral final : public TextStep {
 public:
  ReplaceLiteral(std::string literal, std::string content)
      : literal_(std::move(literal)), content_(std::move(content)) {}

  std::size_t run(std::string_view text, Edge edge, TextSink& out) override {
    replaced_.clear();
    std::size_t at = 0;
    for (std::size_t found; (found = text.find(literal_, at)) != std::string_view::npos;
         at = found + literal_.size()) {
      replaced_ += text.substr(at, found - at);
      replaced_ += content_;
    }
    std::size_t end = text.size();
    if (!edge.last && literal_.size() > 1)
      end = character_begin(text, std::max(at, end - std::min(end, literal_.size() - 1)));
    replaced_ += text.substr(at, end - at);
    if (!replaced_.empty() || edge.last) out.piece(replaced_, edge.last);
    return end;
  }
  std::unique_ptr<TextStep> copy() const override {
    return std::make_unique<ReplaceLiteral>(literal_, content_);
  }

 private:
  std::string literal_;
  std::string content_;
  std::string replaced_;
};

class ReplacePattern final : public TextStep {
 public:
  ReplacePattern(std::shared_ptr<const WordPattern> pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)), matcher_(*pattern_) {}

  std::size_t run(std::string_view text, Edge edge, TextSink& out) override {
    using RangeKind = WordMatcher::Range::Kind;
    replaced_.clear();
    std::size_t at = 0;
    while (at < text.size()) {
      const auto found = matcher_.find(text, at, edge.last);
      const std::size_t end = found.kind == RangeKind::none ? text.size() : found.begin;
      replaced_ += text.substr(at, end - at);
      at = end;
      if (found.kind != RangeKind::match) break;
      replaced_ += content_;
      at = found.end;
    }
    if (!replaced_.empty() || edge.last) out.piece(replaced_, edge.last);
    return at;
  }
  std::unique_ptr<TextStep> copy() const override {
    return std::make_unique<ReplacePattern>(pattern_, content_);
  }

 private:
  std::shared_ptr<const WordPattern> pattern_;
  std::string content_;
  WordMatcher matcher_;
  std::string replaced_;
};

std::unique_ptr<TextStep> make_strip(bool left, bool right) {
  return std::make_unique<Strip>(left, right);
}

std::unique_ptr<TextStep> make_prepend(std::string prefix) {
  return std::make_unique<Prepend>(std::move(prefix));
}

std::unique_ptr<TextStep> make_replace(std::string literal, std::string content) {
  return std::make_unique<ReplaceLiteral>(std::move(literal), std::move(content));
}

std::unique_ptr<TextStep> make_replace_pattern(const std::string& pattern, std::string content,
                                               const std::string& where) {
  return std::make_unique<ReplacePattern>(std::make_shared<const WordPattern>(pattern, where),
                                          std::move(content));
}

// SentencePiece's normalization rules (Kudo and Richardson 2018): a double-array trie of byte
// strings whose values are offsets in a list of replacements, each ended by a zero byte.

constexpr std::size_t most_bytes = 64 << 20;
constexpr std::size_t longest_cluster = 5;  // in bytes; longer clusters are looked up by character

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

/// A unit of the double array holds the label of a node, the offset of the node's children, and
/// whether the node has a value, which is in the unit of child 0.
struct Charsmap {
  std::vector<std::uint32_t> units;
  std::string replacements;
  std::string where;

  explicit Charsmap(const JsonNode& node);

  /// The replacement of the shortest prefix of `key` that has a rule.
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

/// Applies the rules to each grapheme cluster of at most longest_cluster bytes; without a rule, and
/// for longer clusters, to each character.
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
      if (end == text.size() && !edge.last) break;  // the cluster may continue
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
  std::array<bool, 128> plain_{};  // ASCII characters from U+0020 on without a rule
  std::string normal_;
};

std::unique_ptr<TextStep> make_precompiled(const JsonNode& charsmap) {
  return std::make_unique<Precompiled>(std::make_shared<const Charsmap>(charsmap));
}

constexpr std::size_t most_parts = 64;
constexpr int most_levels = 8;

void add(const JsonNode& node, int levels, TextSteps& steps);

/// Appends the steps of a node. `levels`: largest number of nested levels.
using Build = void (*)(const JsonNode&, int levels, TextSteps&);

template <NormalForm form>
void normal_form(const JsonNode&, int, TextSteps& steps) {
  steps.push_back(make_normal_form(form));
}

template <void map(char32_t, std::string&)>
void characters(const JsonNode&, int, TextSteps& steps) {
  steps.push_back(make_character_map(map));
}

void strip(const JsonNode& node, int, TextSteps& steps) {
  steps.push_back(make_strip(node["strip_left"].flag(true), node["strip_right"].flag(true)));
}

void prepend(const JsonNode& node, int, TextSteps& steps) {
  steps.push_back(make_prepend(node["prepend"].string()));
}

void replace(const JsonNode& node, int, TextSteps& steps) {
  const JsonNode pattern = node["pattern"];
  const std::string& content = node["content"].string();
  if (pattern.json.is_object() && pattern.json.contains("Regex")) {
    const JsonNode source = pattern["Regex"];
    steps.push_back(make_replace_pattern(source.string(), content, source.path));
    return;
  }
  if (!pattern.json.is_object() || pattern["String"].is_nothing())
    pattern.refuse("{\"String\": ...} or {\"Regex\": ...}");
  steps.push_back(make_replace(pattern["String"].string(), content));
}

void bert(const JsonNode& node, int, TextSteps& steps) {
  const bool lower = node["lowercase"].flag(true);
  if (node["clean_text"].flag(true)) steps.push_back(make_character_map(clean_for_bert));
  if (node["handle_chinese_chars"].flag(true))
    steps.push_back(make_character_map(separate_ideographs));
  if (node["strip_accents"].flag(lower)) {
    steps.push_back(make_normal_form(NormalForm::nfd));
    steps.push_back(make_character_map(without_nonspacing_marks));
  }
  if (lower) steps.push_back(make_character_map(lower_case));
}

void precompiled(const JsonNode& node, int, TextSteps& steps) {
  const JsonNode charsmap = node["precompiled_charsmap"];
  if (charsmap.is_nothing()) return;
  steps.push_back(make_precompiled(charsmap));
}

void byte_level(const JsonNode&, int, TextSteps& steps) {
  steps.push_back(make_character_map(to_byte_characters));
}

void sequence(const JsonNode& node, int levels, TextSteps& steps) {
  const JsonNode list = node["normalizers"];
  const std::size_t size = list.list_size(most_parts, "a list of at most 64 normalizers");
  for (std::size_t i = 0; i < size; ++i) add(list[i], levels - 1, steps);
}

constexpr std::array<JsonPart<Build>, 14> table{{
    {"BertNormalizer", bert},
    {"ByteLevel", byte_level},
    {"Lowercase", characters<lower_case>},
    {"NFC", normal_form<NormalForm::nfc>},
    {"NFD", normal_form<NormalForm::nfd>},
    {"NFKC", normal_form<NormalForm::nfkc>},
    {"NFKD", normal_form<NormalForm::nfkd>},
    {"Nmt", characters<clean_for_nmt>},
    {"Precompiled", precompiled},
    {"Prepend", prepend},
    {"Replace", replace},
    {"Sequence", sequence},
    {"Strip", strip},
    {"StripAccents", characters<without_marks>},
}};

void add(const JsonNode& node, int levels, TextSteps& steps) {
  if (levels == 0 || steps.size() > most_parts) node.refuse("at most 8 levels and 64 normalizers");
  part_of_type(node, table).build(node, levels, steps);
}

}  // namespace

TextSteps make_normalizer(const JsonNode& node) {
  TextSteps steps;
  if (!node.json.is_null()) add(node, most_levels, steps);
  return steps;
}

}  // namespace trireme::data
