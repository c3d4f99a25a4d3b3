// This times linear layers of every scheme on one thread. gemv: one row, stored bytes read a second; the small
// shape lies in caches, the large one (over 32 MB a call for most formats) mostly in memory. gemm: many rows, FLOP
// a second. Shares are of what one core does at most (peaks.h): in the caches a gemv may pass the memory's.
// Schemes that multiply x in 16 bits by dot products of bytes have a second row, NAME_f32, which is what they do
// on a machine without these. gemv_memory: copies of a matrix of a model of 1B parameters, more than caches hold,
// by one thread and by two, each with its own.
#include <benchmark/benchmark.h>

#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <stdexcept>

#include "conformance/published_forms.h"
#include "peaks.h"
#include "support/byte_dots.h"
#include "support/component.h"
#include "support/op_runner.h"
#include "support/weight_rows.h"
#include "tenon/sdk/error.h"

namespace tenon::test {
namespace {

using conformance::FileMatrix;

constexpr uint64_t kMemory = 160 << 20;
constexpr int kMemoryRuns = 3;

struct Shape {
  uint32_t rows;
  int64_t n, k;
  uint64_t memory = 0;  // bytes that copies of the matrix are to have, each multiplied in turn; 0: there is one
};

// A file has this of the matrix: its tensors, and the description of how they are stored.
struct Stored {
  FileMatrix matrix;
  std::string description;
};
using Make = std::function<std::shared_ptr<const Stored>(const Shape&)>;

Make plain(tenon_format source) {
  return [source](const Shape& shape) {
    std::mt19937 random(1);
    auto stored = std::make_shared<Stored>();
    stored->matrix.tensors = {
        {{"weight", source, 2, {shape.n, shape.k, 0, 0}},
         random_rows(source, static_cast<uint32_t>(shape.n), static_cast<uint32_t>(shape.k), 0.1F, random)}};
    return stored;
  };
}
// The last matrix that was made is kept: making one takes seconds.
Make published(const conformance::PublishedForm& form) {
  return [&form](const Shape& shape) {
    static std::pair<std::string, std::shared_ptr<const Stored>> last;
    const std::string name = form.label + " " + std::to_string(shape.n) + " " + std::to_string(shape.k);
    if (last.first == name) return last.second;
    std::mt19937 random(1);
    last = {name, std::make_shared<Stored>(Stored{form.make({shape.n, shape.k}, random), form.description})};
    return last.second;
  };
}

// This is one site of one matrix, loaded and recorded, once for each copy.
class Layer {
 public:
  Layer(const std::string& scheme, const std::vector<Setting>& settings, const Stored& stored, const Shape& shape,
        uint64_t isa)
      : component_("quantization", scheme, settings, isa),
        table_(component_.table<tenon_quantization>()),
        host_(OpRunner::bounds({.rows = shape.rows})) {
    std::vector<tenon_stored> tensors;
    std::vector<tenon_slice> slices;
    for (const FileMatrix::Tensor& t : stored.matrix.tensors) {
      tensors.push_back(t.stored);
      slices.push_back({t.bytes.data(), t.bytes.size()});
    }
    const tenon_matrix matrix = {"bench.matrix", static_cast<uint32_t>(tensors.size()), 0, tensors.data()};
    auto linear = sdk::abi_struct<tenon_linear>();
    linear.path = "bench";
    linear.description = stored.description.c_str();
    linear.n_mats = 1;
    linear.x_format = linear.y_format = TENON_F32;
    linear.out_dim = &shape.n;
    linear.matrix = &matrix;
    linear.in_dim = shape.k;
    linear.product_wanted = 1;
    check(table_.bind(component_.self(), &linear, nullptr, 0, &site_, &why_));
    auto footprint = sdk::abi_struct<tenon_footprint>();
    check(table_.footprint(component_.self(), site_, &footprint, &why_));
    std::vector<tenon_tid> store;  // the matrix, and what else the scheme keeps
    std::vector<void*> to;
    for (uint32_t i = 0; i < footprint.n_stores; ++i) {
      store.push_back(host_.store(footprint.store_bytes[i]));
      to.push_back(host_.data(store.back()));
    }
    auto src = sdk::abi_struct<tenon_rows>();
    src.rows = static_cast<uint64_t>(shape.n);
    src.tensor = slices.data();
    std::vector<float> scratch(footprint.load_bytes / sizeof(float) + 1);
    check(table_.load(component_.self(), site_, &src, to.data(), scratch.data(), nullptr, &why_));
    auto call = sdk::abi_struct<tenon_linear_call>();
    auto claim = sdk::abi_struct<tenon_claim>();
    call.x = host_.input(TENON_F32, {int64_t{shape.rows}, shape.k},
                         std::vector<float>(shape.rows * static_cast<size_t>(shape.k), 0.5F));
    call.y = host_.output(TENON_F32, {int64_t{shape.rows}, shape.n});
    call.store = store.data();
    call.claim = &claim;
    const uint64_t one = footprint.store_bytes[0];
    for (; bytes_ == 0 || bytes_ < shape.memory; bytes_ += one) {
      if (bytes_ != 0) {
        store[0] = host_.store(one);
        std::memcpy(host_.data(store[0]), to[0], one);
      }
      check(table_.record(component_.self(), site_, &call, host_.recorder(), &why_));
      ++copies_;
    }
  }
  ~Layer() { table_.unbind(component_.self(), site_); }
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;

  void run() { (void)host_.run_unwatched(); }
  uint64_t bytes() const { return bytes_; }
  uint64_t copies() const { return copies_; }

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
  uint64_t bytes_ = 0, copies_ = 0;
};

benchmark::Counter each_thread(uint64_t amount) {
  return {static_cast<double>(amount), benchmark::Counter::kAvgThreads};
}

// gemv_memory's rows are to be compared with this: a loop that only reads.
void read_memory(benchmark::State& state) {
  constexpr size_t kLine = 8;
  const std::vector<uint64_t> buffer(kMemory / sizeof(uint64_t), 1);
  for (auto _ : state) {
    uint64_t sum[kLine] = {};
    for (size_t i = 0; i < buffer.size(); i += kLine) {
      __builtin_prefetch(buffer.data() + i + 4096 / sizeof(uint64_t));
      for (size_t j = 0; j < kLine; ++j) sum[j] += buffer[i + j];
    }
    benchmark::DoNotOptimize(sum);
  }
  state.counters["bytes_a_run"] = each_thread(kMemory);
}

// This is a scheme as it is configured, on a machine of these instruction sets.
struct Subject {
  std::string scheme;
  std::vector<Setting> settings = {};
  uint64_t isa = machine_isa();
};

void measure(benchmark::State& state, const Subject& subject, const Make& make, const Shape& shape) {
  static std::mutex loads;  // a registry's thread is one
  std::unique_lock lock(loads);
  Layer layer(subject.scheme, subject.settings, *make(shape), shape, subject.isa);
  lock.unlock();
  for (auto _ : state) layer.run();
  const auto runs = static_cast<double>(state.iterations() * layer.copies());
  const double flops = 2.0 * shape.rows * static_cast<double>(shape.n) * static_cast<double>(shape.k);
  const auto rate = [](double amount) { return benchmark::Counter(amount, benchmark::Counter::kIsRate); };
  const double bytes = static_cast<double>(state.iterations()) * static_cast<double>(layer.bytes());
  state.counters["bytes"] = rate(bytes);
  state.counters["flops"] = rate(runs * flops);
  if (shape.rows == 1) {
    state.counters["weights_a_cycle"] = rate(runs * flops / 2 / cycle_rate());
    if (shape.memory == 0) state.counters["of_read_peak"] = rate(bytes / read_peak());
    // Divided by the processor's time, this says how fast a thread is even while others use the machine.
    if (shape.memory != 0) state.counters["bytes_a_run"] = each_thread(layer.bytes());
  } else {
    state.counters["of_f32_peak"] = rate(runs * flops / f32_peak());
    if (int8_peak() > 0) state.counters["of_int8_peak"] = rate(runs * flops / int8_peak());
  }
}

void add(const std::string& label, const Subject& subject, const Make& make, const std::vector<Shape>& shapes) {
  for (const Shape& shape : shapes) {
    const std::string kind = shape.memory != 0 ? "gemv_memory/" : shape.rows == 1 ? "gemv/" : "gemm/";
    const std::string name = kind + label + "/" + std::to_string(shape.n) + "x" + std::to_string(shape.k) +
                             "/rows:" + std::to_string(shape.rows);
    auto* made = benchmark::RegisterBenchmark(name.c_str(),
                                              [=](benchmark::State& state) { measure(state, subject, make, shape); });
    if (shape.memory != 0) made->UseRealTime()->Iterations(kMemoryRuns)->Threads(1)->Threads(2);
  }
}
const std::vector<Shape> kShapes = {
    {1, 1536, 512}, {1, 16384, 4096}, {1, 8192, 2048, kMemory}, {128, 1536, 512}, {128, 512, 4096}};
void add(const std::string& label, const Subject& subject, tenon_format source) {
  add(label, subject, plain(source), kShapes);
}

const bool kRegistered = [] {
  for (const tenon_format f : kFileFormats)
    add(std::string("gguf_") + tenon_format_name(f), {"gguf", {{"activations", std::string("f32")}}}, f);
  for (const tenon_format f : {TENON_Q4_0, TENON_Q4_1, TENON_Q5_0, TENON_Q8_0, TENON_Q4_K, TENON_Q6_K}) {
    add(std::string("gguf_int8_") + tenon_format_name(f), {"gguf", {{"activations", std::string("int8")}}}, f);
  }
  add("gguf_bf16_bf16", {"gguf", {{"activations", std::string("auto")}}}, TENON_BF16);
  for (const char* scheme : {"int8dq", "llm_int8", "fp8"}) add(scheme, {scheme}, TENON_F16);
  add("uintx_4_eights", {"uintx", {{"group_size", int64_t{8}}}}, TENON_F16);
  benchmark::RegisterBenchmark("gemv_memory/read", &read_memory)
      ->UseRealTime()
      ->Iterations(kMemoryRuns)
      ->Threads(1)
      ->Threads(2);
  const std::vector<Shape> published_shapes = {{1, 1536, 512}, {1, 8192, 2048, kMemory}, {128, 1536, 512}};
  for (const bool f32 : {false, true}) {
    const uint64_t isa = f32 ? machine_isa() & ~kByteDots : machine_isa();
    const std::string end = f32 ? "_f32" : "";
    for (const char* scheme : {"int8wo", "nf4", "fp4", "fp6", "sparse24"})
      add(scheme + end, {scheme, {}, isa}, TENON_F16);
    add("int4wo_64" + end, {"int4wo", {{"group_size", int64_t{64}}}, isa}, TENON_F16);
    for (const int64_t bits : {2, 3, 4, 5, 6, 8}) {
      add("uintx_" + std::to_string(bits) + end, {"uintx", {{"bits", bits}}, isa}, TENON_F16);
    }
    for (const conformance::PublishedForm& form : conformance::published_forms()) {
      if (form.scheme != "fp8") add(form.label + end, {form.scheme, {}, isa}, published(form), published_shapes);
      if (form.scheme == "fp8" && !f32) add(form.label, {form.scheme}, published(form), published_shapes);
    }
  }
  return true;
}();

}  // namespace
}  // namespace tenon::test
