#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::commands {

/// Escapes text for HTML, XML and their attributes: markup characters become entities, control
/// characters except line ends become spaces, and bytes that are not UTF-8 become U+FFFD.
std::string escaped(std::string_view raw);

/// A table with a header for each column, and a caption. Cells are text, which is escaped; columns
/// from index `numbers` on are aligned right.
std::string html_table(std::string_view caption, const std::vector<std::string>& head,
                       const std::vector<std::vector<std::string>>& rows, int numbers);

}  // namespace trireme::commands
