#pragma once

#include <string>
#include <string_view>

namespace trireme {

/// The kind of thing at a path, for messages: "a folder", "a named pipe", "a device" or
/// "a socket". Reading some of them waits for ever. "" for a file, and if nothing is there. With
/// `streams`, descriptors that this process was given (/dev/stdin, /dev/fd/N) may be pipes.
std::string not_a_file(const std::string& path, bool streams = false);

/// UsageError "CITED: is a named pipe, expected a file" if that is so.
void expect_file(const std::string& path, const std::string& cited, bool streams = false);

/// Opens a file for reading without waiting for another process. UsageError that begins with
/// `cited` if it cannot be opened or is no file. Returns its descriptor.
int open_input(const std::string& path, const std::string& cited, bool streams = false);

/// Why a path is refused that a shell would have expanded: it begins with "~" or contains a
/// variable such as $HOME. A folder of that name is never meant. "" for any other path.
std::string unexpanded(std::string_view path);

}  // namespace trireme
