#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::deck {

/// Collects the mistakes of one deck or machine file and of its overrides, with places and source
/// lines where known, and throws the mistakes as one UsageError.
class Diagnostics {
 public:
  /// `content` must outlive the object.
  Diagnostics(std::string file_name, std::string_view content);

  /// Adds a mistake at a line and column of the file, both counted from 1.
  void at(std::size_t line, std::size_t column, const std::string& message);
  /// Adds a mistake without a line; shown after mistakes that have a line.
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
