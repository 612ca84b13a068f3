#pragma once

#include <string>

namespace trireme::plan {

/// Content of a small text file, which errors call `cited`. UsageError if it is missing, a folder,
/// larger than any program or timeline, or cannot be read.
std::string read_text_file(const std::string& path, const std::string& cited);

}  // namespace trireme::plan
