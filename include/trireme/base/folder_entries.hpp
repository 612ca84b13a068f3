#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace trireme {

/// Entries of a folder in any order, none if there is no such folder. Error with its path if it
/// cannot be read: a part of the entries may mislead.
std::vector<std::filesystem::directory_entry> entries_of(const std::string& folder);

/// The entries before the first error, for what may as well find nothing.
std::vector<std::filesystem::directory_entry> readable_entries_of(const std::string& folder);

}  // namespace trireme
