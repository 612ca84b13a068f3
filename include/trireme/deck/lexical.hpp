#pragma once

#include <string>
#include <string_view>

namespace trireme::deck {

/// Refuses, by a UsageError, what must not reach the TOML parser: files that are empty, too large
/// or not text, strings over several lines, and dotted names so deep that taking the parsed tables
/// down again would exhaust the stack. `kind` is how errors call such a file, "deck"; `help` says
/// where its keys are documented.
void refuse_unparsable(std::string_view content, const std::string& file_name,
                       const std::string& kind, const std::string& help);

/// The word for an error message, cut where it is longer than a line.
std::string shortened(std::string_view word);

}  // namespace trireme::deck
