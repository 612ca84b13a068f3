// Normalizers that map each character independently of its neighbours.
#include <trireme/data/character_maps.hpp>
#include <trireme/data/unicode.hpp>
#include <trireme/data/utf8.hpp>

#include <array>

namespace trireme::data {
namespace {

using Map = void (*)(char32_t, std::string&);

/// Maps characters; caches the images of ASCII characters.
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
  static constexpr unsigned char other = 0xFF;  // not one ASCII character
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

/// The blocks of BERT's tokenization.py (Devlin et al. 2018), with its gap at U+2B820.
void separate_ideographs(char32_t c, std::string& out) {
  const bool ideograph = is_in(c, 0x4E00, 0x9FFF) || is_in(c, 0x3400, 0x4DBF) ||
                         is_in(c, 0x20000, 0x2A6DF) || is_in(c, 0x2A700, 0x2B81F) ||
                         is_in(c, 0x2B920, 0x2CEAF) || is_in(c, 0xF900, 0xFAFF) ||
                         is_in(c, 0x2F800, 0x2FA1F);
  if (ideograph) out += ' ';
  append_character(c, out);
  if (ideograph) out += ' ';
}

/// SentencePiece's rule "nmt": removes control characters, and replaces others by spaces.
void clean_for_nmt(char32_t c, std::string& out) {
  if (is_in(c, 1, 8) || c == 0xB || is_in(c, 0xE, 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F)
    return;
  const bool blank = c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 ||
                     is_in(c, 0x200B, 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                     c == 0xFEFF || c == 0xFFFD;
  append_character(blank ? U' ' : c, out);
}

}  // namespace trireme::data
