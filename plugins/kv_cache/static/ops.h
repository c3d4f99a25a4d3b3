// The ops of the cache: what a step appends, and a copy of its sequences in another plain format.
#pragma once

#include <cstdint>

#include "tenon/sdk/cpu/kv_reader.h"
#include "tenon/sdk/recorder.h"

namespace tenon::static_cache {

inline constexpr uint32_t kAppendRows = 4;      // of a chunk
inline constexpr uint32_t kDequantTokens = 64;  // of a chunk

struct AppendArgs {
  sdk::cpu::KvLayout kv;
  int64_t k_row, v_row;  // bytes
  uint32_t capacity, simd;
};
enum AppendOperand {
  kAppendK,
  kAppendV,
  kAppendKeys,
  kAppendValues,
  kAppendPages,
  kAppendLive,
  kAppendPos,
  kAppendSlot
};
// A chunk is kAppendRows rows.
void append(const AppendArgs& a, const sdk::Part& part);

struct DequantArgs {
  sdk::cpu::KvLayout from, to;
  uint32_t tokens, blocks;  // that the copy has room for; in chunks
  uint32_t simd, reserved;
};
enum DequantOperand { kFromK, kFromV, kToK, kToV, kPages, kLive, kSeqSlot, kSeqRow, kKvLen };
// A chunk is kDequantTokens tokens of one head of one sequence. Thread scratch: a row, f32.
void dequant(const DequantArgs& a, const sdk::Part& part);

}  // namespace tenon::static_cache
