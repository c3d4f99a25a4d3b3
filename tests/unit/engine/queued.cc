// This stands for device.cpu and has a queue, as a GPU has, so that steps are launched ahead of the host where there is
// no GPU. It takes the CPU's components, whose ops the test that opens it launches. Its copies of more than a few words
// take a while: whoever does not wait for one reads what was there before.
#include "queued.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "cpu/cpu_device.h"
#include "tenon/sdk/component.h"
#include "tenon/sdk/fop.h"
#include "tenon/sdk/live.h"
#include "tenon/sdk/recorder.h"

namespace tenon::test {
namespace {

constexpr uint64_t kFewBytes = 64;
constexpr std::chrono::microseconds kCopy{200};

// The host may be waiting for a single word.
void copy_now(void* dst, const void* src, uint64_t bytes) {
  if (src == nullptr) {
    std::memset(dst, 0, bytes);
  } else if (bytes == sizeof(uint32_t)) {
    const std::atomic_ref<uint32_t> word(*static_cast<uint32_t*>(dst));
    word.store(*static_cast<const uint32_t*>(src), std::memory_order_release);
  } else {
    std::memcpy(dst, src, bytes);
  }
}

class ThreadQueue : public Queue {
 public:
  ~ThreadQueue() override {
    enqueue({});
    if (thread_.joinable()) thread_.join();
  }
  void begin() override {
    thread_ = std::thread([this] { run(); });
  }
  void enqueue(std::function<void()> work) override {
    if (captures_) {
      captured_.push_back(std::move(work));
      return;
    }
    if (!thread_.joinable()) {
      if (work) work();
      return;
    }
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return work_.empty(); });
  }

  // A graph has what is enqueued between these two.
  using Graph = std::vector<std::function<void()>>;
  void begin_capture() { captures_ = true; }
  std::unique_ptr<Graph> end_capture() {
    captures_ = false;
    return std::make_unique<Graph>(std::exchange(captured_, {}));
  }
  void replay(const Graph& graph) {
    enqueue([&graph] {
      for (const auto& work : graph) work();
    });
  }

 private:
  // Work is taken off when it is done; an empty one is the last.
  void run() {
    std::unique_lock lock(mutex_);
    for (bool more = true; more;) {
      changed_.wait(lock, [&] { return !work_.empty(); });
      const std::function<void()> work = work_.front();
      more = static_cast<bool>(work);
      lock.unlock();
      if (more) work();
      lock.lock();
      work_.pop_front();
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  std::thread thread_;
  bool captures_ = false;
  Graph captured_;
};

// See TENON_F_ADVANCE and TENON_F_TAKE.
struct AdvanceArgs {
  uint32_t entries, words, moves, out_rows, first_survivor;
};
enum AdvanceOperand : uint32_t {
  kTold,
  kOutbox,
  kCount,
  kLive,
  kAccepted,
  kSurvivor,
  kSlot,
  kToken,
  kPos,
  kPlace,
  kKvLen,
  kNext,
  kAdvanceOperands
};
void move_on(const sdk::Part& p) {
  const auto* live = p.ptr<const uint32_t>(kLive);
  const uint32_t seqs = live[sdk::kLiveSeqs], rows = live[sdk::kLiveRows] / seqs;
  for (uint32_t s = 0; s < seqs; ++s) {
    const uint32_t first = s * rows;
    const int32_t accepted = p.ptr<const int32_t>(kAccepted)[s];
    const uint32_t last = first + static_cast<uint32_t>(accepted) - 1;
    p.ptr<int32_t>(kToken)[first] = p.ptr<const int32_t>(kTold)[last] < 0 ? 0 : p.ptr<const int32_t>(kNext)[last];
    p.ptr<int32_t>(kKvLen)[p.ptr<const int32_t>(kSlot)[first]] += accepted;
    for (uint32_t r = first; r < first + rows; ++r) {
      p.ptr<int32_t>(kPos)[r] += accepted;
      p.ptr<int32_t>(kPlace)[r] += accepted;
    }
  }
}
void advance(const AdvanceArgs& a, const sdk::Part& p) {
  const auto* live = p.ptr<const uint32_t>(kLive);
  uint32_t& count = *p.ptr<uint32_t>(kCount);
  uint32_t* entry = p.ptr<uint32_t>(kOutbox) + size_t{count % a.entries} * a.words;
  std::copy_n(p.ptr<const int32_t>(kTold), live[sdk::kLiveOutRows], entry + 1);
  std::copy_n(p.ptr<const int32_t>(kAccepted), live[sdk::kLiveSeqs], entry + 1 + a.out_rows);
  if (a.first_survivor != 0) {
    std::copy_n(p.ptr<const int32_t>(kSurvivor), live[sdk::kLiveRows], entry + a.first_survivor);
  }
  if (a.moves != 0) move_on(p);
  std::atomic_ref(*entry).store(++count, std::memory_order_release);
}
void record_advance(const sdk::AdvanceOp& op, tenon_tid told, tenon_tid outbox, sdk::Recorder& rec) {
  const std::vector<tenon_operand> operands =
      sdk::operands_by(kAdvanceOperands, {{kTold, told, TENON_READ},
                                          {kOutbox, outbox, TENON_WRITE},
                                          {kCount, op.count, TENON_READ | TENON_WRITE},
                                          {kLive, rec.step(TENON_STEP_LIVE), TENON_READ},
                                          {kAccepted, rec.step(TENON_STEP_ACCEPTED), TENON_READ},
                                          {kSurvivor, rec.step(TENON_STEP_SURVIVOR), TENON_READ},
                                          {kSlot, rec.step(TENON_STEP_SLOT), TENON_READ},
                                          {kToken, rec.step(TENON_STEP_TOKEN), TENON_READ | TENON_WRITE},
                                          {kPos, rec.step(TENON_STEP_POS), TENON_READ | TENON_WRITE},
                                          {kPlace, rec.step(TENON_STEP_PLACE), TENON_READ | TENON_WRITE},
                                          {kKvLen, rec.step(TENON_STEP_KV_LEN), TENON_READ | TENON_WRITE},
                                          {kNext, rec.step(TENON_STEP_NEXT), TENON_READ}});
  rec.emit<&advance>({.name = "advance", .operands = operands, .chunks = {1}},
                     AdvanceArgs{op.entries, op.entry_words, op.moves_on,
                                 static_cast<uint32_t>(rec.describe(told).dim[0]), op.first_survivor});
}

enum TakeOperand : uint32_t { kTakeLive, kTakeTold, kTakeNext, kTakeFrom, kTakeToken, kTakeOperands };
tenon_status launch_take(void*, const void*, const tenon_launch* l, tenon_reason* why) {
  return sdk::guard(why, [&] {
    static_cast<Queue*>(l->queue)->enqueue([at = l->ptr] {
      const auto i32 = [&](TakeOperand o) { return static_cast<int32_t*>(at[o]); };
      for (uint32_t r = 0; r < static_cast<const uint32_t*>(at[kTakeLive])[sdk::kLiveRows]; ++r) {
        const int32_t from = i32(kTakeFrom)[r];
        if (from >= 0) i32(kTakeToken)[r] = i32(kTakeTold)[from] < 0 ? 0 : i32(kTakeNext)[from];
      }
    });
  });
}
void record_take(tenon_tid told, tenon_tid from, tenon_tid token, sdk::Recorder& rec) {
  const std::vector<tenon_operand> operands =
      sdk::operands_by(kTakeOperands, {{kTakeLive, rec.step(TENON_STEP_LIVE), TENON_READ},
                                       {kTakeTold, told, TENON_READ},
                                       {kTakeNext, rec.step(TENON_STEP_NEXT), TENON_READ},
                                       {kTakeFrom, from, TENON_READ},
                                       {kTakeToken, token, TENON_READ | TENON_WRITE}});
  auto op = sdk::abi_struct<tenon_op>();
  op.name = "take";
  op.operand = operands.data();
  op.n_operands = kTakeOperands;
  op.launch = &launch_take;
  if (rec.raw()->emit(rec.raw()->ctx, &op) != TENON_OK) throw sdk::Failed("op take was not taken");
}

class Queued : public sdk::ComponentDefaults {
 public:
  static constexpr const char* kKind = "device";
  static constexpr const char* kInterface = "device/1";
  static constexpr const char* kName = "cpu";
  static constexpr const char* kDoc = "The host's memory, with a queue";
  static constexpr auto kParams = sdk::params();

  Queued(const sdk::Params&, const sdk::Env&) {
    table_.self = this;
    table_.kind = "cpu";
    table_.name = kName;
    table_.units = 1;
    table_.memory = uint64_t{1} << 32;
    table_.alloc = [](void*, uint32_t, uint64_t bytes, void** out, tenon_reason*) -> tenon_status {
      constexpr uint64_t kAligned = 256;
      *out = std::aligned_alloc(kAligned, (bytes + kAligned - 1) / kAligned * kAligned);
      return *out != nullptr ? TENON_OK : TENON_NO_SPACE;
    };
    table_.release = [](void*, uint32_t, void* p, uint64_t) { std::free(p); };
    table_.copy = &copy;
    table_.queue = [](void* self, void** out, tenon_reason*) -> tenon_status {
      *out = static_cast<Queue*>(&static_cast<Queued*>(self)->queue_);
      return TENON_OK;
    };
    table_.wait = [](void* self, void*, tenon_reason*) -> tenon_status {
      static_cast<Queued*>(self)->queue_.wait();
      return TENON_OK;
    };
    table_.capture_begin = [](void* self, void*, tenon_reason*) -> tenon_status {
      static_cast<Queued*>(self)->queue_.begin_capture();
      return TENON_OK;
    };
    table_.capture_end = [](void* self, void*, void** graph, tenon_reason*) -> tenon_status {
      *graph = static_cast<Queued*>(self)->queue_.end_capture().release();
      return TENON_OK;
    };
    table_.replay = [](void* self, void* graph, void*, tenon_reason*) -> tenon_status {
      static_cast<Queued*>(self)->queue_.replay(*static_cast<ThreadQueue::Graph*>(graph));
      return TENON_OK;
    };
    table_.graph_release = [](void*, void* graph) { delete static_cast<ThreadQueue::Graph*>(graph); };
    table_.record_step_op = &record_step_op;
    table_.record_draft_pass = [](void*, const tenon_draft_pass* pass, const tenon_recorder* rec, tenon_reason* why) {
      return record_cpu_draft_pass(sdk::read_longer<sdk::DraftPass>(pass), rec, why);
    };
  }

  const tenon_device* instance_table() const { return &table_; }

 private:
  static tenon_status copy(void* self, void*, void* dst, const void* src, uint64_t bytes, tenon_reason* why) noexcept {
    if (bytes == 0) return TENON_OK;
    return sdk::guard(why, [&] {
      static_cast<Queued*>(self)->queue_.enqueue([=] {
        if (bytes > kFewBytes) std::this_thread::sleep_for(kCopy);
        copy_now(dst, src, bytes);
      });
    });
  }
  static tenon_status record_step_op(void*, const tenon_fop* op, tenon_tid x, tenon_tid y, const tenon_recorder* raw,
                                     tenon_reason* why) noexcept {
    if (op->id != TENON_F_ADVANCE && op->id != TENON_F_TAKE) {
      return record_cpu_op(sdk::read_longer<sdk::VerifyOp>(op), x, y, raw, why);
    }
    return sdk::guard(why, [&] {
      sdk::Recorder rec(raw);
      if (op->id == TENON_F_ADVANCE) return record_advance(sdk::AdvanceOp::of(*op), x, y, rec);
      record_take(op->t[0], x, y, rec);
    });
  }

  ThreadQueue queue_;
  tenon_device table_ = sdk::abi_struct<tenon_device>();
};

}  // namespace
}  // namespace tenon::test

TENON_PLUGIN(tenon::test::Queued);
