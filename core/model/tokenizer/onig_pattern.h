// Published tokenizers state their patterns in Oniguruma's dialect (its default syntax, UTF-8).
#pragma once

#include <string>
#include <string_view>

namespace tenon::text {

// These are White_Space, and Oniguruma's word characters, as the inside of a PCRE2 character class.
inline constexpr std::string_view kSpaceSet = R"(\t-\r\x{85}\p{Z})";
inline constexpr std::string_view kWordSet = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";

// Returns the pattern in PCRE2's dialect, for PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE with newline LF. Throws
// Error(kModel) for a construct whose meaning cannot be carried over.
std::string onig_to_pcre2(std::string_view pattern);

}  // namespace tenon::text
