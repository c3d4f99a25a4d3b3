// These are the texts of templates. Each byte of them is known to come from the template or from the user, however
// often it was cut, joined and rewritten: only the template's own bytes may name special tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::jinja {

enum class Origin : uint8_t { kTemplate, kUser };

class Text {
 public:
  // This is a stretch of bytes of one origin. It ends where the next one begins.
  struct Run {
    size_t end;
    Origin origin;
  };

  Text() = default;
  Text(std::string_view bytes, Origin origin) { append(bytes, origin); }

  const std::string& bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  std::span<const Run> runs() const { return runs_; }
  Origin origin_at(size_t byte) const;

  void append(std::string_view bytes, Origin origin);
  void append(const Text& text) { append_part(text, 0, text.size()); }
  // Appends the bytes [begin, end) of a text, which is not this one.
  void append_part(const Text& text, size_t begin, size_t end);
  // Returns the bytes [begin, end). It is as safe as this one.
  Text part(size_t begin, size_t end) const;

  // This says if the filter `safe` made it. Joining it by + with another text escapes that one for HTML, as in Jinja.
  bool safe() const { return safe_; }
  void set_safe(bool safe) { safe_ = safe; }

 private:
  std::string bytes_;
  std::vector<Run> runs_;
  bool safe_ = false;
};

// Characters are code points; a byte that belongs to no well-formed one counts as a character.
// Returns how many bytes the character at `byte` has.
size_t character_length(std::string_view bytes, size_t byte);
size_t count_characters(std::string_view bytes);
// Returns the byte at which character number `index` begins; the size of the text if it has no such character.
size_t character_start(std::string_view bytes, size_t index);
// Returns the code point of a character; U+FFFD for one that is not well-formed.
char32_t code_point_at(std::string_view bytes, size_t byte);

// Returns what str.isspace() of Python says of the character.
bool is_space(char32_t c);
// Returns the bytes that are left without white space at the ends that are asked for.
struct Range {
  size_t begin, end;
};
Range stripped(std::string_view bytes, bool left, bool right);

}  // namespace tenon::jinja
