// Properties of characters from ICU. For some categories, the `tokenizers` library has tables of
// Unicode 8 or 9. The age of a character in ICU restores these tables; the functions below name the
// exceptions.
#include <trireme/data/unicode.hpp>

#include <unicode/uchar.h>
#include <unicode/uversion.h>

#include <array>
#include <cstdint>

namespace trireme::data {
namespace {

UChar32 icu(char32_t c) {
  return static_cast<UChar32>(c);
}

/// Properties of a character that tokenizers use, one bit each.
enum Flag : std::uint8_t {
  white_space_flag = 1,
  word_flag = 2,
  punctuation = 4,
  numeric = 8,
  control = 16,
  nonspacing = 32,
  mark = 64,
};

bool is_old(UChar32 c, int version) {
  UVersionInfo age;
  u_charAge(c, age);
  return age[0] > 0 && age[0] <= version;
}

/// Whether a character of Unicode 8 was in category Mn. The named characters have another category
/// now.
bool was_nonspacing(UChar32 c, std::uint32_t category) {
  if (c == 0x1734) return true;
  if (c == 0x1885 || c == 0x1886 || c == 0xA9BD || c == 0x111C9) return false;
  return (category & U_GC_MN_MASK) != 0;
}

/// Whether a character was in category P in Unicode 8. The named characters have another category
/// now.
bool was_punctuation(UChar32 c, std::uint32_t category) {
  if (c == 0x166D || c == 0x111C9) return true;
  return (category & U_GC_P_MASK) != 0 && is_old(c, 8);
}

/// Whether a character of Unicode 9 was in category M.
bool was_mark(UChar32 c, std::uint32_t category) {
  if (c == 0x111C9) return false;
  return c == 0x1CF2 || c == 0x1CF3 || (category & U_GC_M_MASK) != 0;
}

std::uint8_t flags_of(UChar32 c) {
  const std::uint32_t category = U_GET_GC_MASK(c);
  unsigned flags = 0;
  if (u_isUWhiteSpace(c)) flags |= white_space_flag;
  if (u_hasBinaryProperty(c, UCHAR_POSIX_ALNUM) || u_isUAlphabetic(c) ||
      (category & (U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK)) != 0 ||
      u_hasBinaryProperty(c, UCHAR_JOIN_CONTROL))
    flags |= word_flag;
  const bool ascii_symbol = c < 0x80 && (category & U_GC_S_MASK) != 0;
  if (ascii_symbol || was_punctuation(c, category)) flags |= punctuation;
  if ((category & U_GC_N_MASK) != 0) flags |= numeric;
  if ((category & U_GC_CO_MASK) != 0 ||
      ((category & (U_GC_CC_MASK | U_GC_CF_MASK)) != 0 && is_old(c, 8)))
    flags |= control;
  if (is_old(c, 8) && was_nonspacing(c, category)) flags |= nonspacing;
  if (is_old(c, 9) && was_mark(c, category)) flags |= mark;
  return static_cast<std::uint8_t>(flags);
}

/// Flags of the first 2^16 characters; for other characters, ICU is queried.
const std::array<std::uint8_t, 0x10000>& flag_table() {
  static const auto flags = [] {
    std::array<std::uint8_t, 0x10000> all{};
    for (UChar32 c = 0; c < 0x10000; ++c) all[static_cast<std::size_t>(c)] = flags_of(c);
    return all;
  }();
  return flags;
}

bool has(char32_t c, Flag flag) {
  return ((c < 0x10000 ? flag_table()[c] : flags_of(icu(c))) & flag) != 0;
}

bool is_pictographic(char32_t c) {
  return u_hasBinaryProperty(icu(c), UCHAR_EXTENDED_PICTOGRAPHIC);
}

/// Grapheme_Cluster_Break, also of marks of Unicode 16 and 17 that an older ICU does not know.
int break_class(char32_t c) {
  if (c == 0x897 || (c >= 0x1ACF && c <= 0x1ADD) || (c >= 0x1AE0 && c <= 0x1AEB))
    return U_GCB_EXTEND;
  return u_getIntPropertyValue(icu(c), UCHAR_GRAPHEME_CLUSTER_BREAK);
}

bool is_control_class(int c) {
  return c == U_GCB_CONTROL || c == U_GCB_CR || c == U_GCB_LF;
}

/// Whether rules GB3 to GB9b of Unicode Standard Annex 29 join characters of these classes.
bool joins(int left, int right) {
  if (left == U_GCB_CR && right == U_GCB_LF) return true;
  if (is_control_class(left) || is_control_class(right)) return false;
  if (right == U_GCB_EXTEND || right == U_GCB_ZWJ || right == U_GCB_SPACING_MARK) return true;
  if (left == U_GCB_PREPEND) return true;
  if (left == U_GCB_L)
    return right == U_GCB_L || right == U_GCB_V || right == U_GCB_LV || right == U_GCB_LVT;
  if (left == U_GCB_LV || left == U_GCB_V) return right == U_GCB_V || right == U_GCB_T;
  return (left == U_GCB_LVT || left == U_GCB_T) && right == U_GCB_T;
}

}  // namespace

char32_t take_last_character(std::string_view& text) {
  std::size_t at = character_begin(text, text.size() - 1);
  const std::size_t begin = at;
  const char32_t c = next_character(text, at);
  text = text.substr(0, begin);
  return c;
}

void append_character(char32_t c, std::string& out) {
  const auto put = [&](char32_t byte) {
    out += static_cast<char>(static_cast<unsigned char>(byte));
  };
  if (c < 0x80) return put(c);
  if (c < 0x800) {
    put(0xC0 | c >> 6);
  } else {
    if (c < 0x10000) {
      put(0xE0 | c >> 12);
    } else {
      put(0xF0 | c >> 18);
      put(0x80 | (c >> 12 & 0x3F));
    }
    put(0x80 | (c >> 6 & 0x3F));
  }
  put(0x80 | (c & 0x3F));
}

std::string utf8_of(char32_t c) {
  std::string out;
  append_character(c, out);
  return out;
}

bool is_white_space(char32_t c) {
  return has(c, white_space_flag);
}
bool is_word_character(char32_t c) {
  return has(c, word_flag);
}
bool is_punctuation(char32_t c) {
  return has(c, punctuation);
}
bool is_numeric(char32_t c) {
  return has(c, numeric);
}
bool is_control(char32_t c) {
  return has(c, control);
}
bool is_nonspacing_mark(char32_t c) {
  return has(c, nonspacing);
}
bool is_mark(char32_t c) {
  return has(c, mark);
}

void append_lower_case(char32_t c, std::string& out) {
  if (c == 0x130) {  // SpecialCasing.txt's only unconditional lower case of two characters
    out += "i\xCC\x87";
    return;
  }
  append_character(static_cast<char32_t>(u_tolower(icu(c))), out);
}

std::size_t grapheme_end(std::string_view text, std::size_t at) {
  char32_t c = next_character(text, at);
  int left = break_class(c);
  // Rule GB11. after_pictograph: the text ends with a pictograph and Extend*. after_joiner: then a
  // ZWJ.
  bool after_pictograph = is_pictographic(c);
  bool after_joiner = false;
  int flags = left == U_GCB_REGIONAL_INDICATOR ? 1 : 0;
  while (at < text.size()) {
    std::size_t end = at;
    c = next_character(text, end);
    const int right = break_class(c);
    const bool pictograph = is_pictographic(c);
    const bool emoji = after_joiner && pictograph;
    const bool flag = right == U_GCB_REGIONAL_INDICATOR && left == right && flags == 1;
    if (!joins(left, right) && !emoji && !flag) return at;
    after_joiner = after_pictograph && right == U_GCB_ZWJ;
    after_pictograph = pictograph || (after_pictograph && right == U_GCB_EXTEND);
    flags = right == U_GCB_REGIONAL_INDICATOR ? flags + 1 : 0;
    left = right;
    at = end;
  }
  return at;
}

std::string unicode_version() {
  UVersionInfo version;
  u_getUnicodeVersion(version);
  return std::to_string(version[0]) + "." + std::to_string(version[1]);
}

// Normalizers that map each character on its own.

namespace {

using Map = void (*)(char32_t, std::string&);

class CharacterMap final : public TextStep {
 public:
  explicit CharacterMap(Map map) : map_(map) {
    for (std::size_t c = 0; c < ascii_.size(); ++c) {
      std::string image;
      map(static_cast<char32_t>(c), image);
      ascii_[c] = image.size() == 1 ? static_cast<unsigned char>(image[0]) : other;
    }
  }

  std::size_t run(std::string_view text, Edge edge, TextSink& out) override {
    mapped_.clear();
    for (std::size_t at = 0; at < text.size();) {
      const auto byte = static_cast<unsigned char>(text[at]);
      if (byte < ascii_.size() && ascii_[byte] != other) {
        mapped_ += static_cast<char>(ascii_[byte]);
        ++at;
      } else {
        map_(next_character(text, at), mapped_);
      }
    }
    if (!mapped_.empty() || edge.last) out.piece(mapped_, edge.last);
    return text.size();
  }

  std::unique_ptr<TextStep> copy() const override { return std::make_unique<CharacterMap>(map_); }

 private:
  static constexpr unsigned char other = 0xFF;  // the image is not one byte
  Map map_;
  std::array<unsigned char, 128> ascii_{};
  std::string mapped_;
};

bool is_in(char32_t c, char32_t first, char32_t last) {
  return c >= first && c <= last;
}

}  // namespace

std::unique_ptr<TextStep> make_character_map(Map map) {
  return std::make_unique<CharacterMap>(map);
}

void to_byte_characters(char32_t c, std::string& out) {
  out += characters_of_bytes(utf8_of(c));
}

void lower_case(char32_t c, std::string& out) {
  append_lower_case(c, out);
}

void without_marks(char32_t c, std::string& out) {
  if (!is_mark(c)) append_character(c, out);
}

void without_nonspacing_marks(char32_t c, std::string& out) {
  if (!is_nonspacing_mark(c)) append_character(c, out);
}

void clean_for_bert(char32_t c, std::string& out) {
  if (is_white_space(c) && (!is_control(c) || c == '\t' || c == '\n' || c == '\r'))
    out += ' ';
  else if (c != 0 && c != 0xFFFD && !is_control(c))
    append_character(c, out);
}

/// Puts spaces around the ideographs of BERT's tokenization.py (2018), with its gap at U+2B820.
void separate_ideographs(char32_t c, std::string& out) {
  const bool ideograph = is_in(c, 0x4E00, 0x9FFF) || is_in(c, 0x3400, 0x4DBF) ||
                         is_in(c, 0x20000, 0x2A6DF) || is_in(c, 0x2A700, 0x2B81F) ||
                         is_in(c, 0x2B920, 0x2CEAF) || is_in(c, 0xF900, 0xFAFF) ||
                         is_in(c, 0x2F800, 0x2FA1F);
  if (ideograph) out += ' ';
  append_character(c, out);
  if (ideograph) out += ' ';
}

/// SentencePiece's rule "nmt": removes some control characters, and replaces others by spaces.
void clean_for_nmt(char32_t c, std::string& out) {
  if (is_in(c, 1, 8) || c == 0xB || is_in(c, 0xE, 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F)
    return;
  const bool blank = c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 ||
                     is_in(c, 0x200B, 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                     c == 0xFEFF || c == 0xFFFD;
  append_character(blank ? U' ' : c, out);
}

namespace {

constexpr char32_t first_substitute = 0x100;
constexpr std::size_t characters = 0x100 + 68;

constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
}

struct Tables {
  std::array<char32_t, 256> character{};
  std::array<int, characters> byte{};  // byte of each character; -1: none

  constexpr Tables() {
    byte.fill(-1);
    char32_t next = first_substitute;
    for (unsigned b = 0; b < 256; ++b) {
      character[b] = stands_for_itself(b) ? char32_t{b} : next++;
      byte[character[b]] = static_cast<int>(b);
    }
  }
};
constexpr Tables tables;

}  // namespace

char32_t character_of_byte(unsigned char byte) {
  return tables.character[byte];
}

std::string characters_of_bytes(std::string_view bytes) {
  std::string out;
  for (const char byte : bytes) {
    const char32_t c = tables.character[static_cast<unsigned char>(byte)];
    if (c < 0x80) {
      out += static_cast<char>(c);
    } else {  // all are below U+0800
      out += static_cast<char>(0xC0 | (c >> 6));
      out += static_cast<char>(0x80 | (c & 0x3F));
    }
  }
  return out;
}

std::optional<std::string> bytes_of_characters(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::size_t c = static_cast<unsigned char>(text[i]);
    if (c >= 0x80) {
      if ((c & 0xE0) != 0xC0 || i + 1 == text.size()) return std::nullopt;
      c = (c & 0x1F) << 6 | (static_cast<unsigned char>(text[++i]) & 0x3F);
    }
    if (c >= characters || tables.byte[c] < 0) return std::nullopt;
    out += static_cast<char>(tables.byte[c]);
  }
  return out;
}

}  // namespace trireme::data
