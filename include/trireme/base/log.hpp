#pragma once

#include <trireme/base/text.hpp>

#include <string>
#include <string_view>

namespace trireme {

/// Progress and results go to stdout, warnings and errors to stderr, and all messages to the run's
/// log file. Only processes that speak (set_speaking) write messages. Thread-safe.
namespace log {

/// Sets whether this process speaks (default: true). Called once per process.
void set_speaking(bool speaks);
bool speaking();

/// Also appends all later messages to this file, if this process speaks; "": to no file.
void set_file(const std::string& path);

void line(std::string_view message);  ///< One line to stdout.
void warn(std::string_view message);  ///< Message to stderr, "trireme: warning: …"; also an event.
void error(std::string_view message);  ///< Message to stderr, "trireme: error: …".

/// One line to stdout. On a terminal, it replaces the previous progress line.
void progress(std::string_view message);
/// Whether a progress line replaces the previous progress line.
bool on_terminal();

}  // namespace log

template <class... Parts>
void say(const Parts&... parts) {
  if (log::speaking()) log::line(text(parts...));
}

}  // namespace trireme
