// This measures attention.flash on one thread. The argument of a decode is the context, of a prefill the rows; heads
// are as in SmolLM2-135M (9 of 3, 64) and Llama-3-8B (32 of 8, 128).
#include <benchmark/benchmark.h>

#include <bit>
#include <cmath>
#include <vector>

#include "support/component.h"
#include "support/op_runner.h"
#include "tenon/sdk/cpu/kv_reader.h"
#include "tenon/sdk/recorder.h"

namespace tenon::test {
namespace {

struct Heads {
  uint32_t q, kv, dim;
};

// Times `rows` rows at the end of `context` tokens in one page.
void attend(benchmark::State& state, Heads heads, uint32_t context, uint32_t rows, tenon_format codec) {
  const Component attention("attention", "flash");
  OpRunner host(OpRunner::bounds({.rows = rows, .kv_len = context}));
  const tenon_kv_format format = sdk::plain_kv_format(codec);
  const tenon_tensor plane = sdk::tensor(codec, {1, heads.kv, context, heads.dim});
  auto view = sdk::abi_struct<tenon_kv_view>();
  view.format = &format;
  view.heads = heads.kv;
  view.k_dim = view.v_dim = heads.dim;
  view.page_cells = std::bit_ceil(context);
  view.pos_rule = TENON_POS_LINEAR;
  view.columns = 1;
  view.place = host.recorder()->step(host.recorder()->ctx, TENON_STEP_PLACE);
  view.k = host.strided_input(plane, nullptr);
  view.v = host.strided_input(plane, nullptr);
  for (const auto stride : {&view.k_stride, &view.v_stride}) {
    (*stride)[0] = plane.stride[0], (*stride)[1] = plane.stride[2], (*stride)[2] = plane.stride[1];
  }
  view.pages = host.input(TENON_I32, {1, 1}, nullptr);
  auto layer = sdk::abi_struct<tenon_attn>();
  layer.q_heads = heads.q;
  layer.kv_heads = heads.kv;
  layer.k_dim = layer.v_dim = heads.dim;
  layer.scale = 1 / std::sqrt(static_cast<float>(heads.dim));
  auto call = sdk::abi_struct<tenon_attn_call>();
  call.kv = &view;
  call.q = host.input(TENON_F32, {rows, int64_t{heads.q} * heads.dim}, nullptr);
  call.out = host.output(TENON_F32, {rows, int64_t{heads.q} * heads.dim});
  host.step_i32(TENON_STEP_KV_LEN)[0] = static_cast<int32_t>(context - rows);
  for (uint32_t i = 0; i < rows; ++i) {
    host.step_i32(TENON_STEP_POS)[i] = host.step_i32(TENON_STEP_PLACE)[i] = static_cast<int32_t>(context - rows + i);
    host.step_i32(TENON_STEP_PARENT)[i] = static_cast<int32_t>(i) - 1;
  }
  const auto& table = attention.table<tenon_attention>();
  if (table.record(attention.self(), &layer, &call, host.recorder(), nullptr) != TENON_OK) {
    state.SkipWithError("not recorded");
    return;
  }
  for (auto _ : state) benchmark::DoNotOptimize(host.run_unwatched());
  const double seen = rows * (context - (rows - 1) / 2.0);
  const double cache = 2.0 * heads.kv * heads.dim * context * tenon_format_block(codec).bytes;
  const auto rate = [](double amount) {
    return benchmark::Counter(amount, benchmark::Counter::kIsIterationInvariantRate);
  };
  state.counters["flop/s"] = rate(4.0 * heads.q * heads.dim * seen);
  state.counters["cache B/s"] = rate(cache);
}

void decode(benchmark::State& state, Heads heads, tenon_format codec) {
  attend(state, heads, static_cast<uint32_t>(state.range(0)), 1, codec);
}
void prefill(benchmark::State& state, Heads heads, tenon_format codec) {
  attend(state, heads, static_cast<uint32_t>(state.range(0)), static_cast<uint32_t>(state.range(0)), codec);
}

constexpr Heads kSmall{9, 3, 64}, kLarge{32, 8, 128};

BENCHMARK_CAPTURE(decode, small_f16, kSmall, TENON_F16)->Arg(512)->Arg(8192);
BENCHMARK_CAPTURE(decode, large_f16, kLarge, TENON_F16)->Arg(512)->Arg(8192);
BENCHMARK_CAPTURE(decode, large_f32, kLarge, TENON_F32)->Arg(512)->Arg(8192);
BENCHMARK_CAPTURE(prefill, small_f16, kSmall, TENON_F16)->Arg(64)->Arg(512);
BENCHMARK_CAPTURE(prefill, large_f16, kLarge, TENON_F16)->Arg(64)->Arg(512);

}  // namespace
}  // namespace tenon::test
