#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace trireme {

/// Entries of a folder in any order; none if it does not exist. Error if it cannot be read.
std::vector<std::filesystem::directory_entry> entries_of(const std::string& folder);

/// Like entries_of, but returns the entries before a failure instead of an error.
std::vector<std::filesystem::directory_entry> readable_entries_of(const std::string& folder);

}  // namespace trireme
