#pragma once

#include <trireme/base/utf8.hpp>

#include <string>
#include <string_view>
#include <utility>

namespace trireme::data {

/// Replaces ill-formed UTF-8 in a text that arrives in pieces by U+FFFD, one per maximal subpart
/// (Unicode, section 3.9).
class Utf8Repair {
 public:
  /// Calls `use(std::string_view)` with text of whole characters.
  template <class Use>
  void feed(std::string_view bytes, const Use& use) {
    if (!cut_off_.empty()) {
      cut_off_ += bytes;
      const std::string whole = std::exchange(cut_off_, {});
      return repair(whole, use);
    }
    repair(bytes, use);
  }
  /// Ends the text: replaces an incomplete last character. Another text may follow.
  template <class Use>
  void finish(const Use& use) {
    if (!cut_off_.empty()) use(replacement);
    cut_off_.clear();
  }

 private:
  static constexpr std::string_view replacement = "\xEF\xBF\xBD";

  template <class Use>
  void repair(std::string_view bytes, const Use& use) {
    while (!bytes.empty()) {
      const Utf8Run run = utf8_run(bytes);
      if (run.valid > 0) use(bytes.substr(0, run.valid));
      bytes.remove_prefix(run.valid);
      if (run.incomplete) {
        cut_off_ = bytes;
        return;
      }
      if (bytes.empty()) return;
      std::size_t wrong = 1;
      while (wrong < bytes.size() && utf8_run(bytes.substr(0, wrong + 1)).incomplete) ++wrong;
      use(replacement);
      bytes.remove_prefix(wrong);
    }
  }

  std::string cut_off_;  // beginning of an incomplete character
};

}  // namespace trireme::data
