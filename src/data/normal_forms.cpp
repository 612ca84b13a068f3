// NFC, NFD, NFKC and NFKD by ICU, for the characters of Unicode 9, as in the `tokenizers` library;
// newer characters remain. A part of a text ends before a character that no earlier one can combine
// with.
#include <trireme/data/normal_forms.hpp>

#include <trireme/base/check.hpp>
#include <trireme/data/unicode.hpp>

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uniset.h>

#include <array>

namespace trireme::data {
namespace {

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
  /// The last place before which the text does not change with what follows.
  std::size_t boundary(std::string_view text) const {
    while (!text.empty())
      if (normalizer_.hasBoundaryBefore(static_cast<UChar32>(take_last_character(text)))) break;
    return text.size();
  }

  NormalForm form_;
  const icu::Normalizer2& normalizer_;
  std::string normal_;
};

}  // namespace

std::unique_ptr<TextStep> make_normal_form(NormalForm form) {
  return std::make_unique<Normalize>(form);
}

}  // namespace trireme::data
