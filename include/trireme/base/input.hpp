#pragma once

#include <string>
#include <string_view>

namespace trireme {

/// Kind of a path that is not a file, for messages: "a folder", "a named pipe", "a device" or "a
/// socket"; reading some of these blocks forever. "" for a file or a missing path. With `streams`,
/// descriptors that this process was given (/dev/stdin, /dev/fd/N) may be pipes.
std::string not_a_file(const std::string& path, bool streams = false);

/// UsageError "CITED: is a named pipe, expected a file" if not_a_file() returns a kind.
void expect_file(const std::string& path, const std::string& cited, bool streams = false);

/// Opens a file for reading without waiting for another process, and returns its descriptor.
/// UsageError that begins with `cited` if the file cannot be opened or is not a regular file.
int open_input(const std::string& path, const std::string& cited, bool streams = false);

/// Reason why a path is rejected that a shell would have expanded: it begins with "~" or contains a
/// variable such as $HOME, which no user intends as a literal name. "" for any other path.
std::string unexpanded(std::string_view path);

}  // namespace trireme
