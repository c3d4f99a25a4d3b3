// UTF-8 is read by tables 3-6 and 3-7 of the Unicode Standard. An ill-formed sequence is cut into maximal subparts,
// each of which becomes one U+FFFD, as Unicode recommends. code_point() takes a whole well-formed character and checks
// nothing.
#include "utf8.h"

#include <algorithm>

namespace tenon::text {
namespace {

// This is the length of the sequence that a lead byte opens, 0 for no lead byte, and the range of its second byte.
struct Lead {
  uint8_t length;
  uint8_t low;
  uint8_t high;
};

Lead lead_of(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Unit first_unit(std::string_view bytes) {
  const auto at = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  const Lead lead = lead_of(at(0));
  if (lead.length == 0) return {1, Utf8Kind::kIllFormed};
  for (uint8_t i = 1; i < lead.length; ++i) {
    if (i == bytes.size()) return {i, Utf8Kind::kTruncated};
    const uint8_t low = i == 1 ? lead.low : 0x80;
    const uint8_t high = i == 1 ? lead.high : 0xBF;
    if (at(i) < low || at(i) > high) return {i, Utf8Kind::kIllFormed};
  }
  return {lead.length, Utf8Kind::kCharacter};
}

char32_t code_point(std::string_view character) {
  const auto lead = static_cast<uint8_t>(character[0]);
  if (character.size() == 1) return lead;
  char32_t code = lead & (0xFFu >> (character.size() + 1));
  for (size_t i = 1; i < character.size(); ++i) code = code << 6 | (static_cast<uint8_t>(character[i]) & 0x3Fu);
  return code;
}

void append_utf8(std::string& text, char32_t c) {
  const auto put = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6);
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3F));
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

void append_well_formed(std::string& text, std::string_view bytes) {
  text.reserve(text.size() + bytes.size());
  size_t good = 0;  // everything before `at` and from here on is well-formed and not copied yet
  for (size_t at = 0; at < bytes.size();) {
    if (static_cast<uint8_t>(bytes[at]) < 0x80) {
      ++at;
      continue;
    }
    const Utf8Unit unit = first_unit(bytes.substr(at));
    if (unit.kind != Utf8Kind::kCharacter) {
      text.append(bytes.substr(good, at - good)).append(kReplacementCharacter);
      good = at + unit.length;
    }
    at += unit.length;
  }
  text.append(bytes.substr(good));
}

bool is_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0D);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

std::string_view strip(std::string_view text, bool left, bool right) {
  while (left && !text.empty()) {
    const size_t length = first_unit(text).length;
    if (!is_space(code_point(text.substr(0, length)))) break;
    text.remove_prefix(length);
  }
  while (right && !text.empty()) {
    size_t start = text.size() - 1;
    while (start > 0 && (static_cast<uint8_t>(text[start]) & 0xC0) == 0x80) --start;
    if (!is_space(code_point(text.substr(start)))) break;
    text.remove_suffix(text.size() - start);
  }
  return text;
}

}  // namespace tenon::text
