// These are the methods of Python's str, which filters use, too. Results keep the origin of each character, and whether
// the text is safe. All throw Failure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "run.h"
#include "text.h"

namespace tenon::jinja {

// These return where the wanted bytes begin, or npos. The time of the first grows with the sum of the lengths, whatever
// the bytes are; that of the second with their product, which the run is charged.
size_t find_first(std::string_view bytes, std::string_view wanted, size_t from = 0);
size_t find_last(Run& run, std::string_view bytes, std::string_view wanted);

enum class Case : uint8_t { kLower, kUpper, kCapitalized };
Text with_case(const Text& text, Case to);
// Each word begins with a capital. A word begins where `begins_word` holds for the character before it.
Text titled(const Text& text, bool (*begins_word)(char32_t before));

// Returns whether it is a capital or a small letter.
bool is_cased(char32_t c);

// `characters` are to be taken away; nullptr means white space.
Text strip(Run& run, const Text& text, bool left, bool right, const Text* characters);
// A `separator` of nullptr is any white space. There are at most `most` cuts, unless it is negative; maybe from_right.
std::vector<Text> split(Run& run, const Text& text, const Text* separator, int64_t most, bool from_right);
std::vector<Text> split_lines(Run& run, const Text& text, bool keep_ends);
// Returns three parts: what is before the separator, the separator, and what is after it.
std::vector<Text> partition(Run& run, const Text& text, const Text& separator, bool from_right);
// Replaces `old` by `with`, at most `most` times unless that is negative.
Text replace(Run& run, const Text& text, const Text& old, const Text& with, int64_t most);
Text join(Run& run, const Text& separator, const std::vector<const Text*>& texts);
// Puts `fill` before and after the text, so many times.
Text pad(Run& run, const Text& text, uint64_t left, uint64_t right, std::string_view fill = " ");

enum class Class : uint8_t { kLetters, kDigits, kLettersAndDigits, kSpaces, kLower, kUpper, kAscii };
// Returns what str.isalpha() and the like say.
bool is_all(const Text& text, Class of);

}  // namespace tenon::jinja
