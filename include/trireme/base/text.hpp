#pragma once

#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// Appends one part: strings and characters unchanged, bools as words, integers in decimal,
/// floating-point numbers in the shortest form that reads back exactly, other types with
/// operator<<.
template <class T>
void append_text(std::string& out, const T& part) {
  if constexpr (std::convertible_to<const T&, std::string_view>) {
    out += std::string_view(part);
  } else if constexpr (std::same_as<T, bool>) {
    out += part ? "true" : "false";
  } else if constexpr (std::same_as<T, char>) {
    out += part;
  } else if constexpr (std::is_arithmetic_v<T>) {
    char buffer[64];
    const auto end = std::to_chars(buffer, buffer + sizeof buffer, part).ptr;
    out.append(buffer, end);
  } else {
    std::ostringstream stream;
    stream << part;
    out += stream.str();
  }
}

/// Concatenates the parts: `text("rank ", 3, " of ", 8)`.
template <class... Parts>
std::string text(const Parts&... parts) {
  std::string out;
  (append_text(out, parts), ...);
  return out;
}

std::string join(const std::vector<std::string>& parts, std::string_view separator);

/// 1536 -> "1.50 KiB": binary units, three or four digits; below 1 KiB, whole bytes.
std::string human_bytes(std::int64_t bytes);
/// 124439808 -> "124,439,808".
std::string with_commas(std::int64_t number);
/// 3725 s -> "1:02:05"; below an hour, 125 s -> "2:05".
std::string human_seconds(double seconds);
/// A number with `digits` decimal places.
std::string fixed(double number, int digits);
/// 0.0628 -> "6.3 %".
std::string percent(double share);
/// `word`, followed by spaces up to a size of `width` bytes.
std::string padded(std::string word, std::size_t width);
/// The candidate with the smallest edit distance to `word`; "" if all distances are greater than 2
/// and greater than half of the word's length.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

/// Several texts, of any bytes, as one message between ranks.
std::string pack_texts(const std::vector<std::string>& texts);
/// Inverse of pack_texts. Error if `packed` is not a result of pack_texts.
std::vector<std::string> unpack_texts(std::string_view packed);

}  // namespace trireme
