// Samplers of either device in a step, without the core library: their libraries are opened, what they record is run.
#pragma once

#include <cuda_runtime.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tenon/abi/plugin.h"
#include "tenon/cuda/error.h"
#include "tenon/sdk/recorder.h"

namespace tenon::test {

enum class On { kCpu, kCuda };

// Memory of a device.
class Memory {
 public:
  Memory(On on, uint64_t bytes, int fill) : on_(on), bytes_(std::max<uint64_t>(bytes, 1)) {
    if (on_ == On::kCuda) {
      TENON_CUDA_CHECK(cudaMalloc(&data_, bytes_));
    } else {
      data_ = std::aligned_alloc(256, (bytes_ + 255) / 256 * 256);
    }
    set(fill);
  }
  ~Memory() { static_cast<void>(on_ == On::kCuda ? static_cast<int>(cudaFree(data_)) : (std::free(data_), 0)); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  void set(int byte) {
    if (on_ == On::kCuda) {
      TENON_CUDA_CHECK(cudaMemset(data_, byte, bytes_));
    } else {
      std::memset(data_, byte, bytes_);
    }
  }
  template <class T>
  void write(const std::vector<T>& values) {
    copy(data_, values.data(), values.size() * sizeof(T));
  }
  template <class T>
  std::vector<T> read() const {
    std::vector<T> values(bytes_ / sizeof(T));
    copy(values.data(), data_, values.size() * sizeof(T));
    return values;
  }
  void* data() const { return data_; }

 private:
  void copy(void* to, const void* from, uint64_t bytes) const {
    if (on_ == On::kCuda) {
      TENON_CUDA_CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyDefault));
    } else {
      std::memcpy(to, from, bytes);
    }
  }

  On on_;
  uint64_t bytes_;
  void* data_ = nullptr;
};

// A recorder whose ops run in order: on one thread, or on the default stream with overlap.
class StepRecorder {
 public:
  StepRecorder(On on, const tenon_bounds& bounds) : on_(on), bounds_(bounds) {
    r_ = sdk::abi_struct<tenon_recorder>();
    r_.ctx = this, r_.bounds = &bounds_;
    r_.temp = [](void* ctx, const tenon_tensor* t) { return self(ctx).add(*t, true); };
    r_.keep = [](void* ctx, const tenon_tensor* t, const char*) { return self(ctx).add(*t, false); };
    r_.slice = [](void*, tenon_tid, const tenon_tensor*, uint64_t) { return tenon_tid{0}; };
    r_.step = [](void* ctx, uint32_t role) { return self(ctx).step(role); };
    r_.describe = [](void* ctx, tenon_tid id, tenon_tensor* out) { *out = self(ctx).tensors_[id].view; };
    r_.emit = [](void* ctx, const tenon_op* op) { return self(ctx).emit(*op); };
  }

  const tenon_recorder* raw() const { return &r_; }
  Memory& memory(tenon_tid id) { return *tensors_[id].memory; }
  tenon_tid step(uint32_t role) {
    if (roles_.count(role) == 0) {
      const uint32_t per = role == TENON_STEP_LIVE || role == TENON_STEP_RNG ? 4 : 1;
      const int64_t n = std::max({bounds_.rows, bounds_.seqs, bounds_.slots, bounds_.out_rows}) + 1;
      roles_[role] = add(sdk::tensor(TENON_I32, {n, per}), false);
    }
    return roles_[role];
  }
  // Zero; bytes kept from run to run.
  tenon_tid add(const tenon_tensor& t, bool temporary) {
    const auto bytes = static_cast<uint64_t>(t.dim[0] * t.stride[0]);
    tensors_.push_back({t, std::make_unique<Memory>(on_, bytes, 0), temporary});
    return static_cast<tenon_tid>(tensors_.size() - 1);
  }

  // Enqueues everything recorded. Stale bytes are made visible first if `poison`.
  void run(cudaStream_t stream = nullptr, bool poison = true) {
    for (Tensor& t : tensors_) {
      if (poison && t.temporary) t.memory->set(0xff);
    }
    if (scratch_ == nullptr) {
      uint64_t most = 0;
      for (const Op& op : ops_) most = std::max(most, op.table.scratch_bytes);
      scratch_ = std::make_unique<Memory>(on_, most, 0xff);
    }
    for (const Op& op : ops_) {
      auto l = sdk::abi_struct<tenon_launch>();
      std::vector<void*> pointers;
      for (const tenon_operand& o : op.operands) pointers.push_back(memory(o.tensor).data());
      l.queue = stream, l.ptr = pointers.data(), l.scratch = scratch_->data(), l.zeroed = op.zeroed->data();
      l.flags = TENON_LAUNCH_OVERLAP;
      char text[256] = "";
      tenon_reason why{text, sizeof(text)};
      const tenon_status status =
          on_ == On::kCuda ? op.table.launch(op.table.self, op.args.data(), &l, &why) : walk(op, l, &why);
      if (status != TENON_OK) throw sdk::Failed(op.name + ": " + text);
    }
  }
  // That zeroed memory is zero, once the stream has ended.
  bool zeroes_are_left() const {
    return std::all_of(ops_.begin(), ops_.end(), [](const Op& op) {
      const std::vector<uint8_t> bytes = op.zeroed->read<uint8_t>();
      return op.table.zeroed_bytes == 0 || std::all_of(bytes.begin(), bytes.end(), [](uint8_t b) { return b == 0; });
    });
  }

 private:
  struct Tensor {
    tenon_tensor view{};
    std::unique_ptr<Memory> memory;
    bool temporary = false;
  };
  struct Op {
    std::string name;
    std::vector<tenon_operand> operands;
    std::vector<uint64_t> args;
    tenon_op table{};
    std::unique_ptr<Memory> zeroed;
  };
  static StepRecorder& self(void* ctx) { return *static_cast<StepRecorder*>(ctx); }

  tenon_status emit(const tenon_op& op) {
    Op o{op.name, {op.operand, op.operand + op.n_operands}, std::vector<uint64_t>((op.args_bytes + 7) / 8), op, {}};
    std::memcpy(o.args.data(), op.args, op.args_bytes);
    o.zeroed = std::make_unique<Memory>(on_, op.zeroed_bytes, 0);
    ops_.push_back(std::move(o));
    return TENON_OK;
  }
  static tenon_status walk(const Op& op, const tenon_launch& l, tenon_reason* why) {
    std::vector<uint64_t> own((op.table.thread_scratch_bytes + 7) / 8 + 8);
    auto p = sdk::abi_struct<tenon_part>();
    p.launch = &l, p.threads = 1, p.why = why;
    p.thread_scratch = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(own.data()) + 63) / 64 * 64);
    for (p.phase = 0; p.phase < op.table.phases; ++p.phase) {
      p.end = op.table.chunks[p.phase];
      if (const tenon_status s = op.table.part(op.table.self, op.args.data(), &p); s != TENON_OK) return s;
    }
    return TENON_OK;
  }

  On on_;
  tenon_bounds bounds_;
  tenon_recorder r_{};
  std::vector<Tensor> tensors_{1};
  std::map<uint32_t, tenon_tid> roles_;
  std::vector<Op> ops_;
  std::unique_ptr<Memory> scratch_;
};

using Settings = std::vector<std::pair<std::string, double>>;

// A sampler's library, opened, with an instance of default parameters.
class Sampler {
 public:
  Sampler(const std::string& name, On on) {
    const auto bin = std::filesystem::read_symlink("/proc/self/exe").parent_path();
    const char* root = std::getenv("TENON_TEST_PLUGINS");
    const std::filesystem::path plugins = root != nullptr ? root : bin.parent_path() / "lib/tenon/plugins";
    const std::string file = plugins / "sampler" / (name + (on == On::kCuda ? ".cuda.so" : ".cpu.so"));
    library_ = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) throw sdk::Failed(dlerror());
    const auto* plugin = static_cast<const tenon_plugin*>(dlsym(library_, TENON_PLUGIN_SYMBOL));
    component_ = plugin->component[0];
    const std::vector<tenon_param_value> values = with({});
    auto params = sdk::abi_struct<tenon_params>();
    params.count = static_cast<uint32_t>(values.size()), params.value = values.data();
    env_.host = &host_, env_.device = &device_;
    if (component_->create(&params, &env_, &self_, nullptr) != TENON_OK) throw sdk::Failed(name + " was not created");
    table_ = static_cast<const tenon_sampler*>(component_->interface(self_, "sampler/1"));
  }
  ~Sampler() { component_->destroy(self_); }  // libraries stay open: kernels are registered for the process' life
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  const tenon_sampler& table() const { return *table_; }
  void* self() const { return self_; }
  std::vector<uint8_t> record(const Settings& settings) const {
    const std::vector<tenon_param_value> values = with(settings);
    auto params = sdk::abi_struct<tenon_params>();
    params.count = static_cast<uint32_t>(values.size()), params.value = values.data();
    std::vector<uint8_t> bytes(table_->param_bytes);
    if (table_->encode(self_, &params, bytes.data(), nullptr) != TENON_OK) throw sdk::Failed("encode failed");
    return bytes;
  }

 private:
  std::vector<tenon_param_value> with(const Settings& settings) const {
    std::vector<tenon_param_value> values(component_->schema->count);
    for (size_t i = 0; i < values.size(); ++i) {
      const tenon_param_spec& s = *component_->schema->spec[i];
      values[i] = {s.int_default, s.real_default, s.text_default};
      for (const auto& [name, value] : settings) {
        if (name == s.name) values[i].integer = static_cast<int64_t>(value), values[i].real = value;
      }
    }
    return values;
  }

  tenon_host host_ = sdk::abi_struct<tenon_host>();
  tenon_device device_ = sdk::abi_struct<tenon_device>();  // isa 0
  tenon_env env_ = sdk::abi_struct<tenon_env>();
  void *library_ = nullptr, *self_ = nullptr;
  const tenon_component* component_ = nullptr;
  const tenon_sampler* table_ = nullptr;
};

struct Link {
  std::string name;
  std::vector<Settings> settings = {{}};  // of each slot, the last one's for all further slots
};

// A sampler's records by slot, and its state, in a step's memory.
struct Linked {
  Linked(const Link& link, On on, uint32_t vocab, uint32_t slots, StepRecorder& r) : sampler(link.name, on) {
    std::vector<uint8_t> records;
    for (size_t slot = 0; slot < slots; ++slot) {
      const std::vector<uint8_t> one = sampler.record(link.settings[std::min(slot, link.settings.size() - 1)]);
      records.insert(records.end(), one.begin(), one.end());
    }
    params = r.add(sdk::tensor(TENON_U8, {static_cast<int64_t>(records.size()), 1}), false);
    r.memory(params).write(records);
    const uint64_t bytes = sampler.table().state_bytes(sampler.self(), vocab);
    if (bytes > 0) state = r.add(sdk::tensor(TENON_U8, {slots, static_cast<int64_t>(bytes)}), false);
  }
  void record(tenon_candidates& c, StepRecorder& r) const {
    const tenon_sampler& t = sampler.table();
    const tenon_status status =
        t.is_selector != 0
            ? t.record_select(sampler.self(), &c, params, r.step(TENON_STEP_NEXT), nullptr, r.raw(), nullptr)
            : t.record_apply(sampler.self(), &c, params, state, nullptr, r.raw(), nullptr);
    if (status != TENON_OK) throw sdk::Failed("a sampler was not recorded");
  }

  Sampler sampler;
  tenon_tid params = 0, state = 0;
};

}  // namespace tenon::test
