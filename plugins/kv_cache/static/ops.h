// The ops of the cache: what a step appends, and a copy of its sequences in another plain format. emit_*() and the
// copies are each device's own: cpu.cc, cuda.cu.
#pragma once

#include <cstdint>
#include <span>

#include "tenon/sdk/cpu/kv_reader.h"
#include "tenon/sdk/recorder.h"

namespace tenon::static_cache {

inline constexpr uint32_t kAppendRows = 4;      // of a chunk
inline constexpr uint32_t kDequantTokens = 64;  // of a chunk

struct AppendArgs {
  sdk::cpu::KvLayout kv;
  int64_t k_row, v_row;  // bytes
  uint32_t capacity, simd;
  uint32_t rows, reserved = 0;
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
void emit_append(sdk::Recorder& r, std::span<const tenon_operand> operands, const tenon_cost& cost,
                 const AppendArgs& args);
// On the CPU. A chunk is kAppendRows rows.
void append(const AppendArgs& a, const sdk::Part& part);

struct DequantArgs {
  sdk::cpu::KvLayout from, to;
  uint32_t tokens, seqs;  // that the copy has room for; of the step
  uint32_t simd, reserved = 0;
};
enum DequantOperand { kFromK, kFromV, kToK, kToV, kPages, kLive, kSeqSlot, kSeqRow, kKvLen };
inline uint32_t dequant_blocks(const DequantArgs& a) {
  return (a.tokens + kDequantTokens - 1) / kDequantTokens;
}
void emit_dequant(sdk::Recorder& r, std::span<const tenon_operand> operands, const tenon_cost& cost,
                  const DequantArgs& args);
// On the CPU. A chunk is kDequantTokens tokens of one head of one sequence. Thread scratch: a row, f32.
void dequant(const DequantArgs& a, const sdk::Part& part);

// Pieces of `bytes`, to_pitch and from_pitch apart; either side may be host memory.
struct Copy {
  void* to;
  const void* from;
  uint64_t bytes, pieces = 1, to_pitch = 0, from_pitch = 0;
};
void copy(const Copy& c, void* queue);  // enqueued; done when it returns if the queue is NULL
void finish(void* queue);               // waits until what was enqueued is done

}  // namespace tenon::static_cache
