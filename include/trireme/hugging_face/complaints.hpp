#pragma once

#include <trireme/base/check.hpp>

#include <string>
#include <utility>

namespace trireme::hugging_face {

/// Collects the lines of one error. Keeps only the first 20 lines.
class Complaints {
 public:
  /// `within`: beginning of every line, such as "text_config.".
  explicit Complaints(std::string within = "") : within_(std::move(within)) {}

  template <class... Parts>
  void add(const Parts&... parts) {
    if (++number_ <= most) lines_ += text("\n  ", within_, parts...);
  }

  /// Adds the lines of another list.
  void add(const Complaints& other) {
    if (number_ < most) lines_ += other.lines_;
    number_ += other.number_;
  }

  /// Throws a UsageError with "beginning:", the lines, the number of further lines, and `end`. Does
  /// nothing if there are no lines.
  void raise(const std::string& beginning, const std::string& end) const {
    if (number_ == 0) return;
    const std::string more = number_ > most ? text("\n  and ", number_ - most, " more") : "";
    throw UsageError(text(beginning, ":", lines_, more, end.empty() ? "" : "\n", end));
  }

 private:
  static constexpr int most = 20;
  std::string within_;
  int number_ = 0;
  std::string lines_;
};

/// A word for messages, truncated to 80 bytes.
inline std::string shortened(const std::string& word) {
  return word.size() <= 80 ? word : word.substr(0, 77) + "...";
}

}  // namespace trireme::hugging_face
