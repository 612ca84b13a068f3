#pragma once

#include <string>
#include <string_view>

namespace trireme::io {

/// Writes the output of a command. A file appears complete or not at all, and an existing file
/// stays until then; a device or a pipe, such as /dev/stdout, is written directly. UsageError with
/// the path, the reason and `remedy`.
void write_output(const std::string& path, std::string_view content, const std::string& remedy);

/// Writes a command's --json output to a file, or to standard output for "-".
void write_json(const std::string& path, const std::string& json);

/// Checks before a long computation that its output file can be written. UsageError with the path
/// and the reason. Accepts an empty path; leaves no file.
void expect_writable(const std::string& path);

}  // namespace trireme::io
