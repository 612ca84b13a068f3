#pragma once

#include <string>
#include <string_view>

namespace trireme::io {

/// Writes a product of a command: a file appears complete or not at all, and one that exists stays
/// until then; a device or a pipe, such as /dev/stdout, is written as it is. UsageError with the
/// path, the reason and `remedy`.
void write_output(const std::string& path, std::string_view content, const std::string& remedy);

/// Writes what the option --json of a command asks for: to the file, or for "-" to standard output.
void write_json(const std::string& path, const std::string& json);

/// Finds before a long computation that its product could not be written. UsageError with the path
/// and the reason; nothing for an empty path, and no file is left.
void expect_writable(const std::string& path);

}  // namespace trireme::io
