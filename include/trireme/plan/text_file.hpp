#pragma once

#include <string>

namespace trireme::plan {

/// Content of a small text file, which errors call `cited`. UsageError if it is missing, a folder,
/// larger than any program or timeline, or unreadable. `remedy` ends the message about a missing
/// file.
std::string read_text_file(const std::string& path, const std::string& cited,
                           const std::string& remedy = "");

}  // namespace trireme::plan
