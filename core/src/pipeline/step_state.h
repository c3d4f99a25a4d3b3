// This knows where the step state (TENON_STEP_*) lies, how the host writes it between launches, and how the host learns
// what a step chose.
//
// On a device with queues the host writes a mirror that one copy takes over, and reads the outbox: a ring in host
// memory to which the last op of every sampling step posts (TENON_F_ADVANCE), so that the next step may already be
// under way.
#pragma once

#include <vector>

#include "context.h"
#include "runner.h"
#include "tenon/core/pipeline.h"

namespace tenon {

class StepState {
 public:
  // [setup] Makes the storages, for the largest of the shapes.
  void declare(StorageTable& storages, std::span<const tenon_bounds> shapes, bool queues);
  // [setup] The storages have their addresses; makes the mirror.
  void attach(const StorageTable& storages, Context& context);

  std::span<const uint32_t> storages() const { return by_role_; }  // one for each TENON_STEP_* role
  // The host reads this storage in the place of TENON_STEP_NEXT (tenon/sdk/told.h).
  uint32_t told() const { return told_; }
  uint32_t told_rows() const { return out_rows_; }
  // The operand of TENON_F_TAKE, (rows); a device that walks has none.
  uint32_t from() const { return from_; }
  // The last op of a sampling program on a device with queues writes to it.
  uint32_t outbox() const { return outbox_; }
  uint32_t count() const { return count_; }
  uint32_t entries() const { return kEntries; }
  uint32_t entry_words() const { return first_survivor() + (trees_ ? rows_ : 0); }
  uint32_t first_survivor() const { return 1 + out_rows_ + seqs_; }

  // Writes what a batch states. At most one step is under way.
  Status publish(const StepBatch& batch);
  // All rows of the batch of one sequence that was published survive, as no op of its program says.
  void accept_all(const StepBatch& batch);
  // `staged` has room for the key; see Context::copy_staged.
  void set_key(uint32_t slot, const uint32_t (&key)[4], std::byte* staged);
  // Waits for the oldest step that was not yet read, and gives what it has chosen. On a device that walks it is done
  // already. With `trees` its program's rows may be trees.
  Status read(const StepBatch& batch, bool trees, Runner& runner, StepResult& result);
  // Devices with queues have these. Enqueues that a word of the host's memory gets the number of the sampling step that
  // was launched last, once all that was enqueued is done.
  Status post_number(uint32_t* word) const;
  // Waits until a word has the number of the step that was read last.
  Status wait_for_number(uint32_t* word, Runner& runner) const;

 private:
  static constexpr uint32_t kEntries = 4;

  void write(uint32_t storage, const std::vector<int32_t>& values);
  std::byte* mirror_of(uint32_t storage) const {
    return mirror_ + (static_cast<std::byte*>((*table_)[storage].address) - address(TENON_STEP_LIVE));
  }
  std::byte* address(uint32_t role) const { return static_cast<std::byte*>((*table_)[by_role_[role]].address); }

  std::vector<uint32_t> by_role_;
  uint32_t told_ = 0, from_ = 0, outbox_ = 0, count_ = 0, rows_ = 0, out_rows_ = 0, seqs_ = 0;
  bool queues_ = false, trees_ = false;
  std::vector<int32_t> place_;     // the places of the batch's rows
  std::vector<int32_t> in_order_;  // survivors of chains, which are each sequence's first rows: 0, 1, 2, ...
  const StorageTable* table_ = nullptr;
  Context* context_ = nullptr;
  // The host writes the mirrors in turn: the copy of one may not be done when the next step is published.
  std::byte *mirror_ = nullptr, *other_mirror_ = nullptr;
  uint32_t steps_read_ = 0;
};

}  // namespace tenon
