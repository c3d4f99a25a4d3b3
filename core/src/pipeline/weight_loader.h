// From a model's file into the stores of the sites: converted by their schemes, or used where they are.
#pragma once

#include "declared.h"
#include "tenon/core/pipeline.h"
#include "tenon/core/weights.h"

namespace tenon {

class WeightLoader {
 public:
  WeightLoader(const Weights& weights, Declared& declared, StorageTable& storages)
      : weights_(weights), declared_(declared), storages_(storages) {}

  // [setup] Makes the storages of all sites: mapped where the scheme takes the file's bytes and the file is mapped.
  void add_stores();
  // Bytes that load() needs beside the stores.
  uint64_t scratch_bytes() const { return load_bytes_ + staging_bytes_; }
  uint64_t total_bytes() const;
  // The stores have their addresses; scratch: scratch_bytes(). Throws Error.
  void load(const tenon_device& device, std::byte* scratch, const LoadProgress& progress);

 private:
  bool in_place(const Site& site, const SiteGroup& group) const;
  void load_group(const tenon_device& device, const Site& site, SiteGroup& group, std::byte* scratch);
  void load_vector(const tenon_device& device, const Vector& vector);
  uint64_t rows_a_chunk(const WeightTensor& tensor) const;
  void advance(uint64_t bytes);

  const Weights& weights_;
  Declared& declared_;
  StorageTable& storages_;
  uint64_t load_bytes_ = 0, staging_bytes_ = 0, done_ = 0, total_ = 0;
  LoadProgress progress_;
};

}  // namespace tenon
