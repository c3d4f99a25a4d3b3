// Tokens are found here in the text by their name before anything else looks at it.
#pragma once

#include <bitset>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::text {

struct AddedToken {
  int32_t id = 0;
  std::string name;
  bool special = false;      // it is found only where the caller allows it
  bool normalized = false;   // it is looked for in the normalized text, by its normalized name
  bool single_word = false;  // true: it counts only if no word character touches it
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // true: it takes the white space after it
};

// This is a stretch of text, or a token in its place (id >= 0).
struct TextOrToken {
  size_t begin;
  size_t end;
  int32_t id;
};

// These are half-open byte ranges.
struct TextRange {
  size_t begin;
  size_t end;
};

class AddedTokenMatcher {
 public:
  AddedTokenMatcher() = default;
  // Tokens without a name are left out.
  explicit AddedTokenMatcher(std::vector<AddedToken> tokens);

  // Cuts `text` at the longest token that begins leftmost, and so on after it. A special token counts only if a range
  // of `special_ranges` (ascending, disjoint) holds it whole. No stretch of the result is empty.
  std::vector<TextOrToken> split(std::string_view text, std::span<const TextRange> special_ranges) const;

 private:
  const AddedToken* longest_at(std::string_view text, size_t at, std::span<const TextRange> special_ranges) const;

  std::vector<AddedToken> tokens_;  // the key is the name
  std::bitset<256> first_;          // bytes that a name begins with
};

}  // namespace tenon::text
