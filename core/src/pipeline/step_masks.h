// This knows where the masks of a step's out rows (TENON_F_MASK) lie, and how the host writes them.
//
// A token cannot be masked before the one before it is known, but the model's ops need no mask: on a device with queues
// the masks are made while those are under way, in the host's memory, and one copy before the rest of the program takes
// over what is there of them.
#pragma once

#include <span>

#include "context.h"
#include "tenon/core/pipeline.h"

namespace tenon {

class StepMasks {
 public:
  // [setup] Makes the storages: a mask of `vocab` bits for each of out_rows.
  void declare(StorageTable& storages, uint32_t out_rows, uint32_t vocab);
  // [setup] The storages have their addresses; takes the host's memory that is copied from.
  void attach(const StorageTable& storages, Context& context);

  uint32_t words() const { return words_; }  // a mask has so many
  uint32_t rows() const { return rows_; }
  uint32_t masks() const { return masks_; }      // the storage of u32[rows][words]
  uint32_t numbers() const { return numbers_; }  // the storage of i32[rows]

  // Has the masks of a batch made (StepBatch::mask and fill_mask), and enqueues them on a device with queues, after what
  // is there. If there are no numbers, no row has a mask.
  Status publish(std::span<const int32_t> numbers, const StepBatch::FillMask& fill_mask);

 private:
  uint32_t rows_ = 0, words_ = 0, masks_ = 0, numbers_ = 0;
  std::byte *to_masks_ = nullptr, *to_numbers_ = nullptr;
  uint32_t* host_masks_ = nullptr;  // masks and numbers are written here: theirs, or what is copied from
  int32_t* host_numbers_ = nullptr;
  Context* context_ = nullptr;
};

}  // namespace tenon
