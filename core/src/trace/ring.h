// A ring lies between a recording thread and the drain.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "tenon/core/trace.h"

namespace tenon::trace {

enum class RecordKind : uint8_t { kSpan, kInstant, kCounter, kRequest };

// A record has 32 bytes. An event with more than one value is followed by records that are nothing but its further
// values, one with a text by records that are nothing but its length (2 bytes) and its bytes.
struct Record {
  uint64_t begin;  // ticks
  uint64_t end;    // spans: ticks; counters: the double's bits; requests: the id
  OriginId origin;
  RecordKind kind;
  RequestEvent request;
  uint8_t n_values;
  uint8_t text_records;
  uint64_t value;
};
inline constexpr size_t kValuesPerRecord = sizeof(Record) / sizeof(uint64_t);
static_assert(sizeof(Record) == 32);
static_assert((sizeof(uint16_t) + kMaxText + sizeof(Record) - 1) / sizeof(Record) <= UINT8_MAX);

// It has one producer and one consumer. Overflow refuses the new event, so that what was recorded stays whole.
class Ring {
 public:
  explicit Ring(uint32_t records)
      : slots_(std::make_unique<Record[]>(std::bit_ceil(std::max<size_t>(records, 8)))),
        mask_(std::bit_ceil(std::max<size_t>(records, 8)) - 1) {}

  // The producer calls these.
  void push(const Record& record, std::span<const uint64_t> further) noexcept {
    const uint64_t head = head_.load(std::memory_order_relaxed);
    const uint64_t needed = 1 + records_of(further);
    if (!has_room(head, needed)) return;
    put(head, record, further);
    head_.store(head + needed, std::memory_order_release);
  }
  // The text has at most kMaxText bytes.
  void push(Record record, std::span<const uint64_t> further, std::string_view text) noexcept {
    const auto length = static_cast<uint16_t>(text.size());
    record.text_records = static_cast<uint8_t>((sizeof length + text.size() + sizeof(Record) - 1) / sizeof(Record));
    const uint64_t head = head_.load(std::memory_order_relaxed);
    const uint64_t first = head + 1 + records_of(further);
    const uint64_t needed = first + record.text_records - head;
    if (!has_room(head, needed)) return;
    put(head, record, further);
    std::array<char, sizeof(Record)> block{};
    std::memcpy(block.data(), &length, sizeof length);
    for (size_t i = 0, used = sizeof length; i < record.text_records; ++i, used = 0) {
      const size_t part = std::min(text.size(), block.size() - used);
      std::memcpy(block.data() + used, text.data(), part);
      text.remove_prefix(part);
      std::memcpy(&slots_[(first + i) & mask_], block.data(), block.size());
    }
    head_.store(head + needed, std::memory_order_release);
  }

  // The consumer calls these.
  uint64_t head() const noexcept { return head_.load(std::memory_order_acquire); }
  uint64_t tail() const noexcept { return tail_.load(std::memory_order_relaxed); }
  const Record& at(uint64_t index) const noexcept { return slots_[index & mask_]; }
  // Reads the text of the records from `index` on.
  void read_text(uint64_t index, uint8_t records, std::string& text) const {
    text.clear();
    for (uint64_t i = 0; i < records; ++i) {
      text.append(reinterpret_cast<const char*>(&slots_[(index + i) & mask_]), sizeof(Record));
    }
    uint16_t length = 0;
    std::memcpy(&length, text.data(), sizeof length);
    text.resize(sizeof length + length);
    text.erase(0, sizeof length);
  }
  void release(uint64_t tail) noexcept { tail_.store(tail, std::memory_order_release); }
  uint64_t dropped() const noexcept { return dropped_.load(std::memory_order_relaxed); }

 private:
  static uint64_t records_of(std::span<const uint64_t> further) noexcept {
    return (further.size() + kValuesPerRecord - 1) / kValuesPerRecord;
  }

  // Counts the event as dropped if there is none.
  bool has_room(uint64_t head, uint64_t needed) noexcept {
    if (head + needed - known_tail_ <= mask_ + 1) return true;
    known_tail_ = tail_.load(std::memory_order_acquire);
    if (head + needed - known_tail_ <= mask_ + 1) return true;
    dropped_.store(dropped_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    return false;
  }

  void put(uint64_t head, const Record& record, std::span<const uint64_t> further) noexcept {
    slots_[head & mask_] = record;
    for (uint64_t i = 1; i <= records_of(further); ++i) {
      std::array<uint64_t, kValuesPerRecord> block{};
      const auto part = further.subspan((i - 1) * kValuesPerRecord);
      for (size_t j = 0; j < std::min(part.size(), kValuesPerRecord); ++j) block[j] = part[j];
      slots_[(head + i) & mask_] = std::bit_cast<Record>(block);
    }
  }

  std::unique_ptr<Record[]> slots_;
  uint64_t mask_;
  alignas(64) std::atomic<uint64_t> head_{0};
  uint64_t known_tail_ = 0;  // the producer's copy saves it the consumer's cache line until the ring seems full
  std::atomic<uint64_t> dropped_{0};
  alignas(64) std::atomic<uint64_t> tail_{0};
};

}  // namespace tenon::trace
