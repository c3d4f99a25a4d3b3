// A view with a tail of newest tokens (TENON_KV_RECENT) is read in two halves: first the tail, as a layer with
// that window would be attended to, then over the rest, which joins the two. Each half is an op like any other, so
// that whatever reads a view reads a tail.
//
//   attention::record_halves(a, call, r, [&](const tenon_attn& a, const tenon_attn_call& c, const Half& half) { ... });
//
// For a head of a row the tail leaves m and l: m is the mean of the values that it saw, l the logarithm (to base 2) of
// the sum of their weights. With the sum s of the rest's weights w and their values v, the result is (sum w v + 2^l m)
// / (s + 2^l), all of it divided by the greatest weight.
//
// An example has a tail of 32 tokens and a row at position 99. The tail's half sees
// positions 68 to 99, the other one 0 to 67.
#pragma once

#include <algorithm>

#include "tenon/abi/attention.h"
#include "tenon/sdk/attention_sinks.h"
#include "tenon/sdk/recorder.h"

namespace tenon::attention {

enum Joining : uint32_t {
  kAlone,   // The op has all that a row sees.
  kLeaves,  // It writes the logarithms of its sums beside its result.
  kJoins    // It adds to a result what it sees itself.
};

struct Half {
  uint32_t joining = kAlone;
  uint32_t hidden = 0;  // A row at position n sees positions up to n - hidden.
  tenon_tid sums = 0;   // f32 (rows, query heads): logarithms to base 2
};

template <class Record>
void record_halves(const tenon_attn& a, const tenon_attn_call& call, sdk::Recorder& r, const Record& record) {
  if ((call.kv->flags & TENON_KV_RECENT) == 0) return record(a, call, Half{});
  const uint32_t recent = call.kv->recent;
  const tenon_tid sums = r.temp(sdk::tensor(TENON_F32, {r.bounds().rows, a.q_heads}));
  tenon_attn newest = a;
  newest.window = a.window != 0 ? std::min(a.window, recent) : recent;
  tenon_attn_call of_newest = call;
  of_newest.kv = call.kv->recent_view;
  record(newest, of_newest, Half{.joining = kLeaves, .sums = sums});
  // Learned sinks are in the sums of the first half, and nothing else is claimed where keys are stored after rope.
  const auto none = sdk::abi_struct<tenon_chain>();
  tenon_attn_call of_rest = call;
  of_rest.pro = &none;
  record(a, of_rest, Half{.joining = kJoins, .hidden = recent, .sums = sums});
}

}  // namespace tenon::attention
