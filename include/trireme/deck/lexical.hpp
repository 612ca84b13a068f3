#pragma once

#include <string>
#include <string_view>

namespace trireme::deck {

/// Throws a UsageError for text that must not reach the TOML parser: empty, too large or binary
/// files, multi-line strings, and dotted names so deep that destroying the parsed tables would
/// exhaust the stack. Errors call the file a `kind`, "deck"; `help` says where its keys are
/// documented.
void refuse_unparsable(std::string_view content, const std::string& file_name,
                       const std::string& kind, const std::string& help);

/// The word for an error message, cut if it is longer than a line.
std::string shortened(std::string_view word);

}  // namespace trireme::deck
