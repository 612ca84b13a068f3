#pragma once

#include <trireme/deck/table.hpp>

#include <optional>
#include <string>
#include <string_view>

/// From what somebody wrote to a checked Value of a key, and back.
namespace trireme::deck {

/// What may stand in a file for this key, as an error or a document says it: "an integer from 1 to
/// 65536".
std::string expectation(const KeyText& key);

/// `raw` as the key keeps it: an integer where a number is wanted becomes one, a duration's text
/// becomes seconds, and a size's bytes. Nothing if its type or range is wrong; `problem` then says
/// what was expected and found.
std::optional<Value> accept(const KeyText& key, const Value& raw, std::string& problem);

/// Reads the text of an override by the key's type: strings need no quotes (and may have them).
std::optional<Value> accept_text(const KeyText& key, std::string_view written,
                                 std::string& problem);

/// The value as TOML that reads back to exactly the same.
std::string literal(const KeyText& key, const Value& value);
std::string quoted(std::string_view string);

}  // namespace trireme::deck
