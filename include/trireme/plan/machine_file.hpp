#pragma once

#include <trireme/plan/machine.hpp>

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::plan {

/// Reads a machine from a TOML file. Throws one UsageError that names every mistake with its place.
Machine load_machine(const std::string& path);
/// Like load_machine, for text in memory; errors name the file as `file_name`.
Machine parse_machine(std::string_view content, const std::string& file_name);

/// One-line comments by the full name of the key.
using KeyComments = std::map<std::string, std::string>;
/// Machine file from which parse_machine() restores all keys of `machine`. UsageError if a machine
/// file cannot hold a value, such as a required value that is unknown.
std::string machine_toml(const Machine& machine, const KeyComments& comments = {});

/// All sections and keys: `trireme help machine` as text, and with --markdown as Markdown.
std::string machine_text();
std::string machine_markdown();

/// Content of a text file. UsageError if it is missing, a folder, larger than 256 MiB or
/// unreadable; errors name it as `cited`. `remedy` ends the message about a missing file.
std::string read_text_file(const std::string& path, const std::string& cited,
                           const std::string& remedy = "");

}  // namespace trireme::plan
