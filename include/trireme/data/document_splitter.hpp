#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace trireme::data {

/// Splits a stream of bytes into documents at the matches of a regular expression (PCRE2's syntax,
/// on bytes), in bounded memory. Matched bytes belong to no document.
class DocumentSplitter {
 public:
  /// Receives the pieces of the current document in order, and its end.
  struct Sink {
    std::function<void(std::string_view)> piece;
    std::function<void()> end;
  };

  /// UsageError if the expression does not compile. Empty: the file is one document.
  explicit DocumentSplitter(const std::string& separator);
  ~DocumentSplitter();
  DocumentSplitter(const DocumentSplitter&) = delete;
  DocumentSplitter& operator=(const DocumentSplitter&) = delete;

  /// Consumes the next bytes of the file. UsageError if a match with its look-ahead exceeds 8 MiB,
  /// if \K moves a match backwards, or if PCRE2 cannot match the expression.
  void feed(std::string_view bytes, const Sink& sink);
  /// Ends the file and its last document. A file without bytes has no document. Another file may
  /// follow.
  void finish(const Sink& sink);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme::data
