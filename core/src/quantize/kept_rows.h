// This keeps the rows that enter a layer, of all texts of a calibration, in a file beside the stored layers: the run of
// the layer before left them, so that no layer before it need run again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>

#include "../../model/weights/mapped_file.h"
#include "tenon/core/atomic_file.h"

namespace tenon {

// The rows that enter layer N are the file "rows-N": f32 (rows, width), as the machine has them, and a uint64
// that is a hash of them. A file appears when it is whole, and takes the place of the one before it. So the
// disk holds two at most, of 4 * rows * width bytes each; the memory that they are mapped to is the system's to
// give and take. Nobody waits for the disk: a file that a power cut has left incomplete has another hash.
// Throws Error(kIo). Thread: one at a time.
class KeptRows {
 public:
  KeptRows(std::filesystem::path folder, uint64_t rows, uint32_t width);

  // Returns the last layer up to `layer` whose rows are kept; nothing if there is none.
  // A file that is not whole is not counted.
  std::optional<uint32_t> last_up_to(uint32_t layer);
  // Returns the rows from `first` on that enter the layer, whose file is there. Both begin() and another layer end
  // them.
  std::span<const float> rows(uint32_t layer, uint64_t first, uint64_t count);

  // Begins to write what enters a layer. The folder is there.
  void begin(uint32_t layer);
  // Appends the next row: f32 (width).
  void put(std::span<const float> row);
  // It is whole. Files of other layers go.
  void end();

 private:
  std::filesystem::path file_of(uint32_t layer) const;
  uint64_t bytes() const { return rows_ * width_ * sizeof(float); }
  bool whole(uint32_t layer);
  void map(uint32_t layer);

  std::filesystem::path folder_;
  uint64_t rows_;
  uint32_t width_;
  std::optional<uint32_t> checked_;  // the layer whose file is known to be whole
  uint32_t begun_ = 0;               // the layer whose file is written,
  uint64_t put_ = 0, hash_ = 0;      // with so many rows of this hash
  std::unique_ptr<AtomicFile> file_;
  std::optional<uint32_t> mapped_layer_;
  std::optional<weights::MappedFile> mapped_;
};

}  // namespace tenon
