// Finds added tokens in a text: the leftmost, and of those the longest. Names are kept sorted, so that the names that
// go on as the text does are one range, which every further byte narrows.
#include "added_tokens.h"

#include <utf8proc.h>

#include <algorithm>

#include "utf8.h"

namespace tenon::text {
namespace {

// A word has letters, marks, decimal digits, connectors and joiners: Unicode's regular expressions (UTS #18, annex C).
bool is_word(char32_t c) {
  if (c == 0x200C || c == 0x200D) return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_PC:
      return true;
    // Other_Alphabetic has circled and squared letters.
    case UTF8PROC_CATEGORY_SO:
      return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
             (c >= 0x1F170 && c <= 0x1F189);
    default:
      return false;
  }
}

bool word_before(std::string_view text, size_t at) {
  if (at == 0) return false;
  size_t start = at - 1;
  while (start > 0 && (static_cast<uint8_t>(text[start]) & 0xC0) == 0x80) --start;
  return is_word(code_point(text.substr(start, at - start)));
}

bool word_after(std::string_view text, size_t at) {
  if (at == text.size()) return false;
  return is_word(code_point(text.substr(at, first_unit(text.substr(at)).length)));
}

bool inside(size_t begin, size_t end, std::span<const TextRange> ranges) {
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), begin,
                                      [](size_t value, const TextRange& range) { return value < range.begin; });
  return after != ranges.begin() && std::prev(after)->end >= end;
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::erase_if(tokens_, [](const AddedToken& token) { return token.name.empty(); });
  std::stable_sort(tokens_.begin(), tokens_.end(),
                   [](const AddedToken& a, const AddedToken& b) { return a.name < b.name; });
  for (const AddedToken& token : tokens_) first_.set(static_cast<uint8_t>(token.name[0]));
}

// Narrows the sorted names to those that go on as the text does, one byte at a time.
const AddedToken* AddedTokenMatcher::longest_at(std::string_view text, size_t at,
                                                std::span<const TextRange> special_ranges) const {
  const AddedToken* longest = nullptr;
  auto low = tokens_.begin();
  auto high = tokens_.end();
  for (size_t depth = 0; low != high && at + depth < text.size(); ++depth) {
    const auto byte = static_cast<uint8_t>(text[at + depth]);
    const auto order = [depth](const AddedToken& token) {
      return token.name.size() > depth ? static_cast<int>(static_cast<uint8_t>(token.name[depth])) : -1;
    };
    low = std::partition_point(low, high, [&](const AddedToken& token) { return order(token) < byte; });
    high = std::partition_point(low, high, [&](const AddedToken& token) { return order(token) == byte; });
    if (low != high && low->name.size() == depth + 1 && (!low->special || inside(at, at + depth + 1, special_ranges))) {
      longest = &*low;
    }
  }
  return longest;
}

std::vector<TextOrToken> AddedTokenMatcher::split(std::string_view text,
                                                  std::span<const TextRange> special_ranges) const {
  std::vector<TextOrToken> parts;
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    const AddedToken* token =
        first_.test(static_cast<uint8_t>(text[at])) ? longest_at(text, at, special_ranges) : nullptr;
    if (token == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at;
    size_t end = at + token->name.size();
    at = end;
    if (token->single_word && (word_before(text, begin) || word_after(text, end))) continue;
    if (token->lstrip) begin = done + strip(text.substr(done, begin - done), false, true).size();
    if (token->rstrip) end = text.size() - strip(text.substr(end), true, false).size();
    if (begin > done) parts.push_back({done, begin, -1});
    parts.push_back({begin, end, token->id});
    at = done = end;
  }
  if (done < text.size()) parts.push_back({done, text.size(), -1});
  return parts;
}

}  // namespace tenon::text
