#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace trireme {

/// Entries of a folder in any order; none if the folder does not exist. Throws Error with the path
/// if the folder cannot be read, because an incomplete list may mislead.
std::vector<std::filesystem::directory_entry> entries_of(const std::string& folder);

/// Entries before the first error, for callers that accept an incomplete list.
std::vector<std::filesystem::directory_entry> readable_entries_of(const std::string& folder);

}  // namespace trireme
