#pragma once

#include <string>

namespace trireme::plan {

/// The whole of a small text file. `cited` is how errors call it: UsageError where it is missing, a
/// folder, larger than any program or timeline, or cannot be read.
std::string read_text_file(const std::string& path, const std::string& cited);

}  // namespace trireme::plan
