// The ring between a recording thread and the drain.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "tenon/core/trace.h"

namespace tenon::trace {

enum class RecordKind : uint16_t { kSpan, kInstant, kCounter, kRequest };

// 32 bytes. An event with more than one value is followed by records that are nothing but its further values.
struct Record {
  uint64_t begin;  // ticks
  uint64_t end;    // spans: ticks; counters: the double's bits; requests: the id
  SiteId site;
  RecordKind kind;
  RequestPhase phase;
  uint8_t n_values;
  uint64_t value;
};
inline constexpr size_t kValuesPerRecord = sizeof(Record) / sizeof(uint64_t);
static_assert(sizeof(Record) == 32);

// Single producer, single consumer. Overflow refuses the new event, so that what was recorded stays whole.
class Ring {
 public:
  explicit Ring(uint32_t records)
      : slots_(std::make_unique<Record[]>(std::bit_ceil(std::max<size_t>(records, 8)))),
        mask_(std::bit_ceil(std::max<size_t>(records, 8)) - 1) {}

  // Producer.
  void push(const Record& record, std::span<const uint64_t> further) noexcept {
    const uint64_t head = head_.load(std::memory_order_relaxed);
    const uint64_t needed = 1 + (further.size() + kValuesPerRecord - 1) / kValuesPerRecord;
    if (head + needed - known_tail_ > mask_ + 1) {
      known_tail_ = tail_.load(std::memory_order_acquire);
      if (head + needed - known_tail_ > mask_ + 1) {
        dropped_.store(dropped_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
        return;
      }
    }
    slots_[head & mask_] = record;
    for (uint64_t i = 1; i < needed; ++i) {
      std::array<uint64_t, kValuesPerRecord> block{};
      const auto part = further.subspan((i - 1) * kValuesPerRecord);
      for (size_t j = 0; j < std::min(part.size(), kValuesPerRecord); ++j) block[j] = part[j];
      slots_[(head + i) & mask_] = std::bit_cast<Record>(block);
    }
    head_.store(head + needed, std::memory_order_release);
  }

  // Consumer.
  uint64_t head() const noexcept { return head_.load(std::memory_order_acquire); }
  uint64_t tail() const noexcept { return tail_.load(std::memory_order_relaxed); }
  const Record& at(uint64_t index) const noexcept { return slots_[index & mask_]; }
  void release(uint64_t tail) noexcept { tail_.store(tail, std::memory_order_release); }
  uint64_t dropped() const noexcept { return dropped_.load(std::memory_order_relaxed); }

 private:
  std::unique_ptr<Record[]> slots_;
  uint64_t mask_;
  alignas(64) std::atomic<uint64_t> head_{0};
  uint64_t known_tail_ = 0;  // producer's copy: the consumer's cache line is touched only when the ring seems full
  std::atomic<uint64_t> dropped_{0};
  alignas(64) std::atomic<uint64_t> tail_{0};
};

}  // namespace tenon::trace
