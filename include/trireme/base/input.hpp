#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// Kind of a path that is not a regular file, for messages: "a folder", "a named pipe", "a device"
/// or "a socket". "" for a regular file, or if stat() fails. With `streams`, also "" for /dev/stdin
/// and /dev/fd/N, unless they are folders.
std::string not_a_file(const std::string& path, bool streams = false);

/// UsageError "CITED: is a named pipe, expected a file" if not_a_file() returns a kind.
void expect_file(const std::string& path, const std::string& cited, bool streams = false);

/// Opens a file for reading, without waiting for another process, and returns the descriptor.
/// UsageError that begins with `cited` if the file cannot be opened or not_a_file() returns a kind.
int open_input(const std::string& path, const std::string& cited, bool streams = false);

/// Error text for a path that begins with "~" or contains a variable such as $HOME, which a shell
/// would have expanded. "" for any other path.
std::string unexpanded(std::string_view path);

/// Entries of a folder in any order; none if it does not exist. Error if it cannot be read.
std::vector<std::filesystem::directory_entry> entries_of(const std::string& folder);

/// Like entries_of, but returns the entries before a failure instead of an error.
std::vector<std::filesystem::directory_entry> readable_entries_of(const std::string& folder);

}  // namespace trireme
