#include "peaks.h"

#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "bandwidth.h"

namespace tenon::test {
namespace {

constexpr uint32_t kChains = 16;  // they hide each other's latency
constexpr uint64_t kSteps = 4'000'000;
volatile float sink;

[[gnu::target("avx512f")]] void fma_512() {
  __m512 sum[kChains];
  for (uint32_t i = 0; i < kChains; ++i) sum[i] = _mm512_set1_ps(static_cast<float>(i));
  __m512 a = _mm512_set1_ps(1e-9F);
  for (uint64_t step = 0; step < kSteps; ++step) {
    asm volatile("" : "+v"(a));
#pragma GCC unroll 16
    for (uint32_t i = 0; i < kChains; ++i) sum[i] = _mm512_fmadd_ps(sum[i], a, a);
  }
  for (uint32_t i = 1; i < kChains; ++i) sum[0] = _mm512_add_ps(sum[0], sum[i]);
  sink = _mm512_cvtss_f32(sum[0]);
}

[[gnu::target("avx2,fma")]] void fma_256() {
  __m256 sum[kChains - 2];
  for (__m256& s : sum) s = _mm256_set1_ps(1);
  __m256 a = _mm256_set1_ps(1e-9F);
  for (uint64_t step = 0; step < kSteps; ++step) {
    asm volatile("" : "+x"(a));
#pragma GCC unroll 16
    for (__m256& s : sum) s = _mm256_fmadd_ps(s, a, a);
  }
  for (const __m256& s : sum) sum[0] = _mm256_add_ps(sum[0], s);
  sink = _mm256_cvtss_f32(sum[0]);
}

[[gnu::target("avx512f,avx512vnni")]] void dot_512() {
  __m512i sum[kChains];
  for (__m512i& s : sum) s = _mm512_setzero_si512();
  __m512i a = _mm512_set1_epi8(3);
  for (uint64_t step = 0; step < kSteps; ++step) {
    asm volatile("" : "+v"(a));
#pragma GCC unroll 16
    for (uint32_t i = 0; i < kChains; ++i) sum[i] = _mm512_dpbusd_epi32(sum[i], a, a);
  }
  for (uint32_t i = 1; i < kChains; ++i) sum[0] = _mm512_add_epi32(sum[0], sum[i]);
  sink = static_cast<float>(_mm512_cvtsi512_si32(sum[0]));
}

constexpr uint32_t kProductCycles = 3;  // on Intel's and AMD's processors; some of them do not wait for additions

void multiply_in_a_chain() {
  uint64_t product = 3;
  for (uint64_t step = 0; step < kSteps; ++step) asm volatile("imul %0, %0" : "+r"(product));
}

// This is the best of three.
double a_second(void (*run)(), double operations) {
  double best = 0;
  for (int i = 0; i < 3; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    run();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    best = std::max(best, operations / took.count());
  }
  return best;
}

}  // namespace

double read_peak() {
  static const double peak = app::read_bandwidth(1).bytes_per_second;
  return peak;
}

double cycle_rate() {
  static const double rate = a_second(&multiply_in_a_chain, double{kProductCycles} * kSteps);
  return rate;
}

double f32_peak() {
  static const double peak = __builtin_cpu_supports("avx512f") ? a_second(&fma_512, 2.0 * 16 * kChains * kSteps)
                                                               : a_second(&fma_256, 2.0 * 8 * (kChains - 2) * kSteps);
  return peak;
}

double int8_peak() {
  static const double peak = __builtin_cpu_supports("avx512vnni") ? a_second(&dot_512, 2.0 * 64 * kChains * kSteps) : 0;
  return peak;
}

}  // namespace tenon::test
