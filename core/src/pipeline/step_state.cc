// This keeps the arrays of a step's state. The host writes a mirror and one copy takes it over; on devices with queues
// the result comes through the outbox, whose entry is complete when its first word says so.
#include "step_state.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>
#include <thread>
#include <utility>

namespace tenon {
namespace {

// A step that takes longer than kSpin is looked for now and then. To wait for the device itself would be to wait for
// the step that was launched ahead, too, so it is done only after kPatience, since a step may have failed.
constexpr std::chrono::milliseconds kSpin{2};
constexpr std::chrono::microseconds kPause{20};
constexpr std::chrono::seconds kPatience{1};

// Waits until the device, or a copy, has written a number.
Status wait_for(uint32_t* word, uint32_t wanted, Runner& runner) {
  const std::atomic_ref<uint32_t> posted(*word);
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  while (posted.load(std::memory_order_acquire) != wanted) {
    const Clock::duration waited = Clock::now() - start;
    if (waited < kSpin) continue;
    if (waited < kPatience) {
      std::this_thread::sleep_for(kPause);
      continue;
    }
    Status status = runner.finish();
    if (!status.ok()) return status;
    if (posted.load(std::memory_order_acquire) != wanted) {
      return Status::error(ErrorCode::kInternal, "the step has ended and posted no tokens");
    }
  }
  return {};
}

}  // namespace

void StepState::declare(StorageTable& storages, std::span<const tenon_bounds> shapes, bool queues) {
  queues_ = queues;
  for (const tenon_bounds& b : shapes) {
    rows_ = std::max(rows_, b.rows);
    out_rows_ = std::max(out_rows_, b.out_rows);
    seqs_ = std::max(seqs_, b.seqs);
    trees_ = trees_ || b.trees != 0;
  }
  const uint32_t rows = rows_;
  place_.reserve(rows);
  in_order_.resize(rows);
  std::iota(in_order_.begin(), in_order_.end(), 0);
  const uint32_t slots = shapes.front().slots;
  const auto add = [&](uint32_t role, const char* name, uint64_t words) {
    if (by_role_.size() <= role) by_role_.resize(role + 1);
    by_role_[role] = storages.add(std::string("step/") + name, MemoryKind::kState, words * 4);
  };
  // The arrays that the host writes come first and together: LIVE to OUT_ROW, and where tokens are taken from.
  add(TENON_STEP_LIVE, "live", 4);
  add(TENON_STEP_TOKEN, "token", rows);
  add(TENON_STEP_POS, "pos", rows);
  add(TENON_STEP_PLACE, "place", rows);
  add(TENON_STEP_SLOT, "slot", rows);
  add(TENON_STEP_PARENT, "parent", rows);
  add(TENON_STEP_SEQ_SLOT, "seq_slot", seqs_);
  add(TENON_STEP_SEQ_ROW, "seq_row", seqs_ + 1);
  add(TENON_STEP_KV_LEN, "kv_len", slots);
  add(TENON_STEP_OUT_ROW, "out_row", out_rows_);
  if (queues) from_ = storages.add("step/from", MemoryKind::kState, uint64_t{rows} * 4);
  add(TENON_STEP_RNG, "rng", uint64_t{slots} * 4);
  add(TENON_STEP_ACCEPTED, "accepted", seqs_);
  add(TENON_STEP_SURVIVOR, "survivor", rows);
  add(TENON_STEP_NEXT, "next", out_rows_);
  told_ = storages.add("step/told", MemoryKind::kState, uint64_t{out_rows_} * 4);
  if (!queues) return;
  count_ = storages.add("step/count", MemoryKind::kState, 4);
  outbox_ = storages.add("step/outbox", MemoryKind::kPinned, uint64_t{kEntries} * entry_words() * 4);
}

void StepState::attach(const StorageTable& storages, Context& context) {
  table_ = &storages;
  context_ = &context;
  mirror_ = address(TENON_STEP_LIVE);
  if (queues_) {
    const auto bytes = static_cast<uint64_t>(address(TENON_STEP_RNG) - address(TENON_STEP_LIVE));
    for (std::byte** mirror : {&mirror_, &other_mirror_}) {
      *mirror = static_cast<std::byte*>(context.memory().alloc_zeroed(TENON_SPACE_HOST, bytes, "step state"));
    }
  }
}

void StepState::write(uint32_t storage, const std::vector<int32_t>& values) {
  if (!values.empty()) std::memcpy(mirror_of(storage), values.data(), values.size() * 4);
}

Status StepState::publish(const StepBatch& batch) {
  const uint32_t live[4] = {static_cast<uint32_t>(batch.token.size()), static_cast<uint32_t>(batch.seq_slot.size()),
                            static_cast<uint32_t>(batch.out_row.size()), 0};
  if (queues_) std::swap(mirror_, other_mirror_);
  std::memcpy(mirror_of(by_role_[TENON_STEP_LIVE]), live, sizeof(live));
  write(by_role_[TENON_STEP_TOKEN], batch.token);
  write(by_role_[TENON_STEP_POS], batch.position);
  place_.clear();
  for (size_t s = 0; s < batch.seq_slot.size(); ++s) {
    const int32_t before = batch.kv_len[static_cast<size_t>(batch.seq_slot[s])];
    for (int32_t i = 0; i < batch.seq_row[s + 1] - batch.seq_row[s]; ++i) place_.push_back(before + i);
  }
  write(by_role_[TENON_STEP_PLACE], place_);
  write(by_role_[TENON_STEP_SLOT], batch.slot);
  write(by_role_[TENON_STEP_PARENT], batch.parent);
  write(by_role_[TENON_STEP_SEQ_SLOT], batch.seq_slot);
  write(by_role_[TENON_STEP_SEQ_ROW], batch.seq_row);
  write(by_role_[TENON_STEP_KV_LEN], batch.kv_len);
  write(by_role_[TENON_STEP_OUT_ROW], batch.out_row);
  if (!queues_) return {};
  write(from_, batch.from);
  const auto bytes = static_cast<uint64_t>(address(TENON_STEP_RNG) - address(TENON_STEP_LIVE));
  return context_->copy(address(TENON_STEP_LIVE), mirror_, bytes);
}

void StepState::accept_all(const StepBatch& batch) {
  const auto rows = static_cast<int32_t>(batch.token.size());
  context_->copy_now(address(TENON_STEP_ACCEPTED), &rows, sizeof(rows));
  context_->copy_now(address(TENON_STEP_SURVIVOR), in_order_.data(), batch.token.size() * sizeof(int32_t));
}

void StepState::set_key(uint32_t slot, const uint32_t (&key)[4], std::byte* staged) {
  context_->copy_staged(address(TENON_STEP_RNG) + slot * sizeof(key), key, sizeof(key), staged);
}

Status StepState::read(const StepBatch& batch, bool trees, Runner& runner, StepResult& result) {
  const size_t outs = batch.out_row.size(), seqs = batch.seq_slot.size(), rows = batch.token.size();
  if (!queues_) {
    result.next = {static_cast<const int32_t*>((*table_)[told_].address), outs};
    result.accepted = {reinterpret_cast<const int32_t*>(address(TENON_STEP_ACCEPTED)), seqs};
    result.survivors = {reinterpret_cast<const int32_t*>(address(TENON_STEP_SURVIVOR)), rows};
    return {};
  }
  auto* entry = static_cast<uint32_t*>((*table_)[outbox_].address) + size_t{steps_read_ % kEntries} * entry_words();
  Status status = wait_for(entry, ++steps_read_, runner);
  if (!status.ok()) return status;
  const auto* words = reinterpret_cast<const int32_t*>(entry + 1);
  result.next = {words, outs};
  result.accepted = {words + out_rows_, seqs};
  result.survivors = {trees ? words + out_rows_ + seqs_ : in_order_.data(), rows};
  return {};
}

Status StepState::post_number(uint32_t* word) const {
  return context_->copy(word, (*table_)[count_].address, sizeof(*word));
}

Status StepState::wait_for_number(uint32_t* word, Runner& runner) const {
  return wait_for(word, steps_read_, runner);
}

}  // namespace tenon
