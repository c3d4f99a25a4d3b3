// Linear layers of every scheme on one thread. gemv: one row, stored bytes read a second; the small shape lies in the
// caches, the large one (more than 32 MB a call for most formats) mostly in memory. gemm: many rows, FLOP a second.
// Shares are of what one core does at most (peaks.h): in the caches a gemv may pass the memory's.
#include <benchmark/benchmark.h>

#include <cstring>
#include <random>
#include <stdexcept>

#include "peaks.h"
#include "support/component.h"
#include "support/op_runner.h"
#include "support/plain_matrices.h"
#include "support/weight_rows.h"
#include "tenon/sdk/error.h"

namespace tenon::test {
namespace {

struct Shape {
  uint32_t rows;
  int64_t n, k;
};

// One site of one matrix, loaded and recorded.
class Layer {
 public:
  Layer(const std::string& scheme, const std::vector<Setting>& settings, tenon_format source, const Shape& shape)
      : component_("quantization", scheme, settings),
        table_(component_.table<tenon_quantization>()),
        host_(OpRunner::bounds({.rows = shape.rows})) {
    std::mt19937 random(1);
    const std::vector<uint8_t> weights =
        random_rows(source, static_cast<uint32_t>(shape.n), static_cast<uint32_t>(shape.k), 0.1F, random);
    const PlainMatrices matrix(std::span(&source, 1), std::span(&shape.n, 1), shape.k);
    auto linear = sdk::abi_struct<tenon_linear>();
    linear.path = "bench";
    linear.description = "";
    linear.n_mats = 1;
    linear.x_format = linear.y_format = TENON_F32;
    linear.out_dim = &shape.n;
    linear.matrix = matrix.get();
    linear.in_dim = shape.k;
    linear.product_wanted = 1;
    check(table_.bind(component_.self(), &linear, nullptr, 0, &site_, &why_));
    auto footprint = sdk::abi_struct<tenon_footprint>();
    check(table_.footprint(component_.self(), site_, &footprint, &why_));
    bytes_ = footprint.store_bytes[0];
    const tenon_tid store = host_.store(bytes_);
    auto src = sdk::abi_struct<tenon_rows>();
    const tenon_slice slice{weights.data(), weights.size()};
    src.rows = static_cast<uint64_t>(shape.n);
    src.tensor = &slice;
    std::vector<float> scratch(footprint.load_bytes / sizeof(float) + 1);
    void* to = host_.data(store);
    check(table_.load(component_.self(), site_, &src, &to, scratch.data(), nullptr, &why_));
    auto call = sdk::abi_struct<tenon_linear_call>();
    auto claim = sdk::abi_struct<tenon_claim>();
    call.x = host_.input(TENON_F32, {int64_t{shape.rows}, shape.k},
                         std::vector<float>(shape.rows * static_cast<size_t>(shape.k), 0.5F));
    call.y = host_.output(TENON_F32, {int64_t{shape.rows}, shape.n});
    call.store = &store;
    call.claim = &claim;
    check(table_.record(component_.self(), site_, &call, host_.recorder(), &why_));
  }
  ~Layer() { table_.unbind(component_.self(), site_); }
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;

  void run() { (void)host_.run_unwatched(); }
  uint64_t bytes() const { return bytes_; }

 private:
  void check(tenon_status status) const {
    if (status != TENON_OK) throw std::runtime_error(text_);
  }
  Component component_;
  const tenon_quantization& table_;
  OpRunner host_;
  char text_[256] = "";
  tenon_reason why_{text_, sizeof(text_)};
  void* site_ = nullptr;
  uint64_t bytes_ = 0;
};

void measure(benchmark::State& state, const std::string& scheme, const std::vector<Setting>& settings,
             tenon_format source, const Shape& shape) {
  Layer layer(scheme, settings, source, shape);
  for (auto _ : state) layer.run();
  const auto runs = static_cast<double>(state.iterations());
  const double flops = 2.0 * shape.rows * static_cast<double>(shape.n) * static_cast<double>(shape.k);
  const auto rate = [](double amount) { return benchmark::Counter(amount, benchmark::Counter::kIsRate); };
  const double bytes = runs * static_cast<double>(layer.bytes());
  state.counters["bytes"] = rate(bytes);
  state.counters["flops"] = rate(runs * flops);
  if (shape.rows == 1) {
    state.counters["of_read_peak"] = rate(bytes / read_peak());
  } else {
    state.counters["of_f32_peak"] = rate(runs * flops / f32_peak());
    if (int8_peak() > 0) state.counters["of_int8_peak"] = rate(runs * flops / int8_peak());
  }
}

void add(const std::string& label, const std::string& scheme, const std::vector<Setting>& settings,
         tenon_format source) {
  for (const Shape& shape :
       {Shape{1, 1536, 512}, Shape{1, 16384, 4096}, Shape{128, 1536, 512}, Shape{128, 512, 4096}}) {
    const std::string name = (shape.rows == 1 ? "gemv/" : "gemm/") + label + "/" + std::to_string(shape.n) + "x" +
                             std::to_string(shape.k) + "/rows:" + std::to_string(shape.rows);
    std::vector<Setting> kept(settings);
    benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
      if (kept.empty()) return measure(state, scheme, {}, source, shape);
      measure(state, scheme, {kept[0]}, source, shape);
    });
  }
}

const bool kRegistered = [] {
  for (const tenon_format f : kFileFormats)
    add(std::string("gguf_") + tenon_format_name(f), "gguf", {{"activations", std::string("f32")}}, f);
  for (const tenon_format f : {TENON_Q4_0, TENON_Q4_1, TENON_Q5_0, TENON_Q8_0, TENON_Q4_K, TENON_Q6_K}) {
    add(std::string("gguf_int8_") + tenon_format_name(f), "gguf", {{"activations", std::string("int8")}}, f);
  }
  add("gguf_bf16_bf16", "gguf", {{"activations", std::string("auto")}}, TENON_BF16);
  for (const char* scheme : {"int8wo", "int8dq", "llm_int8"}) add(scheme, scheme, {}, TENON_F16);
  add("int4wo_64", "int4wo", {{"group_size", int64_t{64}}}, TENON_F16);
  for (const char* scheme : {"nf4", "fp4", "fp8", "uintx", "fp6", "sparse24"}) add(scheme, scheme, {}, TENON_F16);
  return true;
}();

}  // namespace
}  // namespace tenon::test
