#include <algorithm>
#include <bit>

#include "clock.h"
#include "ring.h"
#include "tenon/core/trace.h"

namespace tenon::trace {
namespace {

Record make_record(OriginId origin, RecordKind kind, uint64_t begin, uint64_t end,
                   std::span<const uint64_t> values) noexcept {
  return {begin,
          end,
          origin,
          kind,
          RequestEvent::kArrived,
          static_cast<uint8_t>(values.size()),
          0,
          values.empty() ? 0 : values.front()};
}

// Cuts a text to kMaxText bytes at most, with no character in pieces.
std::string_view cut(std::string_view text) noexcept {
  if (text.size() <= kMaxText) return text;
  size_t size = kMaxText;
  while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xC0U) == 0x80U) --size;
  return text.substr(0, size);
}

void push(Ring& ring, const Record& record, std::span<const uint64_t> values, std::string_view text) noexcept {
  const auto further = values.empty() ? values : values.subspan(1);
  if (text.empty()) {
    ring.push(record, further);
  } else {
    ring.push(record, further, cut(text));
  }
}

}  // namespace

Track::Track() noexcept : gate_(Gate::kClosed) {}
Track::~Track() = default;

Track::Track(const TickClock& clock, uint32_t ring_records, Gate gate)
    : gate_(gate), clock_(&clock), ring_(std::make_unique<Ring>(ring_records)) {}

uint64_t Track::now() noexcept {
  // A reading may overtake an earlier one inside the core, and a thread may move to another core.
  last_tick_ = std::max(last_tick_, clock_->ticks());
  return last_tick_;
}

void Track::span(OriginId origin, uint64_t begin, uint64_t end, std::span<const uint64_t> values,
                 std::string_view text) noexcept {
  if (!ring_) return;
  values = values.first(std::min(values.size(), kMaxValues));
  const Record record = make_record(origin, RecordKind::kSpan, begin, end, values);
  push(*ring_, record, values, text);
}

void Track::instant(OriginId origin, std::span<const uint64_t> values) noexcept {
  if (!recording()) return;
  values = values.first(std::min(values.size(), kMaxValues));
  ring_->push(make_record(origin, RecordKind::kInstant, now(), 0, values), values.empty() ? values : values.subspan(1));
}

void Track::counter(OriginId origin, double value) noexcept {
  if (!recording()) return;
  ring_->push(make_record(origin, RecordKind::kCounter, now(), std::bit_cast<uint64_t>(value), {}), {});
}

void Track::request(RequestEvent event, OriginId origin, uint64_t id, std::span<const uint64_t> values,
                    std::string_view text) noexcept {
  if (gate_.load(std::memory_order_relaxed) == Gate::kClosed) return;
  values = values.first(std::min(values.size(), kMaxValues));
  Record record = make_record(origin, RecordKind::kRequest, now(), id, values);
  record.request = event;
  push(*ring_, record, values, text);
}

}  // namespace tenon::trace
