// Components record operations in C++ with these: tensors, operands, and CPU ops whose arguments are one trivially
// copyable struct. docs/glossary.md has the words.
#pragma once

#include <array>
#include <initializer_list>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "tenon/abi/program.h"
#include "tenon/sdk/error.h"

namespace tenon::sdk {

// It describes a dense tensor in device memory, dims outermost first. In a block format the innermost dimension must be
// whole blocks.
inline tenon_tensor tensor(tenon_format format, std::initializer_list<int64_t> dims) {
  auto t = abi_struct<tenon_tensor>();
  t.format = format;
  t.rank = static_cast<uint32_t>(dims.size());
  size_t i = 0;
  for (const int64_t d : dims) t.dim[i++] = d;
  const tenon_block block = tenon_format_block(format);
  int64_t stride = block.bytes;
  for (size_t d = t.rank; d-- > 0;) {
    t.stride[d] = stride;
    stride *= d + 1 == t.rank ? t.dim[d] / block.elements : t.dim[d];
  }
  return t;
}

// A part is one thread's share of a phase of a CPU op; see tenon_part.
class Part {
 public:
  explicit Part(const tenon_part* raw) : raw_(raw) {}

  template <class T>
  T* ptr(size_t operand) const {
    return static_cast<T*>(raw_->launch->ptr[operand]);
  }
  uint32_t phase() const { return raw_->phase; }
  uint32_t begin() const { return raw_->begin; }
  uint32_t end() const { return raw_->end; }
  template <class T = void>
  T* scratch() const {
    return static_cast<T*>(raw_->launch->scratch);
  }
  template <class T = void>
  T* thread_scratch() const {
    return static_cast<T*>(raw_->thread_scratch);
  }

 private:
  const tenon_part* raw_;
};

// Takes an op's optional operands in their order, of which `first` is the number of the first; one that is not there is
// nullptr. Launch is Part or cuda::Launch.
template <class Launch>
class PresentOperands {
 public:
  PresentOperands(const Launch& launch, uint32_t first) : launch_(launch), next_(first) {}
  template <class T>
  T* take(bool there) {
    return there ? launch_.template ptr<T>(next_++) : nullptr;
  }

 private:
  const Launch& launch_;
  uint32_t next_;
};

// These are the terms of a tenon_cost: what an op costs at all, for each row, and for each token that a row attends to.
enum CostTerm : uint32_t { kFixedCost, kCostPerRow, kCostPerToken };

// Returns an op's operands in the order of its enumeration, each of `count` by the enumerator that its kernel reads it by:
//
//   enum Operand { kX, kY, kLive, kOperands };
//   sdk::operands_by(kOperands, {{kX, x, TENON_READ}, {kY, y, TENON_WRITE}, {kLive, live, TENON_READ}})
//
// An operand of `optional` is there if its tensor is not 0. In the place of one that is not there stands `absent`, which
// is another operand that the op reads; so the program is planned as if nothing stood there, and the kernel leaves it alone:
//
//   sdk::operands_by(kOperands, {{kX, x, TENON_READ}, ...}, {x, TENON_READ}, {{kBias, bias, TENON_READ}})
//   const float* bias = args.has_bias != 0 ? launch.ptr<const float>(kBias) : nullptr;
//
// Throws Failed if one is missing, named twice or none of the enumeration.
struct NamedOperand {
  uint32_t at;
  tenon_tid tensor;
  uint32_t access;
};
inline std::vector<tenon_operand> operands_by(uint32_t count, std::initializer_list<NamedOperand> named,
                                              const tenon_operand& absent = {},
                                              std::initializer_list<NamedOperand> optional = {}) {
  std::vector<tenon_operand> operands(count);
  const auto put = [&](uint32_t at, const tenon_operand& operand) {
    if (at >= count || operands[at].access != 0) {
      throw Failed("operand " + std::to_string(at) + " of " + std::to_string(count) + " is named twice or unknown");
    }
    operands[at] = operand;
  };
  for (const NamedOperand& o : named) put(o.at, {o.tensor, o.access});
  for (const NamedOperand& o : optional) put(o.at, o.tensor != 0 ? tenon_operand{o.tensor, o.access} : absent);
  for (uint32_t i = 0; i < count; ++i) {
    if (operands[i].access == 0) throw Failed("operand " + std::to_string(i) + " is missing");
  }
  return operands;
}

// An op needs this beside its arguments; tenon_op explains the fields.
struct OpSpec {
  const char* name;
  std::span<const tenon_operand> operands;
  std::initializer_list<uint32_t> chunks;  // one number a phase
  tenon_cost cost{};
  uint64_t scratch_bytes = 0, zeroed_bytes = 0, thread_scratch_bytes = 0;
  uint32_t blocks = 0;  // TENON_BLOCKS_* that an op of a GPU can run as; 0 = small
};

// This is tenon_recorder with exceptions: every function throws Failed if the host refuses. It borrows the host's
// recorder and lives as long as the call that got it.
class Recorder {
 public:
  explicit Recorder(const tenon_recorder* raw) : raw_(raw), bounds_(read_abi(raw->bounds)) {}

  const tenon_bounds& bounds() const { return bounds_; }
  // Each bound is the largest of all programs: what is kept by slot, or by row, is sized by it.
  tenon_bounds largest() const { return read_abi(raw_->largest); }
  const tenon_recorder* raw() const { return raw_; }

  tenon_tid temp(const tenon_tensor& t) { return checked(raw_->temp(raw_->ctx, &t)); }
  tenon_tid keep(const tenon_tensor& t, const char* key) { return checked(raw_->keep(raw_->ctx, &t, key)); }
  tenon_tid slice(tenon_tid of, const tenon_tensor& t, uint64_t offset) {
    return checked(raw_->slice(raw_->ctx, of, &t, offset));
  }
  tenon_tid step(uint32_t role) { return checked(raw_->step(raw_->ctx, role)); }
  tenon_tensor describe(tenon_tid id) {
    auto t = abi_struct<tenon_tensor>();
    raw_->describe(raw_->ctx, id, &t);
    return t;
  }
  // Returns how many floats lie between the beginnings of two rows of a tensor in f32.
  int64_t floats_of_row(tenon_tid id) { return describe(id).stride[0] / static_cast<int64_t>(sizeof(float)); }

  // It emits a CPU op. Fn is a void (const Args&, const Part&); Args is trivially copyable and holds no pointers.
  template <auto Fn, class Args>
  void emit(const OpSpec& spec, const Args& args) {
    static_assert(std::is_trivially_copyable_v<Args> && alignof(Args) <= 8);
    auto op = abi_struct<tenon_op>();
    op.name = spec.name;
    op.operand = spec.operands.data();
    op.n_operands = static_cast<uint32_t>(spec.operands.size());
    op.args = &args;
    op.args_bytes = sizeof(Args);
    op.phases = static_cast<uint32_t>(spec.chunks.size());
    size_t i = 0;
    for (const uint32_t n : spec.chunks) op.chunks[i++] = n;
    op.scratch_bytes = spec.scratch_bytes;
    op.zeroed_bytes = spec.zeroed_bytes;
    op.thread_scratch_bytes = spec.thread_scratch_bytes;
    op.cost = spec.cost;
    op.part = [](void*, const void* a, const tenon_part* p) -> tenon_status {
      return guard(p->why, [&] { Fn(*static_cast<const Args*>(a), Part(p)); });
    };
    if (raw_->emit(raw_->ctx, &op) != TENON_OK) throw Failed(std::string("op ") + spec.name + " was not taken");
  }

 private:
  static tenon_tid checked(tenon_tid id) {
    if (id == 0) throw Failed("the host refused a tensor");
    return id;
  }

  const tenon_recorder* raw_;
  tenon_bounds bounds_;
};

// It gives the ops of a chain as this side knows them, whatever size the other side wrote.
inline std::vector<tenon_fop> ops_of(const tenon_chain* chain) {
  std::vector<tenon_fop> ops;
  if (chain == nullptr) return ops;
  for (uint32_t i = 0; i < chain->n; ++i) ops.push_back(read_abi(chain->op[i]));
  return ops;
}

}  // namespace tenon::sdk
