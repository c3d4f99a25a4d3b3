// Model files made of model files: weights written anew, as GGUF or as what a quantization component stores.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tenon/abi/types.h"

namespace tenon {

class Registry;
class SchemeEncoder;

// A format that is written without a component.
struct QuantizeFormat {
  std::string_view name;  // as ggml has it: "Q8_0"
  tenon_format format;
  uint32_t file_type;  // GGUF's general.file_type of a file mostly of it
  bool safetensors;    // safetensors have it as well as GGUF
};
std::span<const QuantizeFormat> quantize_formats();

// This says what matrices are stored as.
struct QuantizeTarget {
  tenon_format format = TENON_Q8_0;                  // where there is no scheme
  std::shared_ptr<const SchemeEncoder> scheme = {};  // a quantization component with its parameters
  std::string name() const;                          // "Q8_0", or the component's
  // The component stores several tensors a matrix, so the output is a folder of safetensors and not a GGUF file.
  bool makes_folder() const { return scheme != nullptr; }
};

// A parameter of a component as a text: {"group_size", "32"}, or {"acme.mine.group_size", "32"} of that one alone.
using QuantizeSetting = std::pair<std::string, std::string>;

// Targets by name: those of quantize_formats(), in upper or lower case, or quantization components. A setting goes to
// each of the components that has the parameter. The registry outlives what is returned. Throws Error(kUsage): a name
// that is not there (with those that are), a component that writes no files, a setting that none of them takes or of
// another value than its schema has (with what would be right).
std::vector<QuantizeTarget> quantize_targets(std::span<const std::string> names,
                                             std::span<const QuantizeSetting> settings, Registry& registry);

struct QuantizeOverride {
  std::string match;  // glob over tensor names
  QuantizeTarget target;
};

// Texts that are run through the model for schemes that choose by what they see.
struct QuantizeCalibration {
  std::string text;                              // cut into windows
  uint32_t context = 512;                        // tokens of a window
  uint32_t windows = 128;                        // read at most; 0 = all of the text
  std::vector<std::string> set;                  // overrides of the pipeline's configuration: "device.use=cuda"
  Registry* registry = nullptr;                  // of the pipeline's components
  std::vector<std::string> ignore_unknown = {};  // see ModelConfig; quantize_model() sets it
};

struct QuantizeProgress {
  size_t tensor = 0, tensors = 0;    // tensors of the input that were begun, and all of them
  std::string_view name;             // of a tensor, or of the layer that is observed; valid during the call
  uint64_t done = 0, total = 0;      // bytes of the file's tensors
  uint32_t window = 0, windows = 0;  // of a calibration that is under way: windows read, and all of them; else 0
};

struct QuantizeOptions {
  QuantizeTarget target = {};
  std::vector<QuantizeOverride> overrides = {};  // the last that matches holds
  std::optional<QuantizeCalibration> calibration = {};
  std::vector<std::string> ignore_unknown = {};  // keys of the model's description, see ModelConfig
  bool replace = false;                          // a file that is there; never a folder
  // Called every few milliseconds of work, by one thread at a time. What it throws ends the work, and nothing is left
  // of the file.
  std::function<void(const QuantizeProgress&)> progress = {};
};

// A matrix that is stored as F16 because it cannot be stored as was wanted.
struct QuantizeException {
  std::string tensor, wanted, reason;
};

struct QuantizeReport {
  uint64_t input_bytes = 0, file_bytes = 0;  // of whole files
  uint64_t bytes_written = 0;                // of the tensors as stored
  uint64_t weights = 0;
  std::map<std::string, size_t> tensors;  // how many of the input's were written as each format or by each scheme
  size_t requantized = 0;                 // that were in another block format before
  std::vector<QuantizeException> exceptions;
};

// Writes the model `input` (GGUF, of a split one any part; a Hugging Face folder) anew, with its matrices as the
// options say, tokenizer and description along. Holds a few MB at a time, a whole matrix where a scheme asks for it,
// and with a calibration all that it has encoded.
//
// A format of core's own makes one GGUF file, version 3. Of a GGUF input metadata is copied byte for byte but for
// general.file_type, general.quantization_version and the keys of a split; a Hugging Face folder is translated: names,
// order of the rows of Q and K, description, tokenizer. Tensors of one dimension are stored as F32 where they were
// plain floats, matrices as F16 where their rows are no whole number of blocks; tensors that are no floats, and those
// that are in the wanted format already, are copied.
//
// A quantization component makes a folder: model.safetensors with, of a matrix "X.weight", the tensors that the
// component describes as "X.<name>"; config.json with the component's description as its quantization_config; and the
// tokenizer's files. Of a GGUF input names and description are translated and the tokenizer goes into tokenizer.gguf.
// A matrix that the component refuses is stored as F16. What is no matrix is copied.
//
// With a calibration the matrices of one layer after the other are encoded, with what the component observed of them
// while the texts ran through all layers before in the form that they are stored in; the head comes last. A layer takes
// a pipeline of its own.
//
// `output` appears complete or not at all, even where the process is killed.
// Throws Error(kUsage) for an output that is there and may not be replaced, for an override that matches no matrix or
// does not fit the kind of file, and for a calibration that no component of it wants; Error(kModel) for an input that
// cannot be translated, and for weights that are NaN, infinite or beyond the format's range, with their place;
// Error(kIo) for what cannot be read or written; with a calibration what Pipeline::build() and load() throw.
QuantizeReport quantize_model(const std::string& input, const std::filesystem::path& output,
                              const QuantizeOptions& options);

}  // namespace tenon
