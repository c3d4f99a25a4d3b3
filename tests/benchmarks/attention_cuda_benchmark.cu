// This times attention on a GPU: a decode step by context in a captured graph of layers that each have a cache of
// their own and append to it, the same of many sequences, and prefill by length. It prints every figure that tuning
// needs, in well under a minute. An argument, decode, codes, sequences, prefill or prefill_codes, leaves out the
// others; a number may follow sequences. `codes` times int8, fp8 and int4 beside fp16; long steps over them are timed
// without rope and append, which are the cache's.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "../cuda/attention_plugin.h"
#include "../cuda/recorder.h"
#include "tenon/abi/attention.h"
#include "tenon/sdk/cpu/kv_reader.h"

namespace {

using namespace tenon;
using namespace tenon::test;
using Mode = CudaRecorder::Mode;

constexpr uint32_t kDim = 128;

// Returns random values of a standard deviation of about 0.6; power, and so speed, depends on them.
template <class T>
__global__ void fill(T* to, size_t n, float factor = 1) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < n; i += size_t{gridDim.x} * blockDim.x) {
    uint64_t x = (i + 1) * 0x9e3779b97f4a7c15;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9;
    x ^= x >> 32;
    if constexpr (std::is_same_v<T, uint8_t>) {
      to[i] = static_cast<uint8_t>(x >> 40);
    } else {
      to[i] = T(static_cast<float>(static_cast<int32_t>(x)) * 0x1p-31f * factor);
    }
  }
}

struct Shape {
  uint32_t q_heads, kv_heads, rows, context;  // each sequence has these; context: tokens before the step
  tenon_format codec;
  uint32_t layers;
  uint32_t kv_len = 0;  // it is the program's, 0: context + rows
  uint32_t seqs = 1;
};

// This has the layers of a step over caches like kv_cache.static's.
class Step {
 public:
  Step(const CudaComponent& attention, const Shape& s) : host_(bounds(s)) {
    const int64_t columns = int64_t{s.q_heads + 2 * s.kv_heads} * kDim;
    const uint32_t tokens = kv_len(s), rows = s.rows * s.seqs;
    const tenon_tid x = host_.input(sdk::tensor(TENON_F32, {rows, columns}), nullptr);
    fill<<<1024, 256>>>(static_cast<float*>(host_.data(x)), rows * static_cast<size_t>(columns));
    tenon_tensor q = sdk::tensor(TENON_F32, {rows, int64_t{s.q_heads} * kDim});
    q.stride[0] = columns * 4;
    const tenon_tid rope = host_.input(sdk::tensor(TENON_F32, {tokens, kDim}), nullptr);
    std::vector<int32_t> page(s.seqs);
    std::iota(page.begin(), page.end(), 0);
    const tenon_tid pages = host_.input<int32_t>(TENON_I32, {s.seqs, 1}, page);
    host_.set_live(rows, s.seqs, rows);
    for (uint32_t i = 0; i < rows; ++i) {
      host_.step_i32(TENON_STEP_POS)[i] = static_cast<int32_t>(s.context + i % s.rows);
      host_.step_i32(TENON_STEP_SLOT)[i] = static_cast<int32_t>(i / s.rows);
    }
    for (uint32_t i = 0; i < s.seqs; ++i) {
      host_.step_i32(TENON_STEP_KV_LEN)[i] = static_cast<int32_t>(s.context);
      host_.step_i32(TENON_STEP_SEQ_SLOT)[i] = static_cast<int32_t>(i);
      host_.step_i32(TENON_STEP_SEQ_ROW)[i + 1] = static_cast<int32_t>((i + 1) * s.rows);
    }
    fill<<<1024, 256>>>(static_cast<float*>(host_.data(rope)), size_t{tokens} * kDim);

    tenon_fop ops[2] = {sdk::abi_struct<tenon_fop>(), sdk::abi_struct<tenon_fop>()};
    ops[0].id = TENON_F_ROPE;
    ops[0].t[0] = rope;
    ops[0].i[0] = kDim;
    ops[1].id = TENON_F_KV_APPEND;
    const tenon_fop* pointers[] = {&ops[0], &ops[1]};
    auto chain = sdk::abi_struct<tenon_chain>();
    const bool scaled = sdk::is_scaled_codec(s.codec);
    chain.n = scaled && s.rows > 16 ? 0 : 2;
    chain.op = pointers;
    auto a = sdk::abi_struct<tenon_attn>();
    a.q_heads = s.q_heads;
    a.kv_heads = s.kv_heads;
    a.k_dim = a.v_dim = kDim;
    a.scale = 0.08838835f;
    a.pro = &chain;
    const auto& table = attention.table<tenon_attention>();
    char text[256] = "";
    tenon_reason why{text, sizeof(text)};
    auto claim = sdk::abi_struct<tenon_claim>();
    const tenon_kv_format format = sdk::kv_format(s.codec, scaled ? TENON_F16 : TENON_FORMAT_NONE, true);
    const tenon_bounds b = bounds(s);
    const auto check = [&](tenon_status status) {
      if (status != TENON_OK) throw std::runtime_error(text);
    };
    auto prototype = sdk::abi_struct<tenon_kv_view>();
    prototype.format = &format;
    prototype.heads = s.kv_heads;
    prototype.k_dim = prototype.v_dim = kDim;
    prototype.page_cells = std::bit_ceil(tokens);
    prototype.columns = 1;
    prototype.pos_rule = TENON_POS_LINEAR;
    check(table.claim(attention.self(), &a, &prototype, &b, &claim, &why));
    if (claim.pro != chain.n) throw std::runtime_error("attention claims something else than rope and append");
    for (uint32_t i = 0; i < s.layers; ++i) {
      tenon_kv_view view = prototype;
      view.pages = pages;
      view.place = host_.recorder()->step(host_.recorder()->ctx, TENON_STEP_PLACE);
      const int64_t stored = sdk::kv_row_stored(s.codec, kDim);
      const tenon_tensor plane = sdk::tensor(s.codec, {s.seqs, s.kv_heads, tokens, stored});
      view.k = host_.input(plane, nullptr);
      view.v = host_.input(plane, nullptr);
      for (const tenon_tid t : {view.k, view.v}) {
        const size_t n = size_t{s.seqs} * s.kv_heads * tokens * static_cast<size_t>(stored);
        if (scaled) {
          fill<<<1024, 256>>>(static_cast<uint8_t*>(host_.data(t)), n);
        } else if (s.codec == TENON_F16) {
          fill<<<1024, 256>>>(static_cast<__half*>(host_.data(t)), n);
        } else {
          fill<<<1024, 256>>>(static_cast<__nv_bfloat16*>(host_.data(t)), n);
        }
      }
      for (int64_t(*stride)[3] : {&view.k_stride, &view.v_stride}) {
        (*stride)[0] = plane.stride[0], (*stride)[1] = plane.stride[2], (*stride)[2] = plane.stride[1];
      }
      if (scaled) {
        const tenon_tensor scales = sdk::tensor(TENON_F16, {s.seqs, s.kv_heads, (tokens + 7) / 8 * 8});
        for (tenon_tid* t : {&view.k_scale, &view.v_scale}) {
          *t = host_.input(scales, nullptr);
          fill<<<1024, 256>>>(static_cast<__half*>(host_.data(*t)), size_t{s.seqs} * s.kv_heads * scales.dim[2], 0.01f);
        }
        for (int64_t(*stride)[3] : {&view.ks_stride, &view.vs_stride}) {
          (*stride)[0] = scales.stride[0], (*stride)[1] = scales.stride[2], (*stride)[2] = scales.stride[1];
        }
      }
      auto call = sdk::abi_struct<tenon_attn_call>();
      call.q = host_.slice(x, q, 0);
      call.out = host_.output(TENON_F32, {rows, int64_t{s.q_heads} * kDim});
      call.kv = &view;
      call.pro = &chain;
      call.claim = &claim;
      check(table.record(attention.self(), &a, &call, host_.recorder(), &why));
    }
  }
  CudaRecorder& host() { return host_; }

 private:
  static uint32_t kv_len(const Shape& s) { return s.kv_len != 0 ? s.kv_len : s.context + s.rows; }
  static tenon_bounds bounds(const Shape& s) {
    tenon_bounds b = CudaRecorder::bounds(s.rows * s.seqs, s.seqs, kv_len(s));
    b.rows_per_seq = s.rows;
    return b;
  }
  CudaRecorder host_;
};

void decode(const CudaComponent& attention, uint32_t q_heads, uint32_t kv_heads, uint32_t rows, bool long_program) {
  std::printf("decode, %u query heads, %u KV heads, %u row%s, fp16%s\n", q_heads, kv_heads, rows, rows == 1 ? "" : "s",
              long_program ? ", program for 131072 tokens" : "");
  for (const uint32_t context : {16u, 200u, 300u, 400u, 500u, 700u, 1000u, 4096u, 8192u, 32768u, 131071u}) {
    const double bytes = static_cast<double>(context + rows) * kv_heads * kDim * 4;
    const auto layers = static_cast<uint32_t>(
        std::min(64.0, std::max(2.0, 3e9 / (long_program ? 131072.0 * kv_heads * kDim * 4 : bytes))));
    Step step(attention, {.q_heads = q_heads,
                          .kv_heads = kv_heads,
                          .rows = rows,
                          .context = context,
                          .codec = TENON_F16,
                          .layers = layers,
                          .kv_len = long_program ? 131072u : 0u});
    const double us = step.host().time_us(Mode::kGraph, 20) / layers;
    const double list = step.host().time_us(Mode::kList, 5) / layers;
    std::printf("  context %6u: %8.2f us a layer (%2u layers), %6.0f GB/s; without overlap and graph %8.2f us\n",
                context, us, layers, bytes / us * 1e-3, list);
  }
}

// Measures one row over codes, at long contexts.
void decode_codes(const CudaComponent& attention, tenon_format codec) {
  for (const uint32_t context : {200u, 1000u, 8192u, 32768u, 131007u, 131071u}) {
    const double bytes = (context + 1) * 8.0 * 2 * (kDim * sdk::kv_element_bytes(codec) + (codec == TENON_F16 ? 0 : 2));
    const auto layers = static_cast<uint32_t>(std::clamp(3e9 / bytes, 2.0, 64.0));
    Step step(attention,
              {.q_heads = 32, .kv_heads = 8, .rows = 1, .context = context, .codec = codec, .layers = layers});
    const double us = step.host().time_us(Mode::kGraph, 20) / layers;
    std::printf("  %s, context %6u: %8.2f us a layer (%2u layers), %6.0f GB/s\n", sdk::kv_codec_name(codec), context,
                us, layers, bytes / us * 1e-3);
  }
}

// Measures sequences of one row each, with 32 query heads and 8 KV heads.
void sequences(const CudaComponent& attention, uint32_t kv_len, uint32_t only) {
  std::printf("decode of many sequences, 32 query heads, 8 KV heads, fp16, program for %u tokens\n", kv_len);
  for (const uint32_t seqs : {1u, 4u, 8u, 16u, 32u, 64u, 128u, 256u}) {
    for (const uint32_t context : {160u, 256u, 370u, 600u, 760u, 1000u}) {
      if (context >= kv_len || seqs * kv_len > 128 * 1024 || (only != 0 && only != seqs)) continue;
      const double bytes = static_cast<double>(context + 1) * seqs * 8 * kDim * 4;
      const auto layers = static_cast<uint32_t>(std::clamp(3e9 / bytes, 4.0, 32.0));
      Step step(attention, {.q_heads = 32,
                            .kv_heads = 8,
                            .rows = 1,
                            .context = context,
                            .codec = TENON_F16,
                            .layers = layers,
                            .kv_len = kv_len,
                            .seqs = seqs});
      const double us = step.host().time_us(Mode::kGraph, 20) / layers;
      std::printf("  %3u sequences, context %4u: %8.2f us a layer (%2u layers), %6.0f GB/s\n", seqs, context, us,
                  layers, bytes / us * 1e-3);
    }
  }
}

// Measures prompts, and the last rows of a long one.
void prefill(const CudaComponent& attention, uint32_t kv_heads, tenon_format codec) {
  struct Part {
    uint32_t rows, context;
  };
  std::printf("prefill, 32 query heads, %u KV heads, %s, causal\n", kv_heads, sdk::kv_codec_name(codec));
  constexpr Part kParts[] = {{512, 0}, {2048, 0}, {8192, 0}, {32768, 0}, {4096, 126976}, {8192, 122880}};
  for (const auto [rows, context] : kParts) {
    Step step(attention,
              {.q_heads = 32, .kv_heads = kv_heads, .rows = rows, .context = context, .codec = codec, .layers = 1});
    const double flops = 4.0 * rows * (context + rows / 2.0) * kDim * 32;
    std::printf("  %5u rows after %6u:", rows, context);
    std::map<std::string, double> us;
    double all = 0;
    for (const auto& op : step.host().op_times(rows + context > 10000 ? 3 : 10)) {
      us[op.name] += op.us;
      all += op.us;
    }
    for (const auto& [name, own] : us) std::printf(" %s %.1f us,", name.c_str(), own);
    std::printf(" attention %.0f TFLOP/s, together %.0f\n", flops / us["attention"] * 1e-6, flops / all * 1e-6);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (const std::string why = cuda_missing(); !why.empty()) {
    std::printf("%s\n", why.c_str());
    return 0;
  }
  try {
    const CudaComponent attention("attention", "flash");
    cudaDeviceProp properties{};
    TENON_CUDA_CHECK(cudaGetDeviceProperties(&properties, 0));
    std::printf("%s, %d multiprocessors\n", properties.name, properties.multiProcessorCount);
    const auto wanted = [&](const char* part) { return argc < 2 || std::strcmp(argv[1], part) == 0; };
    if (wanted("decode")) {
      decode(attention, 32, 32, 1, false);
      decode(attention, 32, 8, 1, false);
      decode(attention, 32, 8, 5, false);
      decode(attention, 32, 8, 1, true);
    }
    if (wanted("codes")) {
      std::printf("decode over codes, 32 query heads, 8 KV heads\n");
      for (const tenon_format codec : {TENON_F16, TENON_I8, TENON_F8E4M3, TENON_U8}) decode_codes(attention, codec);
    }
    if (wanted("prefill_codes")) {
      for (const tenon_format codec : {TENON_F16, TENON_I8, TENON_F8E4M3, TENON_U8}) prefill(attention, 8, codec);
    }
    if (wanted("sequences")) {
      const auto only = static_cast<uint32_t>(argc > 2 ? std::atoi(argv[2]) : 0);
      sequences(attention, 384, only);
      sequences(attention, 2048, only);
    }
    if (wanted("prefill")) {
      prefill(attention, 32, TENON_F16);
      prefill(attention, 32, TENON_BF16);
      prefill(attention, 8, TENON_BF16);
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  return 0;
}
