// Determines the properties of the terminal from the environment, this process's descriptors, and
// the descriptors of a launcher among its ancestors (in /proc). Wraps text.
#include <trireme/base/terminal.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/process.hpp>
#include <trireme/base/text.hpp>

#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <filesystem>

namespace trireme::terminal {
namespace {

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : value;
}

bool is_dumb() {
  return variable("TERM") == "dumb";
}

bool is_launcher(std::string_view name) {
  constexpr std::array<std::string_view, 5> names{"mpiexec", "mpirun", "prterun", "orterun",
                                                  "srun"};
  return std::ranges::any_of(names, [&](std::string_view n) { return name.starts_with(n); });
}

/// Whether a descriptor of the launcher is a terminal.
bool is_terminal_of(std::int64_t launcher, int descriptor) {
  std::error_code unreadable;
  const std::string target =
      std::filesystem::read_symlink(text("/proc/", launcher, "/fd/", descriptor), unreadable)
          .string();
  return target.starts_with("/dev/pts/") || target.starts_with("/dev/tty") ||
         target == "/dev/console";
}

bool reaches(int descriptor) {
  const bool own = isatty(descriptor) == 1;
  struct stat status {};
  const bool forwarded =
      fstat(descriptor, &status) == 0 && (S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode));
  if (!own && !forwarded) return false;
  // Open MPI gives its processes pseudo-terminals even if their output does not go to a terminal.
  for (std::int64_t id = getppid(); id > 1;) {
    const ProcessEntry found = process_entry(id);
    if (is_launcher(found.name)) return is_terminal_of(id, descriptor);
    id = found.parent;
  }
  return own;
}

}  // namespace

bool reached_by(int descriptor) {
  static const bool out = reaches(STDOUT_FILENO), err = reaches(STDERR_FILENO);
  return descriptor == STDERR_FILENO ? err : out;
}

bool rewrites_lines() {
  const std::string_view asked = variable("TRIREME_PROGRESS");
  if (asked == "rewrite") return true;
  return asked != "lines" && !is_dumb() && reached_by(STDOUT_FILENO);
}

void expect_valid_variables() {
  const std::string_view asked = variable("TRIREME_PROGRESS");
  check_usage(asked.empty() || asked == "rewrite" || asked == "lines", "TRIREME_PROGRESS = \"",
              asked, "\" is not \"rewrite\" or \"lines\"; set one of them, or unset it");
}

bool has_colours() {
  return variable("NO_COLOR").empty() && !is_dumb() && reached_by(STDERR_FILENO);
}

std::size_t columns() {
  const std::string_view given = variable("COLUMNS");
  std::size_t found = 0;
  std::from_chars(given.begin(), given.end(), found);
  winsize size{};
  if (found == 0 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) found = size.ws_col;
  return found == 0 ? 80 : std::max<std::size_t>(found, 40);
}

std::size_t width(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

namespace {

/// Indentation of the lines that continue this line.
std::size_t indent_of(std::string_view line, std::size_t columns) {
  const std::size_t begin = std::min(line.find_first_not_of(' '), line.size());
  const std::size_t gap = line.find("  ", begin);
  const std::size_t second = gap == line.npos ? line.npos : line.find_first_not_of(' ', gap);
  if (second != line.npos && second + 20 <= columns) return width(line.substr(0, second));
  return begin == 0 || begin >= 20 ? begin : begin + 2;
}

std::string wrapped_line(std::string_view line, std::size_t columns, std::string_view joint) {
  if (width(line) <= columns) return std::string(line);
  const std::size_t indent = indent_of(line, columns);
  std::string out;
  std::size_t at = 0;  // number of columns of the last line of `out`
  bool begins = true;
  for (std::size_t i = 0; i < line.size();) {
    const std::size_t word = std::min(line.find_first_not_of(' ', i), line.size());
    const std::size_t next = std::min(line.find(' ', word), line.size());
    const std::size_t wide = width(line.substr(word, next - word));
    if (!begins && at + (word - i) + wide + joint.size() > columns) {
      out += text(joint, "\n", std::string(indent, ' '));
      at = indent;
    } else {
      out.append(word - i, ' ');
      at += word - i;
    }
    out += line.substr(word, next - word);
    at += wide;
    begins = false;
    i = next;
  }
  return out;
}

}  // namespace

std::string wrapped(std::string_view lines, std::size_t columns, std::string_view joint) {
  std::string out;
  while (!lines.empty()) {
    const std::size_t end = std::min(lines.find('\n'), lines.size());
    out += wrapped_line(lines.substr(0, end), columns, joint);
    if (end < lines.size()) out += '\n';
    lines.remove_prefix(std::min(end + 1, lines.size()));
  }
  return out;
}

}  // namespace trireme::terminal
