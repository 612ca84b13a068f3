#pragma once

#include <cstddef>
#include <string>
#include <string_view>

/// Properties of the program's terminal, and formatting of text for a terminal.
namespace trireme::terminal {

/// Whether output to this descriptor (standard output or standard error) reaches a terminal,
/// directly or through a launcher such as mpiexec on this node.
bool reached_by(int descriptor);

/// Whether a progress line on standard output replaces the previous progress line. The environment
/// variable TRIREME_PROGRESS ("rewrite" or "lines") decides; by default, lines are replaced on
/// terminals other than TERM=dumb.
bool rewrites_lines();

/// UsageError if TRIREME_PROGRESS is neither "rewrite" nor "lines" nor empty.
void expect_valid_variables();

/// Whether messages on standard error have colours: on a terminal other than TERM=dumb, unless
/// NO_COLOR is set and not empty.
bool has_colours();

/// Number of columns for text on standard output: from the environment variable COLUMNS, otherwise
/// from the terminal, and at least 40; 80 if both are unknown.
std::size_t columns();

/// The text with line breaks between words, so that no line has more than `columns` columns unless
/// a single word is longer. Continuation lines have at least the indentation of their line. In a
/// row of a table (text after two or more spaces), they begin at the second column if it leaves
/// room for 20 columns. `joint` ends each line that is continued.
std::string wrapped(std::string_view lines, std::size_t columns, std::string_view joint = "");

/// Columns of a UTF-8 text, which must not have characters of double width.
std::size_t width(std::string_view text);

}  // namespace trireme::terminal
