#include <algorithm>

#include "tenon/core/tokenizer.h"
#include "utf8.h"

namespace tenon {

StreamDetokenizer::StreamDetokenizer(const Tokenizer& tokenizer, const DecodeOptions& options)
    : tokenizer_(tokenizer),
      options_(options),
      strip_space_(tokenizer.info().strips_first_space && !options.continues) {}

std::string StreamDetokenizer::push(int32_t id) {
  const std::span<const int32_t> shown = options_.shown;
  const bool shows = options_.show_control || std::find(shown.begin(), shown.end(), id) != shown.end();
  if (tokenizer_.is_control(id) && !shows) return {};
  std::string_view bytes = tokenizer_.bytes(id);
  if (bytes.empty()) return {};
  if (strip_space_ && bytes[0] == ' ') bytes.remove_prefix(1);
  strip_space_ = false;
  waiting_ += bytes;

  size_t complete = 0;
  while (complete < waiting_.size()) {
    const text::Utf8Unit unit = text::first_unit(std::string_view(waiting_).substr(complete));
    if (unit.kind == text::Utf8Kind::kTruncated) break;
    complete += unit.length;
  }
  std::string out;
  text::append_well_formed(out, std::string_view(waiting_).substr(0, complete));
  waiting_.erase(0, complete);
  return out;
}

std::string StreamDetokenizer::finish() {
  std::string out;
  text::append_well_formed(out, waiting_);
  waiting_.clear();
  strip_space_ = tokenizer_.info().strips_first_space && !options_.continues;
  return out;
}

std::string decode(const Tokenizer& tokenizer, std::span<const int32_t> ids, const DecodeOptions& options) {
  StreamDetokenizer detokenizer(tokenizer, options);
  std::string out;
  for (const int32_t id : ids) out += detokenizer.push(id);
  return out + detokenizer.finish();
}

}  // namespace tenon
