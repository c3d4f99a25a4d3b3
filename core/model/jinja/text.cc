#include "text.h"

#include <algorithm>

#include "../tokenizer/utf8.h"

namespace tenon::jinja {

Origin Text::origin_at(size_t byte) const {
  const auto run =
      std::upper_bound(runs_.begin(), runs_.end(), byte, [](size_t at, const Run& r) { return at < r.end; });
  return run == runs_.end() ? Origin::kTemplate : run->origin;
}

void Text::append(std::string_view bytes, Origin origin) {
  if (bytes.empty()) return;
  bytes_ += bytes;
  if (!runs_.empty() && runs_.back().origin == origin) {
    runs_.back().end = bytes_.size();
  } else {
    runs_.push_back({bytes_.size(), origin});
  }
}

void Text::append_part(const Text& text, size_t begin, size_t end) {
  const std::string_view bytes = text.bytes_;
  auto run =
      std::upper_bound(text.runs_.begin(), text.runs_.end(), begin, [](size_t at, const Run& r) { return at < r.end; });
  for (; begin < end; ++run) {
    const size_t stop = std::min(end, run->end);
    append(bytes.substr(begin, stop - begin), run->origin);
    begin = stop;
  }
}

Text Text::part(size_t begin, size_t end) const {
  Text result;
  result.append_part(*this, begin, end);
  result.safe_ = safe_;
  return result;
}

size_t character_length(std::string_view bytes, size_t byte) {
  if (static_cast<unsigned char>(bytes[byte]) < 0x80) return 1;
  const text::Utf8Unit unit = text::first_unit(bytes.substr(byte));
  return unit.kind == text::Utf8Kind::kCharacter ? unit.length : 1;
}

size_t count_characters(std::string_view bytes) {
  size_t count = 0;
  for (size_t byte = 0; byte < bytes.size(); byte += character_length(bytes, byte)) ++count;
  return count;
}

size_t character_start(std::string_view bytes, size_t index) {
  size_t byte = 0;
  while (index-- > 0 && byte < bytes.size()) byte += character_length(bytes, byte);
  return byte;
}

char32_t code_point_at(std::string_view bytes, size_t byte) {
  if (static_cast<unsigned char>(bytes[byte]) < 0x80) return static_cast<unsigned char>(bytes[byte]);
  const text::Utf8Unit unit = text::first_unit(bytes.substr(byte));
  return unit.kind == text::Utf8Kind::kCharacter ? text::code_point(bytes.substr(byte, unit.length)) : U'\uFFFD';
}

bool is_space(char32_t c) {
  return (c >= 0x1C && c <= 0x1F) || text::is_space(c);
}

Range stripped(std::string_view bytes, bool left, bool right) {
  size_t begin = 0, end = bytes.size();
  while (left && begin < end && is_space(code_point_at(bytes, begin))) begin += character_length(bytes, begin);
  while (right && end > begin) {
    size_t last = end - 1;
    while (last > begin && (static_cast<unsigned char>(bytes[last]) & 0xC0U) == 0x80U) --last;
    if (!is_space(code_point_at(bytes, last)) || last + character_length(bytes, last) != end) break;
    end = last;
  }
  return {begin, end};
}

}  // namespace tenon::jinja
