// Model files made of model files: weights written anew in other formats, as GGUF or as safetensors.
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
struct QuantizeScheme {
  std::string_view name;  // as ggml has it ("Q8_0"), or the quantization component ("int4wo")
  tenon_format format;    // of int4wo: in groups of 64
  uint32_t file_type;     // GGUF's general.file_type of a file mostly of it
  bool gguf, safetensors;
};
std::span<const QuantizeScheme> quantize_schemes();
// The format of a scheme, its name in upper or lower case; `group`: weights a group of int4wo. Throws Error(kUsage)
// that lists the names, or the groups.
tenon_format quantize_format(std::string_view name, uint32_t group = 64);

struct QuantizeOverride {
  std::string match;  // glob over tensor names
  tenon_format format = TENON_FORMAT_NONE;
};

struct QuantizeProgress {
  size_t tensor = 0, tensors = 0;  // the tensor that is being written, from 1, and all of them
  std::string_view name;           // valid during the call
  uint64_t done = 0, total = 0;    // bytes of the file's tensors
};

struct QuantizeOptions {
  tenon_format format = TENON_Q8_0;              // of quantize_format()
  std::vector<QuantizeOverride> overrides = {};  // the last that matches holds
  bool replace = false;                          // a file that is there; never a folder
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

// Whether a format makes a folder of safetensors (int8wo, int4wo) and not a GGUF file.
bool makes_folder(tenon_format format);

// Writes the model `input` (GGUF, of a split one any part; a Hugging Face folder) anew, with its matrices as the
// options say, tokenizer and description along. What it writes reads back to the same bits. Holds a few MB at a time.
//
// A format of GGUF makes one file, version 3. Of a GGUF input metadata is copied byte for byte but for
// general.file_type, general.quantization_version and the keys of a split; a Hugging Face folder is translated: names,
// order of the rows of Q and K, description, tokenizer. Tensors of one dimension are stored as F32 where they were
// plain floats, matrices as F16 where their rows are no whole number of blocks; tensors that are no floats, and those
// that are in the wanted format already, are copied.
//
// int8wo and int4wo make a folder: model.safetensors (see docs/quality.md for names and types), config.json and the
// tokenizer's files; of a GGUF input names and description are translated and the tokenizer goes into tokenizer.gguf.
// What is no matrix is copied.
//
// `output` appears complete or not at all, even where the process is killed.
// Throws Error(kUsage) for an output that is there and may not be replaced, and for an override that matches no matrix
// or does not fit the kind of file; Error(kModel) for an input that cannot be translated, and for weights that are NaN,
// infinite or beyond the format's range, with their place; Error(kIo) for what cannot be read or written.
QuantizeReport quantize_model(const std::string& input, const std::filesystem::path& output,
                              const QuantizeOptions& options);

}  // namespace tenon
