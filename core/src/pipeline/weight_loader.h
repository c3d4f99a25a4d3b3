// Weights come from a model's file into the stores of the sites: their schemes
// convert them, or use them where they are.
#pragma once

#include "declared.h"
#include "tenon/core/pipeline.h"
#include "tenon/core/weights.h"

namespace tenon {

class WeightLoader {
 public:
  WeightLoader(const Weights& weights, Declared& declared, StorageTable& storages, Components& components)
      : weights_(weights), declared_(declared), storages_(storages), components_(components) {}

  // [setup] Makes the storages of all sites: mapped where the scheme takes the file's bytes and the file is mapped.
  void add_stores();
  // Returns how many bytes load() needs beside the stores.
  uint64_t scratch_bytes() const { return load_bytes_ + (components_.queues() ? kBuffers : 1) * staging_bytes_; }
  uint64_t total_bytes() const;
  // The stores have their addresses; scratch: scratch_bytes(). Throws Error.
  void load(std::byte* scratch, const LoadProgress& progress);

 private:
  // A device with queues has two: the host fills one while the device works on the other.
  static constexpr uint64_t kBuffers = 2;

  bool in_place(const Site& site, const SiteGroup& group) const;
  // This is a piece of a tensor: the rows of a call, or all of it.
  struct Piece {
    const WeightTensor* tensor;
    uint64_t offset, bytes;
    bool rows;  // true: it is the call's rows; false: all of a tensor, which comes with every call
  };
  // Returns what load() gets of each tensor for rows [row, row + n) of a matrix.
  static std::vector<Piece> pieces_of(const Matrix& matrix, int64_t rows, uint64_t row, uint64_t n);
  uint64_t rows_a_call(const Matrix& matrix, int64_t rows, const SiteGroup& group) const;
  void load_group(const Site& site, SiteGroup& group);
  void load_matrix(const SiteMatrix& of, const Matrix& matrix, SiteGroup& group, uint32_t mat, uint32_t pass);
  // Returns the file of the matrix's tensor that a scheme's message names, else that of its first tensor.
  std::string file_of(const Matrix& matrix, std::string_view message) const;
  void copy_in_place(const Matrix& matrix, int64_t rows, const SiteGroup& group, void* store);
  // Returns where the scheme finds the pieces, until the buffers are used anew after kBuffers calls.
  std::vector<tenon_slice> stage(const std::vector<Piece>& pieces);
  const void* stage_on_device(const Piece& piece, uint64_t at);
  void release(const std::vector<Piece>& pieces);
  void load_vector(const Vector& vector);
  void wait();
  void advance(uint64_t bytes);

  const Weights& weights_;
  Declared& declared_;
  StorageTable& storages_;
  Components& components_;
  std::byte *scratch_ = nullptr, *pinned_ = nullptr;
  uint64_t staged_ = 0;  // calls so far
  bool in_use_ = false;  // the device may still read the buffers that come next
  uint64_t load_bytes_ = 0, staging_bytes_ = 0, done_ = 0, total_ = 0;
  uint64_t reported_ = 0;           // so many bytes of the matrix that is being loaded
  std::string newest_ = "vectors";  // errors name what was enqueued last
  LoadProgress progress_;
};

}  // namespace tenon
