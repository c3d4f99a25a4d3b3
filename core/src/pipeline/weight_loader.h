// From a model's file into the stores of the sites: converted by their schemes, or used where they are.
#pragma once

#include "declared.h"
#include "tenon/core/pipeline.h"
#include "tenon/core/weights.h"

namespace tenon {

class WeightLoader {
 public:
  WeightLoader(const Weights& weights, Declared& declared, StorageTable& storages, Components& parts)
      : weights_(weights), declared_(declared), storages_(storages), parts_(parts) {}

  // [setup] Makes the storages of all sites: mapped where the scheme takes the file's bytes and the file is mapped.
  void add_stores();
  // Bytes that load() needs beside the stores.
  uint64_t scratch_bytes() const { return load_bytes_ + (parts_.queues() ? kBuffers : 1) * staging_bytes_; }
  uint64_t total_bytes() const;
  // The stores have their addresses; scratch: scratch_bytes(). Throws Error.
  void load(std::byte* scratch, const LoadProgress& progress);

 private:
  // Of a device with queues: one is filled by the host while the device works on the other.
  static constexpr uint64_t kBuffers = 2;

  bool in_place(const Site& site, const SiteGroup& group) const;
  void load_group(const Site& site, SiteGroup& group);
  // Where the scheme finds bytes [offset, offset + bytes) of a tensor.
  const void* stage(const WeightTensor& tensor, uint64_t offset, uint64_t bytes);
  const void* stage_on_device(const WeightTensor& tensor, uint64_t offset, uint64_t bytes);
  void load_vector(const Vector& vector);
  void wait();
  uint64_t rows_a_chunk(const WeightTensor& tensor) const;
  void advance(uint64_t bytes);

  const Weights& weights_;
  Declared& declared_;
  StorageTable& storages_;
  Components& parts_;
  std::byte *scratch_ = nullptr, *pinned_ = nullptr;
  uint64_t staged_ = 0;  // pieces so far
  uint64_t load_bytes_ = 0, staging_bytes_ = 0, done_ = 0, total_ = 0;
  std::string newest_ = "vectors";  // what was enqueued last, for errors
  LoadProgress progress_;
};

}  // namespace tenon
