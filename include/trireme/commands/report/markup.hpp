#pragma once

#include <trireme/io/image.hpp>

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::commands {

/// Escapes text for HTML, XML and their attributes: markup characters become entities, control
/// characters except line ends become spaces, and bytes that are not UTF-8 become U+FFFD.
std::string escaped(std::string_view raw);

/// "data:image/bmp;base64,...": an image for CSS and HTML.
std::string bitmap_url(const io::Image& image);

/// A table with a header for each column, and a caption. Cells are text, which is escaped; columns
/// from index `numbers` on are aligned right. Cells of the column `marked_up` are HTML.
std::string html_table(std::string_view caption, const std::vector<std::string>& head,
                       const std::vector<std::vector<std::string>>& rows, int numbers,
                       std::size_t marked_up = -1);

}  // namespace trireme::commands
