#pragma once

#include <trireme/base/text.hpp>

#include <string>
#include <string_view>

namespace trireme {

/// Progress and results go to stdout and, once a run has a directory, to its log file too. Only the
/// speaking rank prints; calls on other ranks do nothing. Thread-safe.
namespace log {

/// Whether this process prints; it does by default. Called once per process.
void set_speaking(bool speaks);
bool speaking();

/// Also appends all later messages to this file; "" stops this.
void set_file(const std::string& path);

void line(std::string_view message);  ///< One line.
void warn(std::string_view message);  ///< One line to stderr, "trireme: warning: …"; also an event.
void error(std::string_view message);  ///< One message to stderr, "trireme: error: …".

/// One line that replaces the last progress line on a terminal; elsewhere a plain line.
void progress(std::string_view message);
bool on_terminal();

}  // namespace log

template <class... Parts>
void say(const Parts&... parts) {
  if (log::speaking()) log::line(text(parts...));
}

}  // namespace trireme
