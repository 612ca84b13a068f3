#pragma once

#include <trireme/base/check.hpp>

#include <string>

namespace trireme::hugging_face {

/// Lines of one error: what is wrong with files, of which a single mistake may make thousands.
class Complaints {
 public:
  template <class... Parts>
  void add(const Parts&... parts) {
    if (++number_ <= most) lines_ += text("\n  ", parts...);
  }

  /// UsageError "beginning:", the first lines, how many more there are, and `end` on a line of its
  /// own; nothing if there are none.
  void raise(const std::string& beginning, const std::string& end) const {
    if (number_ == 0) return;
    const std::string more = number_ > most ? text("\n  and ", number_ - most, " more") : "";
    throw UsageError(text(beginning, ":", lines_, more, end.empty() ? "" : "\n", end));
  }

 private:
  static constexpr int most = 20;
  int number_ = 0;
  std::string lines_;
};

/// Words in messages: those of a damaged file may be long.
inline std::string shortened(const std::string& word) {
  return word.size() <= 80 ? word : word.substr(0, 77) + "...";
}

}  // namespace trireme::hugging_face
