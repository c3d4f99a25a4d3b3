#include "vocabulary.h"

#include <bit>
#include <functional>

namespace tenon::text {

void StringTable::reserve(size_t strings, size_t bytes) {
  ends_.reserve(strings);
  block_.reserve(bytes);
}

void StringTable::push_back(std::string_view text) {
  block_ += text;
  ends_.push_back(block_.size());
}

std::string_view StringTable::operator[](size_t i) const {
  const size_t begin = i == 0 ? 0 : ends_[i - 1];
  return std::string_view(block_).substr(begin, ends_[i] - begin);
}

Vocabulary::Vocabulary(std::span<const std::string> tokens) {
  size_t bytes = 0;
  for (const std::string& token : tokens) bytes += token.size();
  texts_.reserve(tokens.size(), bytes);
  slots_.assign(std::bit_ceil(tokens.size() * 2 + 2), Slot{0, -1});
  const size_t mask = slots_.size() - 1;
  for (const std::string& token : tokens) {
    const auto id = static_cast<int32_t>(texts_.size());
    texts_.push_back(token);
    if (token.empty()) continue;
    const auto hash = static_cast<uint32_t>(std::hash<std::string_view>{}(token));
    size_t at = hash & mask;
    while (slots_[at].id >= 0 && (slots_[at].hash != hash || text(slots_[at].id) != token)) at = (at + 1) & mask;
    if (slots_[at].id < 0) slots_[at] = {hash, id};
  }
}

std::optional<int32_t> Vocabulary::find(std::string_view token) const {
  if (slots_.empty() || token.empty()) return std::nullopt;
  const size_t mask = slots_.size() - 1;
  const auto hash = static_cast<uint32_t>(std::hash<std::string_view>{}(token));
  for (size_t at = hash & mask; slots_[at].id >= 0; at = (at + 1) & mask) {
    if (slots_[at].hash == hash && text(slots_[at].id) == token) return slots_[at].id;
  }
  return std::nullopt;
}

}  // namespace tenon::text
