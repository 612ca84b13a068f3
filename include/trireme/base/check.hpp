#pragma once

#include <trireme/base/text.hpp>

#include <exception>
#include <stdexcept>
#include <string>

namespace trireme {

/// Exit codes of the programs; README.md lists them.
enum class ExitCode : int {
  finished = 0,
  failed = 1,
  usage = 2,
  restartable = 75,
  wrong_numbers = 76  ///< an audit found wrong results and ended the run
};

/// Any error that ends a command. `what()` is the whole message for the user; the exit code goes to
/// the shell.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, ExitCode code = ExitCode::failed)
      : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

/// A user's mistake in a deck or on the command line: exit code 2.
class UsageError : public Error {
 public:
  explicit UsageError(const std::string& message) : Error(message, ExitCode::usage) {}
};

/// Replaces std::source_location, which clang 14 lacks.
struct Place {
  const char* file;
  int line;
  static constexpr Place here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

namespace detail {
[[noreturn]] void check_failed(const std::string& message, Place place);
}

/// `check(rows == 3, "rows = ", rows, ", expected 3")` throws an Error that ends with the source
/// position. Always on: state what is wrong, the value, what was expected and the remedy. It is a
/// class, not a function, so that the place can be a default argument after the pack.
template <class... Parts>
struct check {
  explicit check(bool condition, const Parts&... parts, Place place = Place::here()) {
    if (!condition) [[unlikely]]
      detail::check_failed(text(parts...), place);
  }
};
template <class... Parts>
check(bool, const Parts&...) -> check<Parts...>;

/// Like check, for errors that a user can correct: no source position in the message, exit code 2.
template <class... Parts>
void check_usage(bool condition, const Parts&... parts) {
  if (!condition) [[unlikely]]
    throw UsageError(text(parts...));
}

/// A message for users from any exception. Replaces the text of exceptions of the C++ library,
/// which names the library's functions.
std::string plain_message(const std::exception& error);

}  // namespace trireme
