// These are the tensors of a stand-in host. What outlives a step is a storage of core's, everything else a temporary of
// the recording; each has memory of its own.
#include "conformance/op_runner.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "conformance/op_run.h"
#include "pipeline/step_state.h"
#include "tenon/core/error.h"
#include "tenon/sdk/error.h"
#include "tenon/sdk/live.h"
#include "tenon/sdk/recorder.h"

namespace tenon::conformance {
namespace {

float half_to_float(uint16_t h) {
  const uint32_t sign = (h & 0x8000u) << 16, exponent = (h >> 10) & 31u, mantissa = h & 1023u;
  if (exponent == 0) {
    const float v = static_cast<float>(mantissa) * 0x1p-24f;
    return sign != 0 ? -v : v;
  }
  const uint32_t bits = sign | (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) | (mantissa << 13);
  return std::bit_cast<float>(bits);
}

template <class T>
T load(const uint8_t* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}

float element(tenon_format format, const uint8_t* p) {
  switch (format) {
    case TENON_F32:
      return load<float>(p);
    case TENON_I32:
      return static_cast<float>(load<int32_t>(p));
    case TENON_F16:
      return half_to_float(load<uint16_t>(p));
    case TENON_BF16:
      return std::bit_cast<float>(uint32_t{load<uint16_t>(p)} << 16);
    default:
      throw std::invalid_argument("f32() of a tensor in another format");
  }
}

}  // namespace

tenon_bounds OpRunner::bounds(const Shape& shape) {
  auto b = sdk::abi_struct<tenon_bounds>();
  b.rows = shape.rows;
  b.seqs = shape.seqs;
  b.kv_len = shape.kv_len;
  b.slots = shape.slots;
  b.rows_per_seq = shape.rows_per_seq != 0 ? shape.rows_per_seq : shape.rows;
  b.out_rows = shape.out_rows != 0 ? shape.out_rows : shape.rows;
  b.steps_ahead = 1;
  b.trees = shape.trees;
  return b;
}

OpRunner::OpRunner(const tenon_bounds& bounds, const Device& device, uint32_t most_out_rows)
    : device_(device), state_(std::make_unique<StepState>()) {
  state_->declare(storages_, std::span(&bounds, 1), false);
  tenon_bounds largest = bounds;
  largest.out_rows = std::max(largest.out_rows, most_out_rows);
  recording_ = std::make_unique<ProgramRecording>(bounds, storages_, state_->storages(), &largest);
  recording_->scope("check", "the component", -1);
  for (uint32_t role = 1; role < state_->storages().size(); ++role) {
    step_[role].resize(storages_[state_->storages()[role]].bytes / sizeof(int32_t));
  }
  set_live(bounds.rows, bounds.seqs, bounds.out_rows);
  std::ranges::fill(step_i32(TENON_STEP_PARENT), -1);
  for (uint32_t i = 0; i < bounds.out_rows; ++i) step_i32(TENON_STEP_OUT_ROW)[i] = static_cast<int32_t>(i);
  for (uint32_t i = 0; i < bounds.rows; ++i) step_i32(TENON_STEP_SURVIVOR)[i] = static_cast<int32_t>(i);
}

OpRunner::~OpRunner() = default;

const tenon_recorder* OpRunner::recorder() const {
  program_ = nullptr;
  return recording_->recorder();
}

tenon_tid OpRunner::add(const tenon_tensor& t, Use use, const void* data) {
  program_ = nullptr;
  const uint64_t bytes = tensor_extent(t);
  const uint32_t number = storages_.add("tensor " + std::to_string(storages_.size()), MemoryKind::kState, bytes);
  const tenon_tid id = recording_->storage(number, t);
  if (id == 0) return 0;
  Held& it = held(number);
  it.use = use;
  if (data != nullptr) it.memory->write(data, 0, bytes);
  return id;
}

tenon_tid OpRunner::input(tenon_format format, std::initializer_list<int64_t> dims, const void* data) {
  return add(sdk::tensor(format, dims), Use::kInput, data);
}
tenon_tid OpRunner::output(tenon_format format, std::initializer_list<int64_t> dims) {
  return add(sdk::tensor(format, dims), Use::kOutput, nullptr);
}
tenon_tid OpRunner::store(uint64_t bytes) {
  return add(sdk::tensor(TENON_U8, {static_cast<int64_t>(bytes)}), Use::kInput, nullptr);
}
tenon_tid OpRunner::strided_input(const tenon_tensor& t, const void* data) {
  return add(t, Use::kInput, data);
}
tenon_tid OpRunner::strided_output(const tenon_tensor& t) {
  return add(t, Use::kOutput, nullptr);
}
tenon_tid OpRunner::slice(tenon_tid of, const tenon_tensor& t, uint64_t offset) {
  program_ = nullptr;
  return recording_->slice(of, t, offset);
}

// Planning leaves the recording as it is, so that it is done whenever something may have been added.
const Program& OpRunner::planned() const {
  if (program_ == nullptr) {
    arena_ = nullptr;
    program_ = recording_->finish({});
  }
  return *program_;
}

OpRunner::Held& OpRunner::held(uint32_t storage) const {
  Held& it = held_[storage];
  if (it.memory == nullptr) {
    it.memory = std::make_unique<GuardedMemory>(device_, storages_[storage].bytes, storages_[storage].name);
    storages_[storage].address = it.memory->data();
  }
  return it;
}

GuardedMemory& OpRunner::memory_of(tenon_tid id) const {
  const ProgramTensor& t = planned().tensor(id);
  if (t.storage >= 0) return *held(static_cast<uint32_t>(t.storage)).memory;
  std::unique_ptr<GuardedMemory>& temp = temps_[t.root];
  const uint64_t bytes = planned().tensor(t.root).extent;
  if (temp == nullptr) temp = std::make_unique<GuardedMemory>(device_, bytes, "tensor " + std::to_string(t.root));
  return *temp;
}

uint64_t OpRunner::offset_of(tenon_tid id) const {
  const ProgramTensor& t = planned().tensor(id);
  return t.storage >= 0 ? t.offset : t.offset - planned().tensor(t.root).offset;
}

void OpRunner::check_current(tenon_tid id) const {
  const ProgramTensor& t = planned().tensor(id);
  if (planned_run_ && t.storage < 0) throw std::logic_error("a temporary is read after a run that had it elsewhere");
}

void* OpRunner::data(tenon_tid id) const {
  return memory_of(id).data() + offset_of(id);
}
uint64_t OpRunner::extent(tenon_tid id) const {
  return planned().tensor(id).extent;
}

std::vector<float> OpRunner::f32(tenon_tid id) const {
  const auto bytes = read<uint8_t>(id);
  const tenon_tensor& t = planned().tensor(id).view;
  std::vector<float> out;
  for_each_block(t, [&](uint64_t offset) { out.push_back(element(t.format, bytes.data() + offset)); });
  return out;
}

std::span<int32_t> OpRunner::step_i32(uint32_t role) {
  return step_.at(role);
}

void OpRunner::set_live(uint32_t rows, uint32_t seqs, uint32_t out_rows) {
  const std::span<int32_t> live = step_i32(TENON_STEP_LIVE);
  live[sdk::kLiveRows] = static_cast<int32_t>(rows);
  live[sdk::kLiveSeqs] = static_cast<int32_t>(seqs);
  live[sdk::kLiveOutRows] = static_cast<int32_t>(out_rows);
}

void OpRunner::write_state() {
  for (const auto& [role, values] : step_) {
    held(state_->storages()[role]).memory->write(values.data(), 0, values.size() * sizeof(int32_t));
  }
}
void OpRunner::read_state() {
  for (auto& [role, values] : step_) {
    device_.copy(values.data(), held(state_->storages()[role]).memory->data(), values.size() * sizeof(int32_t));
  }
}

}  // namespace tenon::conformance
