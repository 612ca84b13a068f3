#pragma once

#include <trireme/base/text.hpp>

#include <exception>
#include <stdexcept>
#include <string>

namespace trireme {

/// Exit codes of the programs; docs/running.md documents them.
enum class ExitCode : int {
  finished = 0,
  failed = 1,
  usage = 2,
  restartable = 75,
  wrong_numbers = 76  ///< an audit found wrong results and ended the run
};

/// Any error that ends a command. `what()` is the whole message for the user.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, ExitCode code = ExitCode::failed)
      : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

/// An error that a user can correct, such as a mistake in a deck: exit code 2.
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

/// `check(rows == 3, "rows = ", rows, ", expected 3")` throws an Error unless the condition holds.
/// The message ends with the source position. `check` is a class so that a default argument can
/// follow the parameter pack.
template <class... Parts>
struct check {
  explicit check(bool condition, const Parts&... parts, Place place = Place::here()) {
    if (!condition) [[unlikely]]
      detail::check_failed(text(parts...), place);
  }
};
template <class... Parts>
check(bool, const Parts&...) -> check<Parts...>;

/// Throws a UsageError with the text of the parts unless the condition holds.
template <class... Parts>
void check_usage(bool condition, const Parts&... parts) {
  if (!condition) [[unlikely]]
    throw UsageError(text(parts...));
}

/// Message for users: the text of an Error; a plain text for file-system errors, system errors and
/// failed allocations; "internal error: …" for any other exception.
std::string plain_message(const std::exception& error);

}  // namespace trireme
