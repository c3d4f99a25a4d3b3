// This times Llama-2-7B's four products of a layer for many rows, as record_gemm records them: what each op takes, what
// of the time is the product's, and what cuBLASLt's proposals take each.
//   gemm_benchmark [rows ...]     512 2048 8192 unless said otherwise
// Weights are random; what a GPU reaches also depends on the values, by way of its power limit.
#include <cstdio>
#include <cstdlib>
#include <random>

#include "cuda/recorder.h"
#include "tenon/cuda/gemm.h"
#include "tenon/cuda/gemm_tuning.h"

namespace {

using namespace tenon;
using test::CudaRecorder;

constexpr int kRepeats = 20;

struct Shape {
  const char* name;
  int64_t n, k;
  bool norm, add, silu;
};
constexpr Shape kShapes[] = {{"qkv", 3 * 4096, 4096, true, false, false},
                             {"o", 4096, 4096, false, true, false},
                             {"gate_up", 2 * 11008, 4096, true, false, true},
                             {"down", 4096, 11008, false, true, false}};

std::vector<float> random_floats(int64_t n) {
  std::mt19937 random(1);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& v : values) v = static_cast<float>(random()) * 0x1p-31f - 1.0f;
  return values;
}
// Returns the bytes of values between -0.02 and 0.02.
std::vector<uint16_t> random_weights(int64_t n, tenon_format format) {
  std::mt19937 random(2);
  std::vector<uint16_t> values(static_cast<size_t>(n));
  for (uint16_t& v : values) {
    const float value = 0.02f * (static_cast<float>(random()) * 0x1p-31f - 1.0f);
    v = format == TENON_F16 ? __half_as_ushort(__float2half_rn(value))
                            : __bfloat16_as_ushort(__float2bfloat16_rn(value));
  }
  return values;
}

double tflops(double flops, double us) {
  return flops / us * 1e-6;
}

// Prints every proposal of cuBLASLt for one product, in its order.
void print_proposals(CudaRecorder& host, tenon_tid w, const Shape& s, int64_t rows, tenon_format format,
                     tenon_format out) {
  namespace detail = cuda::detail;
  const tenon_tid x = host.input(format, {rows, s.k}, random_weights(rows * s.k, format));
  const tenon_tid y = host.output(out, {rows, s.n});
  const tenon_tid addend = s.add ? host.output(out, {rows, s.n}) : 0;
  const tenon_tid workspace = host.store(detail::kGemmWorkspaceBytes);
  detail::Product p{};
  p.rows = rows;
  p.n = s.n;
  p.k = s.k;
  p.x_stride = s.k;
  p.y_stride = s.n;
  p.addend_stride = s.add ? s.n : 0;
  p.in = detail::lt_type(format);
  p.out = detail::lt_type(out);
  detail::ProductPointers at{};
  at.x = host.data(x);
  at.w = host.data(w);
  at.y = host.data(y);
  at.addend = s.add ? static_cast<const float*>(host.data(addend)) : nullptr;
  at.workspace = host.data(workspace);
  cublasLtHandle_t handle = nullptr;
  TENON_CUBLASLT_CHECK(cublasLtCreate(&handle));
  detail::LtProduct product(handle, p, at);
  std::printf("    %s product alone, %lld rows, %s to %s; proposals in TFLOP/s:", s.name, static_cast<long long>(rows),
              tenon_format_name(format), tenon_format_name(out));
  for (const detail::Algorithm& algorithm : product.proposals(detail::product_key(p, at))) {
    const double us = 1e3 * detail::median_ms(product, algorithm, nullptr);
    std::printf(" %.0f", tflops(2.0 * static_cast<double>(rows * s.n * s.k), us));
  }
  std::printf("\n");
  TENON_CUBLASLT_CHECK(cublasLtDestroy(handle));
}

struct Totals {
  double flops = 0, product_us = 0, all_us = 0;
};

void measure(const Shape& s, int64_t rows, tenon_format format, Totals& totals) {
  CudaRecorder host(CudaRecorder::bounds(static_cast<uint32_t>(rows)));
  const tenon_tid x = host.input(TENON_F32, {rows, s.k}, random_floats(rows * s.k));
  const tenon_tid w = host.input(format, {s.n, s.k}, random_weights(s.n * s.k, format));
  const tenon_tid y = host.output(TENON_F32, {rows, s.silu ? s.n / 2 : s.n});
  auto norm = sdk::abi_struct<tenon_fop>(), tail = norm;
  norm.id = TENON_F_RMSNORM;
  norm.f[0] = 1e-5f;
  if (s.norm) norm.t[0] = host.input(TENON_F32, {s.k}, std::vector<float>(static_cast<size_t>(s.k), 1.0f));
  tail.id = s.silu ? TENON_F_SILU_MUL : TENON_F_ADD;
  if (s.add) tail.t[0] = host.input(TENON_F32, {rows, s.n}, random_floats(rows * s.n));
  const tenon_fop *norms[] = {&norm}, *tails[] = {&tail};
  auto pro = sdk::abi_struct<tenon_chain>(), epi = pro;
  pro.n = s.norm ? 1 : 0;
  pro.op = norms;
  epi.n = s.add || s.silu ? 1 : 0;
  epi.op = tails;
  sdk::Recorder recorder(host.recorder());
  cuda::record_gemm(recorder, {.x = x,
                               .w = w,
                               .y = y,
                               .row_live = 0,
                               .w_format = format,
                               .n = s.n,
                               .k = s.k,
                               .pro = &pro,
                               .epi = &epi,
                               .name = s.name});
  const double all_us = host.time_us(CudaRecorder::Mode::kOverlap, kRepeats);
  const double flops = 2.0 * static_cast<double>(rows * s.n * s.k);
  double product_us = 0;
  std::printf("  %-8s %8.1f us %4.0f TFLOP/s |", s.name, all_us, tflops(flops, all_us));
  for (const CudaRecorder::OpTime& op : host.op_times(kRepeats)) {
    std::printf(" %s %.1f", op.name.c_str(), op.us);
    if (op.name == s.name) product_us += op.us;
  }
  std::printf(" | product alone %.0f TFLOP/s, %.0f %% of the time\n", tflops(flops, product_us),
              100 * product_us / all_us);
  totals.flops += flops;
  totals.product_us += product_us;
  totals.all_us += all_us;

  print_proposals(host, w, s, rows, format, TENON_F32);
  if (!s.silu) return;
  if (format == TENON_F16) print_proposals(host, w, s, rows, format, TENON_F16);
  for (int64_t piece = rows / 2; piece >= 512; piece /= 2) print_proposals(host, w, s, piece, format, TENON_F32);
}

}  // namespace

int main(int argc, char** argv) {
  if (const std::string why = test::cuda_missing(); !why.empty()) {
    std::fprintf(stderr, "gemm_benchmark: %s\n", why.c_str());
    return 1;
  }
  std::vector<int64_t> all_rows = {512, 2048, 8192};
  if (argc > 1) all_rows.clear();
  for (int i = 1; i < argc; ++i) all_rows.push_back(std::atoll(argv[i]));
  cudaDeviceProp gpu{};
  TENON_CUDA_CHECK(cudaGetDeviceProperties(&gpu, 0));
  std::printf("%s, cuBLASLt %zu; a layer of Llama-2-7B; medians of %d; op times in us, in order of recording\n",
              gpu.name, cublasLtGetVersion(), kRepeats);
  for (const tenon_format format : {TENON_BF16, TENON_F16}) {
    for (const int64_t rows : all_rows) {
      std::printf("%lld rows, %s weights\n", static_cast<long long>(rows), tenon_format_name(format));
      Totals t;
      for (const Shape& s : kShapes) measure(s, rows, format, t);
      std::printf("  layer: products alone %.0f TFLOP/s, with all around them %.0f TFLOP/s (%.1f us)\n",
                  tflops(t.flops, t.product_us), tflops(t.flops, t.all_us), t.all_us);
    }
  }
}
