#pragma once

#include <string>
#include <string_view>

namespace trireme::data {

/// The PCRE2 expression (UTF and UCP, newline LF) that finds the matches of `pattern` in
/// Oniguruma's syntax, in which a tokenizer.json writes its patterns. A match does not depend on
/// the text before it. UsageError with `where`, the pattern, and the construct if PCRE2 has no
/// equal: anchors to the left, look-behind, back-references, absent groups, callouts, characters
/// that fold to several ones. Syntax: Oniguruma's doc/RE, 6.9.
std::string to_pcre2(std::string_view pattern, const std::string& where);

}  // namespace trireme::data
