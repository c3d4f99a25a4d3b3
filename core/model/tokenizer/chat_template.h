// Chat templates that are known by what they say, spelled in any way that renders the same.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tenon::text {

// A template as transformers compiles it (Jinja with trim_blocks and lstrip_blocks), without what changes nothing:
// white space between the words of an expression, quotes and escapes of texts, comments, tags that trim.
class ChatTemplate {
 public:
  explicit ChatTemplate(std::string_view source);

  // Takes the text constant between `before` and `after`, the first that there is, out of the template; "" if there is
  // none. before and after: in the canonical form, where a text stands between kOpen and kClose.
  std::string take(std::string_view before, std::string_view after);
  // 64 bits of what is left (FNV-1a).
  uint64_t fingerprint() const;

  static constexpr char kOpen = '\x02', kClose = '\x03';

 private:
  void add_tag(std::string_view inside);

  std::string canonical_;
};

}  // namespace tenon::text
