// This keeps the layers that a calibration has written so far, in files beside the output, so that a run which ends
// before it is done can be repeated and goes on from them.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "../../model/weights/mapped_file.h"
#include "matrix_plan.h"
#include "tenon/core/atomic_file.h"

namespace tenon {

// Layers are numbered as Calibration::batches() has them. A layer's file holds the tensors of its matrices one
// after the other; it appears when it is whole.
class StoredLayers {
 public:
  using Layer = std::vector<const PlannedTensor*>;

  // The folder is "<output>.calibrated". `asked` are lines that say what was asked for and of what. Throws
  // Error(kUsage), with the first line that differs, where the folder was left by a run that was asked for something
  // else; Error(kIo).
  StoredLayers(const std::filesystem::path& output, std::vector<std::string> asked);

  const std::filesystem::path& folder() const { return folder_; }
  // Makes the folder, if it is not there.
  void make_folder();
  // Returns whether an earlier run has stored the layer, whose tensors() are there.
  bool find(size_t number, const Layer& layer);
  // Begins to store a layer. Thread: one at a time for all that follows.
  void begin(size_t number, const Layer& layer);
  void put(const PlannedTensor& p, size_t tensor, std::span<const std::byte> bytes);
  // The layer is whole: its file appears, and its tensors() are there.
  void end();
  // Returns the bytes of a tensor of a layer that is stored; they are mapped as long as this lives.
  std::span<const std::byte> tensor(const PlannedTensor& p, size_t tensor) const;
  // The output is complete: nothing is wanted any more.
  void remove();

 private:
  struct Place {
    size_t number = 0;           // the layer's
    std::vector<uint64_t> at;    // where each tensor begins in the layer's file
    std::vector<uint64_t> next;  // where its next bytes go
  };

  std::filesystem::path file_of(size_t number) const;
  uint64_t lay_out(size_t number, const Layer& layer);

  std::filesystem::path folder_;
  std::string asked_;
  size_t number_ = 0;  // the number of the layer that is being stored
  std::unique_ptr<AtomicFile> file_;
  std::map<const PlannedTensor*, Place> places_;
  std::map<size_t, weights::MappedFile> mapped_;  // by the layer's number
};

}  // namespace tenon
