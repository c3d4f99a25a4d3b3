// This is a model file while it is written; it appears when it is whole.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gguf_writer.h"
#include "tenon/core/atomic_file.h"
#include "tenon/core/weights.h"

namespace tenon::weights {

// Everything throws Error(kIo) for what cannot be written. Destroyed before commit() it leaves nothing.
class ModelWriter {
 public:
  virtual ~ModelWriter() = default;
  // Takes the next bytes of tensor `index` in its format.
  virtual void put(size_t index, std::span<const std::byte> bytes) = 0;
  virtual void commit() = 0;
  virtual uint64_t file_bytes() const = 0;  // the weights' file has so many
};

// `tensors` have name, format, shape. replace: a file that is there at the end; never a folder. Throws Error(kModel)
// for a format that the kind of file has not.
std::unique_ptr<ModelWriter> write_gguf(const std::filesystem::path& output, const GgufPairs& metadata,
                                        uint64_t alignment, std::vector<WeightTensor> tensors, bool replace = true);
// Writes a folder with model.safetensors and what else it shall hold, by name.
std::unique_ptr<ModelWriter> write_safetensors_folder(const std::filesystem::path& output,
                                                      std::vector<WeightTensor> tensors,
                                                      std::map<std::string, std::string> texts);

// Throws Error(kIo) if `error` is one.
void check_written(const std::filesystem::path& path, std::error_code error);

}  // namespace tenon::weights
