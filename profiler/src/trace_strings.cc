#include "tenon/profiler/trace_strings.h"

#include <algorithm>
#include <functional>

namespace tenon::profiler {
namespace {

constexpr size_t kChunk = 1U << 18U;
constexpr size_t kMaxText = 1U << 16U;

}  // namespace

TraceStrings::TraceStrings() : slots_(1024, kNone) {
  intern({});
}

size_t TraceStrings::slot_of(std::string_view text) const noexcept {
  const size_t mask = slots_.size() - 1;
  size_t slot = std::hash<std::string_view>{}(text)&mask;
  while (slots_[slot] != kNone && texts_[slots_[slot]] != text) slot = (slot + 1) & mask;
  return slot;
}

uint32_t TraceStrings::find(std::string_view text) const noexcept {
  return slots_[slot_of(text.substr(0, kMaxText))];
}

void TraceStrings::grow() {
  slots_.assign(slots_.size() * 2, kNone);
  for (uint32_t id = 0; id < size(); ++id) slots_[slot_of(texts_[id])] = id;
}

size_t TraceStrings::bytes() const noexcept {
  return chunks_.size() * kChunk + texts_.size() * sizeof(std::string_view) + slots_.capacity() * sizeof(uint32_t);
}

uint32_t TraceStrings::intern(std::string_view text) {
  text = text.substr(0, kMaxText);
  const size_t slot = slot_of(text);
  if (slots_[slot] != kNone) return slots_[slot];
  if (bytes_ + text.size() > max_bytes_ || size() == kNone) {
    ++refused_;
    return 0;
  }
  if (chunks_.empty() || used_ + text.size() > kChunk) {
    chunks_.push_back(std::make_unique_for_overwrite<char[]>(kChunk));
    used_ = 0;
  }
  char* to = chunks_.back().get() + used_;
  std::ranges::copy(text, to);
  used_ += text.size();
  bytes_ += text.size();
  const uint32_t id = size();
  texts_.emplace_back(to, text.size());
  slots_[slot] = id;
  if (texts_.size() * 2 > slots_.size()) grow();
  return id;
}

}  // namespace tenon::profiler
