// Here are the methods of Python's str, over bytes of UTF-8: places are bytes, and characters are counted only where
// Python counts them. Every part of a result keeps its origin. Work that may be long is charged to the run. Characters
// whose other case is more than one character are refused: Unicode has about a hundred of them, and no template changes
// their case.
#include "string_ops.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>

#include "../tokenizer/utf8.h"
#include "failure.h"

namespace tenon::jinja {
namespace {

// Comparing so many bytes with each other takes about as long as a step.
constexpr size_t kBytesOfAStep = 64;

bool has_special_case(char32_t c) {
  constexpr char32_t kSingles[] = {0xDF, 0x130, 0x149, 0x1F0, 0x390, 0x3A3, 0x3B0, 0x587};
  return std::find(std::begin(kSingles), std::end(kSingles), c) != std::end(kSingles) || (c >= 0x1E96 && c <= 0x1E9E) ||
         (c >= 0x1F50 && c <= 0x1FFC) || (c >= 0xFB00 && c <= 0xFB17);
}

char32_t other_case(char32_t c, bool upper) {
  if (c < 0x80) {
    const bool letter = upper ? c >= U'a' && c <= U'z' : c >= U'A' && c <= U'Z';
    return letter ? c ^ 0x20U : c;
  }
  if (has_special_case(c)) {
    std::string character;
    text::append_utf8(character, c);
    throw Failure("changing the case of \"" + character + "\" is not supported");
  }
  const auto code = static_cast<utf8proc_int32_t>(c);
  return static_cast<char32_t>(upper ? utf8proc_toupper(code) : utf8proc_tolower(code));
}

// Appends the character of `text` at `byte` in the case, and returns its length.
size_t append_case(Text& out, const Text& text, size_t byte, bool upper) {
  const size_t length = character_length(text.bytes(), byte);
  const char32_t c = code_point_at(text.bytes(), byte), changed = other_case(c, upper);
  if (c == changed) {
    out.append_part(text, byte, byte + length);
  } else {
    std::string character;
    text::append_utf8(character, changed);
    out.append(character, text.origin_at(byte));
  }
  return length;
}

bool ends_line(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

// Returns the ranges of bytes of the separators, where the text is cut.
std::vector<Range> separators(const Text& text, const Text* separator) {
  const std::string& bytes = text.bytes();
  std::vector<Range> found;
  if (separator != nullptr) {
    if (separator->empty()) throw Failure("empty separator");
    for (size_t at = 0; (at = find_first(bytes, separator->bytes(), at)) != std::string::npos; at += separator->size())
      found.push_back({at, at + separator->size()});
    return found;
  }
  for (size_t byte = 0; byte < bytes.size();) {
    const size_t next = byte + character_length(bytes, byte);
    if (is_space(code_point_at(bytes, byte))) {
      if (!found.empty() && found.back().end == byte) {
        found.back().end = next;
      } else {
        found.push_back({byte, next});
      }
    }
    byte = next;
  }
  return found;
}

// Separators may overlap: from the right they are others.
std::vector<Range> separators_from_right(Run& run, const Text& text, const Text& separator, int64_t most) {
  if (separator.empty()) throw Failure("empty separator");
  std::vector<Range> found;
  size_t end = text.size();
  while (end >= separator.size() && (most < 0 || found.size() < static_cast<uint64_t>(most))) {
    const size_t at = find_last(run, std::string_view(text.bytes()).substr(0, end), separator.bytes());
    if (at == std::string::npos) break;
    found.push_back({at, at + separator.size()});
    end = at;
  }
  std::reverse(found.begin(), found.end());
  return found;
}

}  // namespace

size_t find_first(std::string_view bytes, std::string_view wanted, size_t from) {
  if (from > bytes.size()) return std::string_view::npos;
  const void* found = memmem(bytes.data() + from, bytes.size() - from, wanted.data(), wanted.size());
  return found == nullptr ? std::string_view::npos
                          : static_cast<size_t>(static_cast<const char*>(found) - bytes.data());
}

size_t find_last(Run& run, std::string_view bytes, std::string_view wanted) {
  run.charge((1 + bytes.size() / kBytesOfAStep) * (1 + wanted.size() / kBytesOfAStep));
  return bytes.rfind(wanted);
}

Text with_case(const Text& text, Case to) {
  Text out;
  for (size_t byte = 0; byte < text.size();) {
    byte += append_case(out, text, byte, to == Case::kUpper || (to == Case::kCapitalized && byte == 0));
  }
  out.set_safe(text.safe());
  return out;
}

Text titled(const Text& text, bool (*begins_word)(char32_t before)) {
  Text out;
  bool begins = true;
  for (size_t byte = 0; byte < text.size();) {
    const char32_t c = code_point_at(text.bytes(), byte);
    byte += append_case(out, text, byte, begins);
    begins = begins_word(c);
  }
  out.set_safe(text.safe());
  return out;
}

bool is_cased(char32_t c) {
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL || category == UTF8PROC_CATEGORY_LT;
}

Text strip(Run& run, const Text& text, bool left, bool right, const Text* characters) {
  const std::string& bytes = text.bytes();
  if (characters == nullptr) {
    const Range rest = stripped(bytes, left, right);
    return text.part(rest.begin, rest.end);
  }
  const auto strips = [&](size_t byte) {
    const std::string_view character = std::string_view(bytes).substr(byte, character_length(bytes, byte));
    const std::string& set = characters->bytes();
    run.charge(characters->size() / kBytesOfAStep);
    for (size_t at = 0; at < set.size(); at += character_length(set, at)) {
      if (std::string_view(set).substr(at, character_length(set, at)) == character) return true;
    }
    return false;
  };
  size_t begin = 0, end = bytes.size();
  while (left && begin < end && strips(begin)) begin += character_length(bytes, begin);
  while (right && end > begin) {
    size_t last = end - 1;
    while (last > begin && (static_cast<unsigned char>(bytes[last]) & 0xC0U) == 0x80U) --last;
    if (last + character_length(bytes, last) != end || !strips(last)) break;
    end = last;
  }
  return text.part(begin, end);
}

std::vector<Text> split(Run& run, const Text& text, const Text* separator, int64_t most, bool from_right) {
  run.charge_bytes(text.size());
  std::vector<Range> cuts = from_right && separator != nullptr ? separators_from_right(run, text, *separator, most)
                                                               : separators(text, separator);
  constexpr uint64_t kStepsOfAPart = 4;  // A part takes memory of its own.
  run.charge(kStepsOfAPart * cuts.size());
  const auto too_many = [&] { return most >= 0 && cuts.size() > static_cast<uint64_t>(most); };
  size_t begin = 0, end = text.size();
  const auto take_start = [&] {
    if (cuts.empty() || cuts.front().begin > 0) return;
    begin = cuts.front().end;
    cuts.erase(cuts.begin());
  };
  const auto take_end = [&] {
    if (cuts.empty() || cuts.back().end < end) return;
    end = cuts.back().begin;
    cuts.pop_back();
  };
  if (separator == nullptr) {
    // White space at the ends separates nothing, but stays in the part that is not cut any more.
    from_right ? take_end() : take_start();
    if (!too_many()) from_right ? take_start() : take_end();
    if (begin >= end) return {};
  }
  if (too_many()) {
    const auto kept = cuts.begin() + most;
    from_right ? cuts.erase(cuts.begin(), cuts.end() - most) : cuts.erase(kept, cuts.end());
  }
  std::vector<Text> parts;
  for (const Range& cut : cuts) {
    parts.push_back(text.part(begin, cut.begin));
    begin = cut.end;
  }
  parts.push_back(text.part(begin, end));
  return parts;
}

std::vector<Text> split_lines(Run& run, const Text& text, bool keep_ends) {
  run.charge(text.size());
  const std::string& bytes = text.bytes();
  std::vector<Text> lines;
  size_t begin = 0;
  for (size_t byte = 0; byte < bytes.size();) {
    const size_t length = character_length(bytes, byte);
    size_t next = byte + length;
    if (ends_line(code_point_at(bytes, byte))) {
      if (bytes[byte] == '\r' && next < bytes.size() && bytes[next] == '\n') ++next;
      lines.push_back(text.part(begin, keep_ends ? next : byte));
      begin = next;
    }
    byte = next;
  }
  if (begin < bytes.size()) lines.push_back(text.part(begin, bytes.size()));
  return lines;
}

std::vector<Text> partition(Run& run, const Text& text, const Text& separator, bool from_right) {
  if (separator.empty()) throw Failure("empty separator");
  const size_t at =
      from_right ? find_last(run, text.bytes(), separator.bytes()) : find_first(text.bytes(), separator.bytes());
  if (at == std::string::npos) {
    return from_right ? std::vector<Text>{Text(), Text(), text} : std::vector<Text>{text, Text(), Text()};
  }
  const size_t after = at + separator.size();
  return {text.part(0, at), text.part(at, after), text.part(after, text.size())};
}

Text replace(Run& run, const Text& text, const Text& old, const Text& with, int64_t most) {
  const std::string& bytes = text.bytes();
  run.charge_bytes(bytes.size());
  Text out;
  size_t plain = 0, at = 0;
  for (int64_t made = 0; (most < 0 || made < most) && at <= bytes.size(); ++made) {
    if (!old.empty()) at = find_first(bytes, old.bytes(), at);
    if (at > bytes.size()) break;
    run.charge_bytes(1 + with.size());
    out.append_part(text, plain, at);
    out.append(with);
    plain = at + old.size();
    // An empty text is found before each character and at the end.
    at = !old.empty() ? plain : at < bytes.size() ? at + character_length(bytes, at) : bytes.size() + 1;
  }
  out.append_part(text, plain, bytes.size());
  out.set_safe(text.safe());
  return out;
}

Text join(Run& run, const Text& separator, const std::vector<const Text*>& texts) {
  Text out;
  for (size_t i = 0; i < texts.size(); ++i) {
    run.charge_bytes(texts[i]->size() + separator.size());
    if (i > 0) out.append(separator);
    out.append(*texts[i]);
  }
  return out;
}

Text pad(Run& run, const Text& text, uint64_t left, uint64_t right, std::string_view fill) {
  run.charge_bytes(std::min<uint64_t>(left, UINT32_MAX) + std::min<uint64_t>(right, UINT32_MAX));
  Text out;
  for (uint64_t i = 0; i < left; ++i) out.append(fill, Origin::kTemplate);
  out.append(text);
  for (uint64_t i = 0; i < right; ++i) out.append(fill, Origin::kTemplate);
  out.set_safe(text.safe());
  return out;
}

bool is_all(const Text& text, Class of) {
  bool cased = false;
  for (size_t byte = 0; byte < text.size(); byte += character_length(text.bytes(), byte)) {
    const char32_t c = code_point_at(text.bytes(), byte);
    const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
    const bool letter = category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
    const bool digit = category == UTF8PROC_CATEGORY_ND;
    const bool lower = category == UTF8PROC_CATEGORY_LL;
    const bool upper = category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LT;
    if ((of == Class::kDigits || of == Class::kLettersAndDigits) &&
        (category == UTF8PROC_CATEGORY_NL || category == UTF8PROC_CATEGORY_NO)) {
      throw Failure("isdigit() and isalnum() of numbers that are no decimal digits are not supported");
    }
    if ((of == Class::kLetters && !letter) || (of == Class::kDigits && !digit) || (of == Class::kAscii && c >= 0x80) ||
        (of == Class::kLettersAndDigits && !letter && !digit) || (of == Class::kSpaces && !is_space(c)) ||
        (of == Class::kLower && upper) || (of == Class::kUpper && lower)) {
      return false;
    }
    cased = cased || lower || upper;
  }
  if (of == Class::kLower || of == Class::kUpper) return cased;
  return of == Class::kAscii || !text.empty();
}

}  // namespace tenon::jinja
