// Writes messages to stdout, stderr and the run's log file, one at a time under a mutex.
#include <trireme/base/log.hpp>

#include <trireme/base/events.hpp>
#include <trireme/base/input.hpp>
#include <trireme/base/terminal.hpp>
#include <trireme/base/utf8.hpp>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <mutex>

namespace trireme::log {
namespace {

struct State {
  std::mutex mutex;
  std::ofstream file;
  bool speaks = true;
  bool progress_shown = false;
  bool closed_said = false;
};

State& state() {
  static State instance;
  return instance;
}

void to_file(State& s, std::string_view prefix, std::string_view message) {
  if (s.file.is_open()) s.file << prefix << message << '\n' << std::flush;
}

/// False if the last line of the file is incomplete, as after a kill.
bool ends_with_line(const std::string& path) {
  expect_file(path, path);
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in.is_open() || in.tellg() <= 0) return true;
  in.seekg(-1, std::ios::end);
  return in.get() == '\n';
}

/// Writes to standard output, and warns once in the log file if it was closed.
void to_stdout(State& s, const std::string& words) {
  errno = 0;  // fwrite() or fflush() may set errno
  std::fwrite(words.data(), 1, words.size(), stdout);
  std::fflush(stdout);
  if (errno != EPIPE || s.closed_said) return;
  s.closed_said = true;
  to_file(s, "trireme: warning: ", "standard output was closed; the run continues");
}

void end_progress(State& s) {
  if (s.progress_shown) std::fputs("\r\033[K", stdout);
  s.progress_shown = false;
}

/// `colour`: ANSI number of the prefix's colour on a terminal.
void to_stderr(std::string_view prefix, int colour, std::string_view message) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  if (!s.speaks) return;
  end_progress(s);
  std::fflush(stdout);
  const std::string shown = printable(message, /*lines=*/true);  // file names may have any bytes
  const std::string shown_prefix = terminal::has_colours()
                                       ? text("\033[1;", colour, "m", prefix, "\033[0m")
                                       : std::string(prefix);
  const std::string whole = text(shown_prefix, shown, "\n");
  std::fwrite(whole.data(), 1, whole.size(), stderr);
  to_file(s, prefix, shown);
}

}  // namespace

void set_speaking(bool speaks) {
  state().speaks = speaks;
}
bool speaking() {
  return state().speaks;
}
bool on_terminal() {
  return terminal::rewrites_lines();
}

void set_file(const std::string& path) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.file.close();
  s.file.clear();
  if (path.empty() || !s.speaks) return;
  const bool torn = !ends_with_line(path);
  s.file.open(path, std::ios::app);
  if (torn) to_file(s, "", "");
}

void line(std::string_view message) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  if (!s.speaks) return;
  end_progress(s);
  to_stdout(s, text(message, "\n"));
  to_file(s, "", message);
}

void warn(std::string_view message) {
  to_stderr("trireme: warning: ", 33, message);
  if (speaking()) events::record(events::Warning{std::string(message)});
}
void error(std::string_view message) {
  to_stderr("trireme: error: ", 31, message);
}

void progress(std::string_view message) {
  if (!on_terminal()) {
    line(message);
    return;
  }
  State& s = state();
  const std::lock_guard lock(s.mutex);
  if (!s.speaks) return;
  to_stdout(s, text("\r\033[K", message));
  s.progress_shown = true;
  to_file(s, "", message);
}

}  // namespace trireme::log
