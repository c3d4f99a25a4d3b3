// A stand-in host for tests and benchmarks of CUDA ops: what is recorded lies in memory of its own and runs in order.
//   - Every tensor, scratch and zeroed memory lies between red zones, which are looked at after each run.
//   - Temporaries, outputs and scratch are full of NaN bytes (0xff) when a run starts; what lies between the rows of a
//     strided output must still be so at its end.
//   - An op must leave its zeroed memory zero.
//
//   if (const std::string why = cuda_missing(); !why.empty()) GTEST_SKIP() << why;
//   CudaRecorder host(CudaRecorder::bounds(rows));
//   const tenon_tid x = host.input(TENON_F32, {rows, 64}, values), y = host.output(TENON_F32, {rows, 64});
//   host.set_live(rows - 3);                             // else all rows are live
//   sdk::Recorder recorder(host.recorder());
//   record_something(recorder, x, y);
//   ASSERT_EQ(host.run(CudaRecorder::Mode::kGraph), "");  // may be run again, also in other modes
//   EXPECT_THAT(host.f32(y), ...);
//   const double us = host.time_us(CudaRecorder::Mode::kGraph, 20);
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "tenon/abi/program.h"
#include "tenon/cuda/error.h"
#include "tenon/sdk/recorder.h"

namespace tenon::test {

// "", or why no kernel can run here.
inline std::string cuda_missing() {
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status != cudaSuccess) return std::string("no CUDA device: ") + cudaGetErrorString(status);
  return devices == 0 ? "no CUDA device" : "";
}

class CudaRecorder {
 public:
  enum class Mode {
    kList,     // one op after the other, each waited for
    kOverlap,  // with programmatic dependent launch wherever the contract allows it
    kGraph     // the same, captured and replayed
  };

  static tenon_bounds bounds(uint32_t rows, uint32_t seqs = 1, uint32_t kv_len = 64, uint32_t slots = 0) {
    auto b = sdk::abi_struct<tenon_bounds>();
    b.rows = b.rows_per_seq = b.out_rows = rows, b.seqs = seqs, b.kv_len = kv_len;
    b.slots = slots != 0 ? slots : seqs, b.steps_ahead = 1, b.world = 1;
    return b;
  }

  // Step state: LIVE = {rows, seqs, out_rows, 0}, OUT_ROW counts up, PARENT and ADAPTER -1, the rest 0.
  explicit CudaRecorder(const tenon_bounds& bounds);
  ~CudaRecorder() { cudaStreamDestroy(stream_); }
  CudaRecorder(const CudaRecorder&) = delete;
  CudaRecorder& operator=(const CudaRecorder&) = delete;

  const tenon_recorder* recorder() const { return &recorder_; }

  // An input keeps its bytes (data: as many as from the tensor's first to its last; nullptr: zeros); an output is
  // filled with 0xff before each run; a store is zero at first and kept from run to run.
  tenon_tid input(const tenon_tensor& t, const void* data) { return add(t, Use::kInput, data); }
  template <class T>
  tenon_tid input(tenon_format format, std::initializer_list<int64_t> dims, const std::vector<T>& values) {
    return add(sdk::tensor(format, dims), Use::kInput, values.data());
  }
  tenon_tid output(const tenon_tensor& t) { return add(t, Use::kOutput, nullptr); }
  tenon_tid output(tenon_format format, std::initializer_list<int64_t> dims) {
    return output(sdk::tensor(format, dims));
  }
  tenon_tid store(uint64_t bytes) {
    return add(sdk::tensor(TENON_U8, {static_cast<int64_t>(bytes)}), Use::kInput, nullptr);
  }
  tenon_tid slice(tenon_tid of, const tenon_tensor& t, uint64_t offset);

  // Device memory of a tensor, and its bytes from the first to past the last.
  void* data(tenon_tid id) const { return static_cast<char*>(tensors_.at(id).buffer->data()) + tensors_.at(id).offset; }
  uint64_t extent(tenon_tid id) const { return extent_of(tensors_.at(id).view); }
  template <class T>
  std::vector<T> download(tenon_tid id) const {
    std::vector<T> host(extent(id) / sizeof(T));
    TENON_CUDA_CHECK(cudaMemcpy(host.data(), data(id), host.size() * sizeof(T), cudaMemcpyDeviceToHost));
    return host;
  }
  void upload(tenon_tid id, const void* host) {
    TENON_CUDA_CHECK(cudaMemcpy(data(id), host, extent(id), cudaMemcpyHostToDevice));
  }
  // The elements of a f32, f16, bf16 or i32 tensor of rank 1 or 2 in order, strides removed.
  std::vector<float> f32(tenon_tid id) const;

  // Step state by role, taken over by the next run; TENON_STEP_LIVE and _RNG by their bits.
  std::span<int32_t> step_i32(uint32_t role) { return state_.at(role).host; }
  void set_live(uint32_t rows, uint32_t seqs = 1, uint32_t out_rows = 0) {
    auto& live = state_.at(TENON_STEP_LIVE).host;
    live[0] = static_cast<int32_t>(rows), live[1] = static_cast<int32_t>(seqs);
    live[2] = static_cast<int32_t>(out_rows);
  }

  // Runs the recorded ops once. "" or what went wrong first.
  std::string run(Mode mode = Mode::kList);
  // The median of so many runs of the whole list, without a look at any byte, after one that is not counted.
  double time_us(Mode mode, int repeats);
  // The same for every op by itself, in the order of recording.
  struct OpTime {
    std::string name;
    double us;
  };
  std::vector<OpTime> op_times(int repeats);
  // Forgets the recorded ops; tensors stay.
  void clear_ops() { ops_.clear(); }
  size_t op_count() const { return ops_.size(); }

 private:
  static constexpr size_t kZone = 512;
  static constexpr int kZoneByte = 0xa5, kPoison = 0xff;
  enum class Use { kInput, kOutput, kTemp };

  // Device memory between two red zones.
  struct Buffer {
    Buffer(uint64_t n, Use u) : bytes(n), use(u) {
      TENON_CUDA_CHECK(cudaMalloc(&memory, n + 2 * kZone));
      TENON_CUDA_CHECK(cudaMemset(memory, kZoneByte, n + 2 * kZone));
      TENON_CUDA_CHECK(cudaMemset(data(), 0, n));
    }
    ~Buffer() { cudaFree(memory); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    void* data() const { return static_cast<char*>(memory) + kZone; }
    bool damaged() const {
      std::vector<uint8_t> zones(2 * kZone);
      TENON_CUDA_CHECK(cudaMemcpy(zones.data(), memory, kZone, cudaMemcpyDeviceToHost));
      TENON_CUDA_CHECK(
          cudaMemcpy(zones.data() + kZone, static_cast<char*>(data()) + bytes, kZone, cudaMemcpyDeviceToHost));
      return std::any_of(zones.begin(), zones.end(), [](uint8_t b) { return b != kZoneByte; });
    }
    uint64_t bytes;
    Use use;
    void* memory = nullptr;
  };
  struct Tensor {
    tenon_tensor view{};
    uint64_t offset = 0;
    Buffer* buffer = nullptr;
    bool slice = false;
  };
  struct State {
    tenon_tid id = 0;
    std::vector<int32_t> host;
  };
  struct Op {
    std::string name;
    std::vector<tenon_operand> operands;
    std::vector<uint64_t> args;
    std::vector<void*> pointers;
    tenon_op table{};
    uint64_t stable = 0;
    std::unique_ptr<Buffer> zeroed;
  };

  static CudaRecorder& of(void* ctx) { return *static_cast<CudaRecorder*>(ctx); }
  static uint64_t extent_of(const tenon_tensor& t);
  tenon_tid add(const tenon_tensor& t, Use use, const void* data);
  tenon_status emit(const tenon_op& op);
  void prepare();
  void launch(size_t index, Mode mode);
  void launch_all(Mode mode);
  cudaGraphExec_t captured();
  std::string damage() const;

  tenon_bounds bounds_{};
  tenon_recorder recorder_{};
  cudaStream_t stream_ = nullptr;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::vector<Tensor> tensors_{1};
  std::map<uint32_t, State> state_;
  std::map<std::string, tenon_tid> kept_;
  std::vector<std::unique_ptr<Op>> ops_;
  std::unique_ptr<Buffer> scratch_;
};

inline CudaRecorder::CudaRecorder(const tenon_bounds& bounds)
    : bounds_(bounds), recorder_(sdk::abi_struct<tenon_recorder>()) {
  TENON_CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  recorder_.ctx = this, recorder_.bounds = &bounds_;
  recorder_.temp = [](void* c, const tenon_tensor* t) { return of(c).add(sdk::read_abi(t), Use::kTemp, nullptr); };
  recorder_.keep = [](void* c, const tenon_tensor* t, const char* key) {
    tenon_tid& id = of(c).kept_[key];
    if (id == 0) id = of(c).add(sdk::read_abi(t), Use::kInput, nullptr);
    return id;
  };
  recorder_.slice = [](void* c, tenon_tid tensor, const tenon_tensor* t, uint64_t offset) {
    return of(c).slice(tensor, sdk::read_abi(t), offset);
  };
  recorder_.step = [](void* c, uint32_t role) { return of(c).state_.at(role).id; };
  recorder_.describe = [](void* c, tenon_tid id, tenon_tensor* out) {
    sdk::write_abi(out, of(c).tensors_.at(id).view);
  };
  recorder_.emit = [](void* c, const tenon_op* op) { return of(c).emit(sdk::read_abi(op)); };
  const size_t rows = bounds.rows, seqs = bounds.seqs, slots = bounds.slots, out_rows = bounds.out_rows;
  const std::pair<uint32_t, size_t> sizes[] = {
      {TENON_STEP_LIVE, 4},           {TENON_STEP_TOKEN, rows},    {TENON_STEP_POS, rows},
      {TENON_STEP_SLOT, rows},        {TENON_STEP_PARENT, rows},   {TENON_STEP_SEQ_SLOT, seqs},
      {TENON_STEP_SEQ_ROW, seqs + 1}, {TENON_STEP_KV_LEN, slots},  {TENON_STEP_OUT_ROW, out_rows},
      {TENON_STEP_ADAPTER, slots},    {TENON_STEP_RNG, slots * 4}, {TENON_STEP_ACCEPTED, seqs},
      {TENON_STEP_NEXT, out_rows}};
  for (const auto& [role, n] : sizes) {
    state_[role] = {add(sdk::tensor(TENON_I32, {static_cast<int64_t>(n)}), Use::kInput, nullptr),
                    std::vector<int32_t>(n)};
  }
  set_live(bounds.rows, bounds.seqs, bounds.out_rows);
  std::ranges::fill(step_i32(TENON_STEP_PARENT), -1);
  std::ranges::fill(step_i32(TENON_STEP_ADAPTER), -1);
  for (size_t i = 0; i < out_rows; ++i) step_i32(TENON_STEP_OUT_ROW)[i] = static_cast<int32_t>(i);
}

inline uint64_t CudaRecorder::extent_of(const tenon_tensor& t) {
  const tenon_block block = tenon_format_block(t.format);
  uint64_t extent = block.bytes;
  for (uint32_t d = 0; d < t.rank; ++d) {
    const int64_t n = d + 1 == t.rank ? (t.dim[d] + block.elements - 1) / block.elements : t.dim[d];
    if (n <= 0 || t.stride[d] < 0) throw std::invalid_argument("a tensor without elements or with negative strides");
    extent += static_cast<uint64_t>((n - 1) * t.stride[d]);
  }
  return extent;
}

inline tenon_tid CudaRecorder::add(const tenon_tensor& t, Use use, const void* data) {
  buffers_.push_back(std::make_unique<Buffer>(extent_of(t), use));
  tensors_.push_back({t, 0, buffers_.back().get(), false});
  const auto id = static_cast<tenon_tid>(tensors_.size() - 1);
  if (data != nullptr) upload(id, data);
  return id;
}

inline tenon_tid CudaRecorder::slice(tenon_tid of, const tenon_tensor& t, uint64_t offset) {
  const Tensor parent = tensors_.at(of);
  if (parent.offset + offset + extent_of(t) > parent.buffer->bytes) {
    throw std::invalid_argument("a slice beyond the end of tensor " + std::to_string(of));
  }
  tensors_.push_back({t, parent.offset + offset, parent.buffer, true});
  return static_cast<tenon_tid>(tensors_.size() - 1);
}

inline tenon_status CudaRecorder::emit(const tenon_op& op) {
  if (op.name == nullptr || op.launch == nullptr || op.n_operands > TENON_MAX_OPERANDS) return TENON_ERROR;
  auto kept = std::make_unique<Op>();
  kept->name = op.name, kept->table = op;
  kept->args.resize((op.args_bytes + 7) / 8);
  if (op.args_bytes != 0) std::memcpy(kept->args.data(), op.args, op.args_bytes);
  for (uint32_t i = 0; i < op.n_operands; ++i) {
    const tenon_operand& o = op.operand[i];
    if (o.tensor == 0 || o.tensor >= tensors_.size() || o.access == 0) return TENON_ERROR;
    const Buffer* buffer = tensors_[o.tensor].buffer;
    const bool written = std::ranges::any_of(ops_, [&](const auto& earlier) {
      return std::ranges::any_of(earlier->operands, [&](const tenon_operand& e) {
        return (e.access & (TENON_WRITE | TENON_WRITE_NEW)) != 0 && tensors_[e.tensor].buffer == buffer;
      });
    });
    if (!written) kept->stable |= uint64_t{1} << i;
    kept->operands.push_back(o);
    kept->pointers.push_back(data(o.tensor));
  }
  if (op.zeroed_bytes != 0) kept->zeroed = std::make_unique<Buffer>(op.zeroed_bytes, Use::kInput);
  ops_.push_back(std::move(kept));
  return TENON_OK;
}

// Everything as before a step.
inline void CudaRecorder::prepare() {
  uint64_t scratch = 0;
  for (const auto& op : ops_) scratch = std::max(scratch, op->table.scratch_bytes);
  if (scratch != 0 && (scratch_ == nullptr || scratch_->bytes < scratch)) {
    scratch_ = std::make_unique<Buffer>(scratch, Use::kTemp);
  }
  if (scratch_ != nullptr) TENON_CUDA_CHECK(cudaMemset(scratch_->data(), kPoison, scratch_->bytes));
  for (const auto& b : buffers_) {
    if (b->use != Use::kInput) TENON_CUDA_CHECK(cudaMemset(b->data(), kPoison, b->bytes));
  }
  for (const auto& [role, state] : state_) upload(state.id, state.host.data());
  TENON_CUDA_CHECK(cudaDeviceSynchronize());
}

inline void CudaRecorder::launch(size_t index, Mode mode) {
  const Op& op = *ops_[index];
  const auto foreign = [&](size_t i) { return (ops_[i]->table.flags & TENON_OP_FOREIGN) != 0; };
  auto l = sdk::abi_struct<tenon_launch>();
  l.queue = stream_, l.ptr = op.pointers.data(), l.stable = op.stable;
  l.scratch = op.table.scratch_bytes != 0 ? scratch_->data() : nullptr;
  l.zeroed = op.zeroed != nullptr ? op.zeroed->data() : nullptr;
  if (mode != Mode::kList && index > 0 && !foreign(index) && !foreign(index - 1)) l.flags = TENON_LAUNCH_OVERLAP;
  char text[512] = "";
  tenon_reason why{text, sizeof(text)};
  if (op.table.launch(op.table.self, op.args.data(), &l, &why) != TENON_OK) throw sdk::Failed(op.name + ": " + text);
}

inline void CudaRecorder::launch_all(Mode mode) {
  for (size_t i = 0; i < ops_.size(); ++i) {
    launch(i, mode);
    if (mode != Mode::kList) continue;
    if (const cudaError_t e = cudaStreamSynchronize(stream_); e != cudaSuccess) {
      throw sdk::Failed(ops_[i]->name + ": " + cudaGetErrorString(e));
    }
  }
}

inline cudaGraphExec_t CudaRecorder::captured() {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  TENON_CUDA_CHECK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  try {
    launch_all(Mode::kGraph);
  } catch (...) {
    cudaStreamEndCapture(stream_, &graph);
    throw;
  }
  TENON_CUDA_CHECK(cudaStreamEndCapture(stream_, &graph));
  TENON_CUDA_CHECK(cudaGraphInstantiate(&exec, graph, 0));
  TENON_CUDA_CHECK(cudaGraphDestroy(graph));
  return exec;
}

inline std::string CudaRecorder::run(Mode mode) {
  try {
    prepare();
    if (mode == Mode::kGraph) {
      const cudaGraphExec_t exec = captured();
      TENON_CUDA_CHECK(cudaGraphLaunch(exec, stream_));
      TENON_CUDA_CHECK(cudaStreamSynchronize(stream_));
      TENON_CUDA_CHECK(cudaGraphExecDestroy(exec));
    } else {
      launch_all(mode);
      TENON_CUDA_CHECK(cudaStreamSynchronize(stream_));
    }
    return damage();
  } catch (const std::exception& e) {
    return e.what();
  }
}

inline std::string CudaRecorder::damage() const {
  for (size_t id = 1; id < tensors_.size(); ++id) {
    const Tensor& t = tensors_[id];
    const std::string name = "tensor " + std::to_string(id);
    if (t.buffer->damaged()) return "wrote outside " + name;
    const int64_t row_bytes = t.view.dim[1] * tenon_format_block(t.view.format).bytes;
    if (t.buffer->use != Use::kOutput || t.view.rank != 2 || t.slice || t.view.stride[0] == row_bytes) continue;
    const auto bytes = download<uint8_t>(static_cast<tenon_tid>(id));
    for (size_t i = 0; i < bytes.size(); ++i) {
      if (static_cast<int64_t>(i) % t.view.stride[0] >= row_bytes && bytes[i] != kPoison) {
        return "wrote byte " + std::to_string(i) + " of " + name + ", which lies between its rows";
      }
    }
  }
  if (scratch_ != nullptr && scratch_->damaged()) return "wrote outside the scratch";
  for (const auto& op : ops_) {
    if (op->zeroed == nullptr) continue;
    if (op->zeroed->damaged()) return op->name + " wrote outside its zeroed memory";
    std::vector<uint8_t> bytes(op->zeroed->bytes);
    TENON_CUDA_CHECK(cudaMemcpy(bytes.data(), op->zeroed->data(), bytes.size(), cudaMemcpyDeviceToHost));
    if (std::ranges::any_of(bytes, [](uint8_t b) { return b != 0; }))
      return op->name + " left its zeroed memory not zero";
  }
  return {};
}

inline double CudaRecorder::time_us(Mode mode, int repeats) {
  prepare();
  launch_all(Mode::kOverlap);  // one-time work is done outside a capture
  cudaGraphExec_t exec = mode == Mode::kGraph ? captured() : nullptr;
  cudaEvent_t begin = nullptr, end = nullptr;
  TENON_CUDA_CHECK(cudaEventCreate(&begin));
  TENON_CUDA_CHECK(cudaEventCreate(&end));
  std::vector<double> us;
  for (int i = 0; i <= repeats; ++i) {
    TENON_CUDA_CHECK(cudaEventRecord(begin, stream_));
    if (exec != nullptr) {
      TENON_CUDA_CHECK(cudaGraphLaunch(exec, stream_));
    } else {
      for (size_t o = 0; o < ops_.size(); ++o) launch(o, mode);
    }
    TENON_CUDA_CHECK(cudaEventRecord(end, stream_));
    TENON_CUDA_CHECK(cudaEventSynchronize(end));
    float ms = 0;
    TENON_CUDA_CHECK(cudaEventElapsedTime(&ms, begin, end));
    if (i > 0) us.push_back(1e3 * ms);
  }
  cudaEventDestroy(begin), cudaEventDestroy(end);
  if (exec != nullptr) cudaGraphExecDestroy(exec);
  std::ranges::nth_element(us, us.begin() + repeats / 2);
  return us[static_cast<size_t>(repeats / 2)];
}

inline std::vector<CudaRecorder::OpTime> CudaRecorder::op_times(int repeats) {
  prepare();
  std::vector<cudaEvent_t> mark(ops_.size() + 1);
  for (cudaEvent_t& e : mark) TENON_CUDA_CHECK(cudaEventCreate(&e));
  std::vector<std::vector<double>> us(ops_.size());
  for (int i = 0; i <= repeats; ++i) {
    TENON_CUDA_CHECK(cudaEventRecord(mark[0], stream_));
    for (size_t o = 0; o < ops_.size(); ++o) {
      launch(o, Mode::kList);
      TENON_CUDA_CHECK(cudaEventRecord(mark[o + 1], stream_));
    }
    TENON_CUDA_CHECK(cudaStreamSynchronize(stream_));
    for (size_t o = 0; i > 0 && o < ops_.size(); ++o) {
      float ms = 0;
      TENON_CUDA_CHECK(cudaEventElapsedTime(&ms, mark[o], mark[o + 1]));
      us[o].push_back(1e3 * ms);
    }
  }
  for (const cudaEvent_t e : mark) cudaEventDestroy(e);
  std::vector<OpTime> times;
  for (size_t o = 0; o < ops_.size(); ++o) {
    std::ranges::nth_element(us[o], us[o].begin() + repeats / 2);
    times.push_back({ops_[o]->name, us[o][static_cast<size_t>(repeats / 2)]});
  }
  return times;
}

inline std::vector<float> CudaRecorder::f32(tenon_tid id) const {
  const tenon_tensor& t = tensors_.at(id).view;
  if (t.rank > 2) throw std::invalid_argument("f32() of a tensor of rank " + std::to_string(t.rank));
  const auto bytes = download<uint8_t>(id);
  const int64_t rows = t.rank == 2 ? t.dim[0] : 1, columns = t.dim[t.rank - 1];
  std::vector<float> out;
  out.reserve(static_cast<size_t>(rows * columns));
  const auto load = [&]<class T>(const uint8_t* p, T value) {
    std::memcpy(&value, p, sizeof(T));
    out.push_back(static_cast<float>(value));
  };
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      const uint8_t* p = bytes.data() + (t.rank == 2 ? r * t.stride[0] : 0) + c * t.stride[t.rank - 1];
      switch (t.format) {
        case TENON_F32:
          load(p, 0.0f);
          break;
        case TENON_I32:
          load(p, int32_t{0});
          break;
        case TENON_F16:
          load(p, __half{});
          break;
        case TENON_BF16:
          load(p, __nv_bfloat16{});
          break;
        default:
          throw std::invalid_argument("f32() of a tensor in another format");
      }
    }
  }
  return out;
}

}  // namespace tenon::test
