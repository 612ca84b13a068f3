#pragma once

#include <trireme/deck/table.hpp>

#include <optional>
#include <string>
#include <string_view>

/// Conversion between text and a checked Value of a key.
namespace trireme::deck {

/// The accepted values of this key, for errors and documents: "an integer from 1 to 65536".
std::string expectation(const KeyText& key);

/// Converts `raw` to the key's type, such as a duration's text to seconds. std::nullopt if `raw` is
/// not accepted; `problem` then names the accepted and the found value.
std::optional<Value> accept(const KeyText& key, const Value& raw, std::string& problem);

/// accept() for the text of an override; quotes around strings are optional.
std::optional<Value> accept_text(const KeyText& key, std::string_view written,
                                 std::string& problem);

/// The value as TOML that reads back as exactly the same value.
std::string literal(const KeyText& key, const Value& value);
std::string in_quotes(std::string_view string);

/// "hh:mm:ss" in seconds, with at most 1000000 hours; std::nullopt for other text.
std::optional<Seconds> parse_duration(std::string_view written);

}  // namespace trireme::deck
