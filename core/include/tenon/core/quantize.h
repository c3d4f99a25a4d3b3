// Model files made of model files: a GGUF file written anew with its matrices in other formats.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/abi/types.h"

namespace tenon {

// What matrices can be written as.
struct GgufScheme {
  std::string_view name;  // as ggml has it: "Q8_0"
  tenon_format format;
  uint32_t file_type;  // GGUF's general.file_type of a file mostly of it
};
std::span<const GgufScheme> gguf_schemes();
// By its name in upper or lower case. Throws Error(kUsage) that lists the names.
const GgufScheme& gguf_scheme(std::string_view name);

struct GgufOverride {
  std::string match;  // glob over tensor names
  tenon_format format = TENON_FORMAT_NONE;
};

struct QuantizeProgress {
  size_t tensor = 0, tensors = 0;  // the tensor that is being written, from 1, and all of them
  std::string_view name;           // valid during the call
  uint64_t done = 0, total = 0;    // bytes of the file's tensors
};

struct QuantizeOptions {
  tenon_format format = TENON_Q8_0;          // one of gguf_schemes()
  std::vector<GgufOverride> overrides = {};  // the last that matches holds
  bool replace = false;                      // a file that is there
  // Called every few milliseconds of work. What it throws ends the work, and nothing is left of the file.
  std::function<void(const QuantizeProgress&)> progress = {};
};

// A matrix that is stored as F16 because its rows are no whole number of the wanted format's blocks.
struct QuantizeException {
  std::string tensor;
  tenon_format wanted = TENON_FORMAT_NONE;
  int64_t width = 0;  // weights a row
};

struct QuantizeReport {
  uint64_t input_bytes = 0, file_bytes = 0;  // of whole files
  uint64_t bytes_written = 0;                // of the tensors as stored
  uint64_t weights = 0;
  std::map<tenon_format, size_t> tensors;  // how many were written in each format
  size_t requantized = 0;                  // that were in another block format before
  std::vector<QuantizeException> exceptions;
};

// Writes `output` (GGUF version 3, one file) from the GGUF model `input`, of a split one any part. Metadata is copied
// byte for byte but for general.file_type, general.quantization_version and the keys of a split. Tensors of one
// dimension are stored as F32 where they were plain floats, matrices as the options say, and as F16 where the rows are
// no whole number of blocks; tensors that are no floats, and those that are in the wanted format already, are copied.
// Holds a few MB at a time. `output` appears complete or not at all, by a temporary file beside it.
// Throws Error(kUsage) for a file that is there and may not be replaced, and for an override that matches no matrix;
// Error(kModel) for an input that is no GGUF, and for weights that are NaN, infinite or beyond the format's range, with
// their place; Error(kIo) for what cannot be read or written.
QuantizeReport quantize_gguf(const std::string& input, const std::filesystem::path& output,
                             const QuantizeOptions& options);

}  // namespace tenon
