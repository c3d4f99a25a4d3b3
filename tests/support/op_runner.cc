#include "support/op_runner.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <stdexcept>

#include "tenon/sdk/error.h"
#include "tenon/sdk/recorder.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define TENON_POISON(p, n) __asan_poison_memory_region(p, n)
#define TENON_UNPOISON(p, n) __asan_unpoison_memory_region(p, n)
#else
#define TENON_POISON(p, n) static_cast<void>(0)
#define TENON_UNPOISON(p, n) static_cast<void>(0)
#endif

namespace tenon::test {
namespace {

constexpr size_t kZone = 512, kAlignment = 256;
constexpr uint8_t kZoneByte = 0xa5, kPoison = 0xff;

uint64_t extent_of(const tenon_tensor& t) {
  const tenon_block block = tenon_format_block(t.format);
  if (block.elements == 0 || t.rank == 0 || t.rank > 6) return 0;
  uint64_t extent = block.bytes;
  for (uint32_t d = 0; d < t.rank; ++d) {
    const int64_t n = d + 1 == t.rank ? (t.dim[d] + block.elements - 1) / block.elements : t.dim[d];
    uint64_t span = 0;
    if (n <= 0 || t.stride[d] < 0 ||
        __builtin_mul_overflow(static_cast<uint64_t>(n - 1), static_cast<uint64_t>(t.stride[d]), &span) ||
        __builtin_add_overflow(extent, span, &extent)) {
      return 0;
    }
  }
  return extent;
}

// Calls f(offset) for each block of a view, innermost dimension fastest.
template <class F>
void for_each_block(const tenon_tensor& t, F&& f) {
  const uint32_t per_block = tenon_format_block(t.format).elements;
  std::array<int64_t, 6> at{};
  const auto count = [&](uint32_t d) { return d + 1 == t.rank ? (t.dim[d] + per_block - 1) / per_block : t.dim[d]; };
  while (true) {
    uint64_t offset = 0;
    for (uint32_t d = 0; d < t.rank; ++d) offset += static_cast<uint64_t>(at[d] * t.stride[d]);
    f(offset);
    uint32_t d = t.rank;
    while (d > 0 && ++at[d - 1] == count(d - 1)) at[--d] = 0;
    if (d == 0) return;
  }
}

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

}  // namespace

// Memory between two red zones.
struct OpRunner::Buffer {
  explicit Buffer(uint64_t n, Use u = Use::kTemp, std::string what = {})
      : bytes(n), use(u), name(std::move(what)), memory(new (std::align_val_t{kAlignment}) uint8_t[n + 2 * kZone]) {
    std::memset(memory.get(), kZoneByte, n + 2 * kZone);
    std::memset(data(), 0, n);
  }
  ~Buffer() { open(); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  uint8_t* data() const { return memory.get() + kZone; }
  void fill(uint8_t byte) const { std::memset(data(), byte, bytes); }
  void close() const {
    TENON_POISON(memory.get(), kZone);
    TENON_POISON(data() + bytes, kZone);
  }
  void open() const { TENON_UNPOISON(memory.get(), bytes + 2 * kZone); }
  // "" or which side was written.
  std::string damage() const {
    const auto dirty = [](const uint8_t* p) {
      return std::any_of(p, p + kZone, [](uint8_t b) { return b != kZoneByte; });
    };
    if (dirty(memory.get())) return "wrote before the start of " + name;
    if (dirty(data() + bytes)) return "wrote past the end of " + name;
    return {};
  }

  struct Free {
    void operator()(uint8_t* p) const { ::operator delete[](p, std::align_val_t{kAlignment}); }
  };
  uint64_t bytes;
  Use use;
  std::string name;
  bool touched = false;           // a temporary's first op of this run has been
  std::vector<uint8_t> snapshot;  // before the op
  std::unique_ptr<uint8_t[], Free> memory;
};

// What one op gets beside its operands.
struct OpRunner::Workspace {
  Workspace(const tenon_op& op, uint32_t n_threads) : scratch(op.scratch_bytes), zeroed(op.zeroed_bytes) {
    scratch.name = "scratch", zeroed.name = "zeroed memory";
    scratch.fill(kPoison);
    for (uint32_t i = 0; i < n_threads; ++i) {
      threads.push_back(std::make_unique<Buffer>(op.thread_scratch_bytes));
      threads.back()->name = "thread scratch";
    }
  }
  Buffer scratch, zeroed;
  std::vector<std::unique_ptr<Buffer>> threads;
};

struct OpRunner::Callbacks {
  static OpRunner& of(void* ctx) { return *static_cast<OpRunner*>(ctx); }
  static tenon_tid temp(void* ctx, const tenon_tensor* t) { return of(ctx).add(sdk::read_abi(t), Use::kTemp, nullptr); }
  static tenon_tid keep(void* ctx, const tenon_tensor* t, const char* key) {
    tenon_tid& id = of(ctx).kept_[key];
    if (id == 0) id = of(ctx).add(sdk::read_abi(t), Use::kStore, nullptr);
    return id;
  }
  static tenon_tid slice(void* ctx, tenon_tid tensor, const tenon_tensor* t, uint64_t offset) {
    return of(ctx).add_slice(tensor, sdk::read_abi(t), offset);
  }
  static tenon_tid step(void* ctx, uint32_t role) {
    const auto found = of(ctx).state_.find(role);
    return found == of(ctx).state_.end() ? of(ctx).fail("asks for unknown step state") : found->second;
  }
  static void describe(void* ctx, tenon_tid id, tenon_tensor* out) {
    const auto& tensors = of(ctx).tensors_;
    sdk::write_abi(out, tensors[id < tensors.size() ? id : 0].view);
  }
  static tenon_status emit(void* ctx, const tenon_op* op) { return of(ctx).emit(sdk::read_abi(op)); }
};

tenon_bounds OpRunner::bounds(const Shape& shape) {
  auto b = sdk::abi_struct<tenon_bounds>();
  b.rows = shape.rows, b.seqs = shape.seqs, b.kv_len = shape.kv_len, b.slots = shape.slots;
  b.rows_per_seq = shape.rows_per_seq != 0 ? shape.rows_per_seq : shape.rows;
  b.out_rows = shape.out_rows != 0 ? shape.out_rows : shape.rows;
  b.steps_ahead = 1, b.world = 1;
  return b;
}

OpRunner::OpRunner(const tenon_bounds& bounds) : bounds_(bounds), recorder_(sdk::abi_struct<tenon_recorder>()) {
  recorder_.ctx = this, recorder_.bounds = &bounds_;
  recorder_.temp = &Callbacks::temp, recorder_.keep = &Callbacks::keep, recorder_.slice = &Callbacks::slice;
  recorder_.step = &Callbacks::step, recorder_.describe = &Callbacks::describe, recorder_.emit = &Callbacks::emit;
  const int64_t rows = bounds.rows, seqs = bounds.seqs, slots = bounds.slots, out_rows = bounds.out_rows;
  const std::pair<uint32_t, int64_t> sizes[] = {
      {TENON_STEP_LIVE, 4},           {TENON_STEP_TOKEN, rows},    {TENON_STEP_POS, rows},
      {TENON_STEP_SLOT, rows},        {TENON_STEP_PARENT, rows},   {TENON_STEP_SEQ_SLOT, seqs},
      {TENON_STEP_SEQ_ROW, seqs + 1}, {TENON_STEP_KV_LEN, slots},  {TENON_STEP_OUT_ROW, out_rows},
      {TENON_STEP_ADAPTER, slots},    {TENON_STEP_RNG, slots * 4}, {TENON_STEP_ACCEPTED, seqs},
      {TENON_STEP_NEXT, out_rows}};
  for (const auto& [role, n] : sizes) {
    const bool bits = role == TENON_STEP_LIVE || role == TENON_STEP_RNG;
    state_[role] = input(bits ? TENON_U32 : TENON_I32, {n}, nullptr);
  }
  set_live(bounds.rows, bounds.seqs, bounds.out_rows);
  for (int32_t& parent : step_i32(TENON_STEP_PARENT)) parent = -1;
  for (int32_t& adapter : step_i32(TENON_STEP_ADAPTER)) adapter = -1;
  for (uint32_t i = 0; i < bounds.out_rows; ++i) step_i32(TENON_STEP_OUT_ROW)[i] = static_cast<int32_t>(i);
}

OpRunner::~OpRunner() = default;

tenon_tid OpRunner::fail(const std::string& message) {
  if (error_.empty()) error_ = message;
  return 0;
}

tenon_tid OpRunner::add(const tenon_tensor& t, Use use, const void* data) {
  const uint64_t extent = extent_of(t);
  if (extent == 0) return fail("asks for a malformed tensor");
  const auto id = static_cast<tenon_tid>(tensors_.size());
  buffers_.push_back(std::make_unique<Buffer>(extent, use, "tensor " + std::to_string(id)));
  if (data != nullptr) std::memcpy(buffers_.back()->data(), data, extent);
  tensors_.push_back({t, 0, extent, buffers_.back().get()});
  return id;
}

tenon_tid OpRunner::add_slice(tenon_tid of, const tenon_tensor& t, uint64_t offset) {
  if (of == 0 || of >= tensors_.size()) return fail("slices a tensor that is not there");
  const Tensor parent = tensors_[of];
  const uint64_t extent = extent_of(t);
  if (extent == 0 || offset > parent.extent || extent > parent.extent - offset) {
    return fail("slices beyond the end of tensor " + std::to_string(of));
  }
  tensors_.push_back({t, parent.offset + offset, extent, parent.buffer});
  return static_cast<tenon_tid>(tensors_.size() - 1);
}

tenon_tid OpRunner::input(tenon_format format, std::initializer_list<int64_t> dims, const void* data) {
  return strided_input(sdk::tensor(format, dims), data);
}
tenon_tid OpRunner::output(tenon_format format, std::initializer_list<int64_t> dims) {
  return strided_output(sdk::tensor(format, dims));
}
tenon_tid OpRunner::store(uint64_t bytes) {
  return add(sdk::tensor(TENON_U8, {static_cast<int64_t>(bytes)}), Use::kStore, nullptr);
}
tenon_tid OpRunner::strided_input(const tenon_tensor& t, const void* data) {
  return add(t, Use::kInput, data);
}
tenon_tid OpRunner::strided_output(const tenon_tensor& t) {
  return add(t, Use::kOutput, nullptr);
}
tenon_tid OpRunner::slice(tenon_tid of, const tenon_tensor& t, uint64_t offset) {
  return add_slice(of, t, offset);
}

void* OpRunner::data(tenon_tid id) const {
  return tensors_.at(id).buffer->data() + tensors_.at(id).offset;
}
uint64_t OpRunner::extent(tenon_tid id) const {
  return tensors_.at(id).extent;
}

std::vector<float> OpRunner::f32(tenon_tid id) const {
  const tenon_tensor& t = tensors_.at(id).view;
  const auto* base = static_cast<const uint8_t*>(data(id));
  std::vector<float> out;
  for_each_block(t, [&](uint64_t offset) {
    const uint8_t* p = base + offset;
    switch (t.format) {
      case TENON_F32:
        out.push_back(load<float>(p));
        break;
      case TENON_I32:
        out.push_back(static_cast<float>(load<int32_t>(p)));
        break;
      case TENON_F16:
        out.push_back(half_to_float(load<uint16_t>(p)));
        break;
      case TENON_BF16:
        out.push_back(std::bit_cast<float>(uint32_t{load<uint16_t>(p)} << 16));
        break;
      default:
        throw std::invalid_argument("f32() of a tensor in another format");
    }
  });
  return out;
}

std::span<int32_t> OpRunner::step_i32(uint32_t role) {
  return values<int32_t>(state_.at(role));
}

void OpRunner::set_live(uint32_t rows, uint32_t seqs, uint32_t out_rows) {
  const std::span<int32_t> live = step_i32(TENON_STEP_LIVE);
  live[0] = static_cast<int32_t>(rows), live[1] = static_cast<int32_t>(seqs), live[2] = static_cast<int32_t>(out_rows);
}

tenon_status OpRunner::emit(const tenon_op& op) {
  const auto reject = [&](const std::string& what) {
    fail("emits a malformed op \"" + std::string(op.name == nullptr ? "" : op.name) + "\": " + what);
    return TENON_ERROR;
  };
  if (op.name == nullptr || op.name[0] == '\0') return reject("no name");
  if (op.part == nullptr) return reject("no part()");
  if (op.n_operands > TENON_MAX_OPERANDS) return reject("too many operands");
  if (op.phases == 0 || op.phases > TENON_MAX_PHASES) return reject("phases out of range");
  for (uint32_t p = 0; p < op.phases; ++p) {
    if (op.chunks[p] == 0) return reject("a phase without chunks");
  }
  for (uint32_t i = 0; i < op.n_operands; ++i) {
    const tenon_operand& o = op.operand[i];
    if (o.tensor == 0 || o.tensor >= tensors_.size()) return reject("an operand that is no tensor");
    if (o.access == 0) return reject("an operand without access");
  }
  auto kept = std::make_unique<Op>();
  kept->name = op.name;
  kept->operands.assign(op.operand, op.operand + op.n_operands);
  kept->args.resize((op.args_bytes + 7) / 8);
  if (op.args_bytes != 0) std::memcpy(kept->args.data(), op.args, op.args_bytes);
  kept->table = op;
  kept->table.name = kept->name.c_str(), kept->table.operand = kept->operands.data();
  kept->table.args = kept->args.data();
  ops_.push_back(std::move(kept));
  return TENON_OK;
}

std::string OpRunner::run(uint64_t seed) {
  if (!error_.empty()) return error_;
  std::mt19937_64 random(seed);
  for (const auto& b : buffers_) {
    b->touched = false;
    if (b->use == Use::kOutput || b->use == Use::kTemp) b->fill(kPoison);
  }
  for (const auto& op : ops_) {
    Workspace work(op->table, 1 + random() % 4);
    const std::string fault = run_op(*op, work, random);
    if (!fault.empty()) return op->name + ": " + fault;
  }
  return {};
}

std::string OpRunner::run_op(const Op& op, Workspace& work, std::mt19937_64& random) {
  for (const tenon_operand& o : op.operands) {
    Buffer& b = *tensors_[o.tensor].buffer;
    if (b.use == Use::kTemp && !b.touched && (o.access & (TENON_WRITE | TENON_WRITE_NEW)) == 0) {
      return "reads " + b.name + ", which nothing has written";
    }
  }
  for (const tenon_operand& o : op.operands) tensors_[o.tensor].buffer->touched = true;
  for (const auto& b : buffers_) {
    b->snapshot.assign(b->data(), b->data() + b->bytes);
    b->close();
  }
  std::vector<void*> pointers;
  for (const tenon_operand& o : op.operands) pointers.push_back(data(o.tensor));
  auto launch = sdk::abi_struct<tenon_launch>();
  launch.ptr = pointers.data();
  launch.scratch = op.table.scratch_bytes != 0 ? work.scratch.data() : nullptr;
  launch.zeroed = op.table.zeroed_bytes != 0 ? work.zeroed.data() : nullptr;
  work.scratch.close(), work.zeroed.close();
  for (const auto& t : work.threads) t->close();
  const std::string fault = run_chunks(op, launch, work, random);
  for (const auto& b : buffers_) b->open();
  work.scratch.open(), work.zeroed.open();
  for (const auto& t : work.threads) t->open();
  return fault.empty() ? check_memory(op, work) : fault;
}

std::string OpRunner::run_chunks(const Op& op, const tenon_launch& launch, Workspace& work, std::mt19937_64& random) {
  char text[256] = "";
  tenon_reason why{text, sizeof(text)};
  for (uint32_t phase = 0; phase < op.table.phases; ++phase) {
    const uint32_t chunks = op.table.chunks[phase];
    const uint32_t longest = 1 + static_cast<uint32_t>(random() % chunks);
    std::vector<std::pair<uint32_t, uint32_t>> runs;
    for (uint32_t begin = 0; begin < chunks;) {
      const uint32_t end = begin + std::min<uint32_t>(1 + random() % longest, chunks - begin);
      runs.emplace_back(begin, end);
      begin = end;
    }
    std::shuffle(runs.begin(), runs.end(), random);
    for (const auto& [begin, end] : runs) {
      auto part = sdk::abi_struct<tenon_part>();
      part.launch = &launch, part.phase = phase, part.begin = begin, part.end = end;
      part.threads = static_cast<uint32_t>(work.threads.size());
      part.thread = static_cast<uint32_t>(random() % part.threads);
      part.why = &why;
      const Buffer& own = *work.threads[part.thread];
      own.fill(kPoison);
      part.thread_scratch = own.bytes != 0 ? own.data() : nullptr;
      if (op.table.part(op.table.self, op.table.args, &part) != TENON_OK) return std::string("failed: ") + text;
    }
  }
  return {};
}

std::string OpRunner::check_memory(const Op& op, const Workspace& work) {
  std::map<const Buffer*, std::vector<bool>> writable;
  for (const tenon_operand& o : op.operands) {
    if ((o.access & (TENON_WRITE | TENON_WRITE_NEW)) == 0) continue;
    const Tensor& t = tensors_[o.tensor];
    auto& mask = writable[t.buffer];
    mask.resize(t.buffer->bytes);
    const uint32_t block = tenon_format_block(t.view.format).bytes;
    for_each_block(t.view, [&](uint64_t offset) {
      const auto first = mask.begin() + static_cast<int64_t>(t.offset + offset);
      std::fill(first, first + block, true);
    });
  }
  for (const auto& b : buffers_) {
    const std::string damage = b->damage();
    if (!damage.empty()) return damage;
    if (std::memcmp(b->data(), b->snapshot.data(), b->bytes) == 0) continue;
    const auto found = writable.find(b.get());
    for (uint64_t i = 0; i < b->bytes; ++i) {
      if (b->data()[i] == b->snapshot[i] || (found != writable.end() && found->second[i])) continue;
      return "wrote byte " + std::to_string(i) + " of " + b->name + ", which it did not declare";
    }
  }
  std::vector<const Buffer*> own{&work.scratch, &work.zeroed};
  for (const auto& t : work.threads) own.push_back(t.get());
  for (const Buffer* b : own) {
    const std::string damage = b->damage();
    if (!damage.empty()) return damage;
  }
  const uint8_t* zeroed = work.zeroed.data();
  if (std::any_of(zeroed, zeroed + work.zeroed.bytes, [](uint8_t b) { return b != 0; })) {
    return "left its zeroed memory not zero";
  }
  return {};
}

std::string OpRunner::run_unwatched() {
  if (!error_.empty()) return error_;
  char text[256] = "";
  tenon_reason why{text, sizeof(text)};
  for (const auto& op : ops_) {
    Workspace work(op->table, 1);
    std::vector<void*> pointers;
    for (const tenon_operand& o : op->operands) pointers.push_back(data(o.tensor));
    auto launch = sdk::abi_struct<tenon_launch>();
    launch.ptr = pointers.data(), launch.scratch = work.scratch.data(), launch.zeroed = work.zeroed.data();
    auto part = sdk::abi_struct<tenon_part>();
    part.launch = &launch, part.threads = 1, part.why = &why, part.thread_scratch = work.threads[0]->data();
    for (part.phase = 0; part.phase < op->table.phases; ++part.phase) {
      part.begin = 0, part.end = op->table.chunks[part.phase];
      if (op->table.part(op->table.self, op->table.args, &part) != TENON_OK) return op->name + ": failed: " + text;
    }
  }
  return {};
}

}  // namespace tenon::test
