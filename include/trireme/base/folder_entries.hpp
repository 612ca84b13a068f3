#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace trireme {

/// Entries of a folder in any order; none if there is no such folder. Error with the path if the
/// folder cannot be read, because an incomplete list could mislead the caller.
std::vector<std::filesystem::directory_entry> entries_of(const std::string& folder);

/// Like entries_of, but without errors: the entries before the first failure, for callers that
/// accept an incomplete list.
std::vector<std::filesystem::directory_entry> readable_entries_of(const std::string& folder);

}  // namespace trireme
