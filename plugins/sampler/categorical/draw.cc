// The draw over a run of candidates, compiled once for each instruction set: two registers of candidates at a time meet
// the best of each lane so far, and the lanes meet at the end. A tie goes to the lower token. The naive twin is the
// draw in tests/unit/engine/engine_test.cc.
#include "draw.h"

#include "draw_body.h"

namespace tenon::categorical {
namespace {

constexpr uint32_t kLanes = sdk::cpu::kWordLanes, kGroup = 2 * kLanes;  // a group is what one round takes
constexpr float kOut = -__builtin_inff();

struct Lanes {
  F32 score = kOut + F32{};
  U32 id = ~U32{};

  void take(F32 logit, U32 word, U32 token) {
    const F32 s = logit > kOut ? logit + noise_of(word) : kOut + F32{};  // infinite logits become no NaN
    const I32 better = (s > score) | ((s == score) & (token < id));
    score = better ? s : score;
    id = better ? token : id;
  }
};

// Takes a group of neighbouring tokens: four of them share a block of random words.
void take_run(const DrawInput& in, uint32_t first, const float* logit, Lanes& best) {
  const RandomWords w = philox(in, sdk::cpu::counting_from<U64>(first / 4));
  const U64 low = (w.word[0] & 0xffffffffu) | w.word[1] << 32, high = (w.word[2] & 0xffffffffu) | w.word[3] << 32;
  const U32 token = sdk::cpu::counting_from<U32>(first);
  best.take(sdk::cpu::load_lanes<F32>(logit), __builtin_bit_cast(U32, sdk::cpu::interleave<0>(low, high)), token);
  best.take(sdk::cpu::load_lanes<F32>(logit + kLanes), __builtin_bit_cast(U32, sdk::cpu::interleave<1>(low, high)),
            token + kLanes);
}

// Takes a group of any tokens: each has a block of its own and takes one word of it.
void take_ids(const DrawInput& in, const int32_t* id, const float* logit, Lanes& best) {
  for (uint32_t half = 0; half < kGroup; half += kLanes) {
    const U32 token = sdk::cpu::load_lanes<U32>(id + half);
    U64 word[2];
#pragma GCC unroll 2
    for (uint32_t odd = 0; odd < 2; ++odd) {
      const U64 own = __builtin_bit_cast(U64, token) >> 32 * odd & 0xffffffffu;
      const RandomWords w = philox(in, own >> 2);
      const U64 low = (own & 1) != 0 ? w.word[1] : w.word[0], high = (own & 1) != 0 ? w.word[3] : w.word[2];
      word[odd] = (own & 2) != 0 ? high : low;
    }
    best.take(sdk::cpu::load_lanes<F32>(logit + half), __builtin_bit_cast(U32, (word[0] & 0xffffffffu) | word[1] << 32),
              token);
  }
}

}  // namespace

Draw TENON_ISA::draw(const DrawInput& in) {
  Lanes best;
  float logit[kGroup];
  int32_t id[kGroup] = {};
  for (uint32_t begin = 0; begin < in.n; begin += kGroup) {
    const bool whole = in.n - begin >= kGroup;
    for (uint32_t i = 0; !whole && i < kGroup; ++i) {
      const bool there = begin + i < in.n;
      logit[i] = there ? in.logit[begin + i] : kOut;
      id[i] = there && in.id != nullptr ? in.id[begin + i] : 0;
    }
    const float* from = whole ? in.logit + begin : logit;
    if (in.id == nullptr) {
      take_run(in, in.first + begin, from, best);
    } else {
      take_ids(in, whole ? in.id + begin : id, from, best);
    }
  }
  Draw winner = {kOut, -1};
  for (uint32_t i = 0; i < kLanes; ++i) {
    const auto token = static_cast<int32_t>(best.id[i]);
    const bool tie = best.score[i] == winner.score && best.id[i] < static_cast<uint32_t>(winner.id);
    if (best.score[i] > kOut && (best.score[i] > winner.score || tie)) winner = {best.score[i], token};
  }
  return winner;
}

}  // namespace tenon::categorical
