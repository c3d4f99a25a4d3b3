// This is UTF-8 by the letter of the Unicode Standard, section 3.9 (well-formed sequences, maximal subparts).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tenon::text {

enum class Utf8Kind : uint8_t { kCharacter, kIllFormed, kTruncated };

// Returns the first sequence of `bytes` (not empty): a whole character, the maximal subpart of an ill-formed one, or
// the start of one that the end of the bytes cuts off.
struct Utf8Unit {
  uint8_t length;
  Utf8Kind kind;
};
Utf8Unit first_unit(std::string_view bytes);

// Returns the code point of a whole character.
char32_t code_point(std::string_view character);
void append_utf8(std::string& text, char32_t code_point);

// Appends `bytes` with every ill-formed subpart, and a truncated end, replaced by U+FFFD.
void append_well_formed(std::string& text, std::string_view bytes);

// Returns whether the character has White_Space in the Unicode character database.
bool is_space(char32_t c);
// Returns `text`, well-formed UTF-8, without white space at its start and end, as asked.
std::string_view strip(std::string_view text, bool left, bool right);

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";
inline constexpr std::string_view kMetaspace = "\xE2\x96\x81";  // U+2581, how SentencePiece writes a space

}  // namespace tenon::text
