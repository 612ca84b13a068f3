#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace trireme::data {

/// Cuts a stream of bytes into documents wherever a regular expression matches, in bounded memory:
/// what matches belongs to no document, a match of no bytes (`(?=…)`) cuts and drops nothing. The
/// expression is PCRE2's, works on bytes and sees the whole file: look-behind, look-ahead and `\z`
/// give the same cuts however the stream is chunked (partial matching, pcre2partial(3)). Documents
/// may be empty.
class DocumentSplitter {
 public:
  /// What becomes of the text: pieces of the current document in order, and its end.
  struct Sink {
    std::function<void(std::string_view)> piece;
    std::function<void()> end;
  };

  /// UsageError if the expression does not compile. An empty one never matches: the file is one
  /// document.
  explicit DocumentSplitter(const std::string& separator);
  ~DocumentSplitter();
  DocumentSplitter(const DocumentSplitter&) = delete;
  DocumentSplitter& operator=(const DocumentSplitter&) = delete;

  /// More bytes of the file. UsageError if the separator has matched more than 8 MiB without an
  /// end.
  void feed(std::string_view bytes, const Sink& sink);
  /// The file is over: ends its last document and is ready for the next file.
  void finish(const Sink& sink);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme::data
