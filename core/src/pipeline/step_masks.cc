#include "step_masks.h"

#include <algorithm>

namespace tenon {

void StepMasks::declare(StorageTable& storages, uint32_t out_rows, uint32_t vocab) {
  constexpr uint32_t kBits = 32;
  rows_ = out_rows;
  words_ = (vocab + kBits - 1) / kBits;
  masks_ = storages.add("step/masks", MemoryKind::kState, uint64_t{rows_} * words_ * sizeof(uint32_t));
  numbers_ = storages.add("step/mask_numbers", MemoryKind::kState, uint64_t{rows_} * sizeof(int32_t));
}

void StepMasks::attach(const StorageTable& storages, Context& context) {
  if (rows_ == 0) return;
  context_ = &context;
  to_masks_ = static_cast<std::byte*>(storages[masks_].address);
  to_numbers_ = static_cast<std::byte*>(storages[numbers_].address);
  const auto of_host = [&](uint32_t storage) {
    return context.queues() ? context.memory().alloc_zeroed(TENON_SPACE_HOST, storages[storage].bytes, "masks")
                            : storages[storage].address;
  };
  host_masks_ = static_cast<uint32_t*>(of_host(masks_));
  host_numbers_ = static_cast<int32_t*>(of_host(numbers_));
}

Status StepMasks::publish(std::span<const int32_t> numbers, const StepBatch::FillMask& fill_mask) {
  std::fill_n(host_numbers_, rows_, -1);
  std::copy(numbers.begin(), numbers.end(), host_numbers_);
  int32_t count = 0;
  for (const int32_t number : numbers) {
    if (number < 0) continue;
    const std::span<uint32_t> bits(host_masks_ + static_cast<size_t>(number) * words_, words_);
    std::fill(bits.begin(), bits.end(), 0);
    fill_mask(number, bits);
    count = std::max(count, number + 1);
  }
  if (!context_->queues()) return {};
  const Status status = context_->copy(to_numbers_, host_numbers_, rows_ * sizeof(int32_t));
  if (!status.ok() || count == 0) return status;
  return context_->copy(to_masks_, host_masks_, static_cast<uint64_t>(count) * words_ * sizeof(uint32_t));
}

}  // namespace tenon
