#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// Several texts, of any bytes, as one message between ranks.
std::string pack_texts(const std::vector<std::string>& texts);
/// Inverse of pack_texts. Error for other bytes.
std::vector<std::string> unpack_texts(std::string_view packed);

}  // namespace trireme
