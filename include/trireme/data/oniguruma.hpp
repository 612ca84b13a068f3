#pragma once

#include <string>
#include <string_view>

namespace trireme::data {

/// The PCRE2 expression (UTF and UCP, newline LF) that matches the same text as `pattern` in
/// Oniguruma's syntax, the syntax of patterns in a tokenizer.json. A match does not depend on the
/// text before it. UsageError with `where`, the pattern, and the construct if PCRE2 has no
/// equivalent: anchors to the left, look-behind, back-references, absent groups, callouts,
/// characters that fold to several characters. Syntax: Oniguruma's doc/RE, 6.9.
std::string to_pcre2(std::string_view pattern, const std::string& where);

}  // namespace trireme::data
