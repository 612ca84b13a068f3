#pragma once

#include <cstddef>
#include <string>
#include <string_view>

/// Properties of the terminal that shows the program's output, and text for it.
namespace trireme::terminal {

/// Whether output to this file descriptor reaches a terminal: directly, or through a launcher such
/// as mpiexec on this node, which forwards the output of its processes to its own.
bool reached_by(int descriptor);

/// Whether a progress line on standard output replaces the previous progress line. TRIREME_PROGRESS
/// = "rewrite" or "lines" decides; the default is to replace on terminals other than TERM=dumb.
bool rewrites_lines();

/// UsageError if TRIREME_PROGRESS has another value.
void expect_valid_variables();

/// Whether messages on standard error have colours: on a terminal other than TERM=dumb, unless
/// NO_COLOR is set.
bool has_colours();

/// Columns for text on standard output: from COLUMNS, from the terminal, or 80; at least 40.
std::size_t columns();

/// The text with line breaks between words, so that no line has more than `columns` columns unless
/// a single word has. A continuation line is aligned with the second column of a table row (text
/// after two or more spaces); otherwise it has its line's indentation, and two spaces more if that
/// is 1 to 19. `joint` ends each line that is continued.
std::string wrapped(std::string_view lines, std::size_t columns, std::string_view joint = "");

/// Columns of a UTF-8 text, which must not have characters of double width.
std::size_t width(std::string_view text);

}  // namespace trireme::terminal
