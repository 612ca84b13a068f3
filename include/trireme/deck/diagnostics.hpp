#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::deck {

/// Collects the mistakes of one deck, each with its place and source line, and throws them as one
/// UsageError.
class Diagnostics {
 public:
  /// `content` must outlive the object.
  Diagnostics(std::string file_name, std::string_view content);

  /// A mistake at a line and column of the deck, both counted from 1.
  void at(std::size_t line, std::size_t column, const std::string& message);
  /// A mistake on the command line or in the whole deck; shown after mistakes that have a line.
  void add(const std::string& message);

  /// Whether the limit of shown mistakes is reached; further mistakes are only counted.
  bool full() const { return mistakes_.size() >= shown_limit; }
  void throw_if_any() const;

 private:
  static constexpr std::size_t shown_limit = 50;
  struct Mistake {
    std::size_t line;
    std::size_t column;
    std::string message;
  };
  std::string excerpt(std::size_t line, std::size_t column) const;
  void keep(Mistake mistake);

  std::string file_name_;
  std::string_view content_;
  std::vector<Mistake> mistakes_;
  std::size_t total_ = 0;
};

}  // namespace trireme::deck
