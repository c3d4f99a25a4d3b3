// A model file is made of another one: its weights are written anew, as GGUF or in the
// form that a quantization component stores.
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

// This is a format that core writes without a component.
struct QuantizeFormat {
  std::string_view name;  // ggml's name for it: "Q8_0"
  tenon_format format;
  uint32_t file_type;  // GGUF's general.file_type for a file that is mostly in this format
  bool safetensors;    // true: safetensors have it as well as GGUF
};
std::span<const QuantizeFormat> quantize_formats();

// This says what matrices are stored as.
struct QuantizeTarget {
  tenon_format format = TENON_Q8_0;                  // it counts if there is no scheme
  std::shared_ptr<const SchemeEncoder> scheme = {};  // a quantization component with its parameters
  std::string name() const;                          // "Q8_0", or the component's name
  // Says that the output is a folder: the component stores several tensors a matrix, so
  // that it is safetensors and not a GGUF file.
  bool makes_folder() const { return scheme != nullptr; }
};

// This sets a parameter of a component: {"group_size", "32"}, or
// {"acme.mine.group_size", "32"} for that component alone.
using QuantizeSetting = std::pair<std::string, std::string>;

// Returns targets by name: the names are those of quantize_formats(), in upper or lower case, or of quantization
// components. A setting goes to each of the components that has the parameter. The registry outlives what is returned.
// Throws Error(kUsage) for a name that is not there (with those that are), a component that writes no files, a setting
// that none of them takes, and a value that its schema does not allow (with what would be right).
std::vector<QuantizeTarget> quantize_targets(std::span<const std::string> names,
                                             std::span<const QuantizeSetting> settings, Registry& registry);

struct QuantizeOverride {
  std::string match;  // a glob over tensor names
  QuantizeTarget target;
};

// A calibration runs texts through the model for schemes that choose by what they see.
struct QuantizeCalibration {
  std::string text;                                    // it is cut into windows
  uint32_t context = 512;                              // a window has so many tokens
  uint32_t windows = 128;                              // so many are read at most; 0 = all of the text
  std::vector<std::string> set;                        // overrides of the pipeline's configuration: "device.use=cuda"
  Registry* registry = nullptr;                        // it has the pipeline's components
  std::vector<std::string> ignore_unknown = {};        // see ModelConfig; quantize_model() sets it
  std::vector<std::filesystem::path> model_dirs = {};  // quantize_model() sets it
};

struct QuantizeProgress {
  size_t tensor = 0, tensors = 0;    // tensors of the input that were begun, and all of them
  std::string_view name;             // the tensor, or the layer that is observed; valid during the call
  uint64_t done = 0, total = 0;      // bytes of the file's tensors
  uint32_t window = 0, windows = 0;  // while a calibration runs: windows read, and all of them; else 0
};

struct QuantizeOptions {
  QuantizeTarget target = {};
  std::vector<QuantizeOverride> overrides = {};  // the last one that matches holds
  std::optional<QuantizeCalibration> calibration = {};
  std::vector<std::string> ignore_unknown = {};        // keys of the model's description, see ModelConfig
  std::vector<std::filesystem::path> model_dirs = {};  // model families are looked for here first
  bool replace = false;                                // true: a file that is there is replaced; never a folder
  // It is called every few milliseconds of work, by one thread at a time. What it throws ends the work, and nothing is
  // left of the file; of a calibration the layers are left that were stored.
  std::function<void(const QuantizeProgress&)> progress = {};
};

// An exception is a matrix that is stored as F16: it cannot be stored as was wanted, or it is a mixture's router, and no
// override names it. A router is stored as F32 where a scheme's factors are multiplied into its columns.
struct QuantizeException {
  std::string tensor, wanted, reason;
};

struct QuantizeReport {
  uint64_t input_bytes = 0, file_bytes = 0;  // the sizes of whole files
  uint64_t bytes_written = 0;                // the tensors have so many as stored
  uint64_t weights = 0;
  std::map<std::string, size_t> tensors;  // by format or scheme: so many of the input's tensors were written so
  size_t requantized = 0;                 // so many were in another block format before
  size_t resumed = 0;                     // layers that an earlier run with the same calibration had stored
  std::vector<QuantizeException> exceptions;
  // These were written as without a calibration, by a scheme that observes: no row of the texts went to the expert, or
  // its device does not observe experts. Layers that are `resumed` are not looked at.
  std::vector<std::string> unseen;
};

// Writes the model `input` (a GGUF file, or any file of a split one; a Hugging Face folder) anew, with
// its matrices as the options say, and with its tokenizer and description. It holds a few MB at a time,
// and a whole matrix if a scheme asks for it.
//
// A format of core's own makes one GGUF file, version 3. A GGUF input's metadata is copied byte for byte but for
// general.file_type, general.quantization_version and the keys of a split; a Hugging Face folder is translated:
// names, order of the rows of Q and K, description, tokenizer. Tensors of one dimension that were plain floats are
// stored as F32, matrices whose rows are no whole number of blocks as F16; tensors that are no floats, and those that
// are in the wanted format already, are copied.
//
// A quantization component makes a folder: model.safetensors, in which a matrix "X.weight" becomes the tensors that the
// component describes, as "X.<name>"; config.json with the component's description as its quantization_config; and the
// tokenizer's files. A GGUF input's names and description are translated, and its tokenizer goes into tokenizer.gguf.
// A matrix that the component refuses is stored as F16. A tensor that is no matrix is copied.
//
// Layers are encoded one after the other if there is a calibration: the rows of the texts run through the layer,
// the component observes its matrices, and they run through it again in the form in which it is stored, which
// gives the rows that enter the next one. The head comes last. A pipeline holds one layer at a time. What is
// encoded is stored in the folder "<output>.calibrated", layer by layer, beside the rows (f32, two files of
// tokens * width at most); a run that ends before its time leaves it, and the same call goes on from the layers
// that are whole. It is removed in the end.
//
// `output` appears complete or not at all, even if the process is killed. Throws Error(kUsage) for an output that is
// there and may not be replaced, for an override that matches no matrix or does not fit the kind of file, for a
// calibration that none of the components wants, and where "<output>.calibrated" is of another call; Error(kModel) for
// an input that cannot be translated, and for weights that are NaN, infinite or beyond the format's range, with their
// place; Error(kIo) for what cannot be read or written; with a calibration what Pipeline::build() and load() throw.
QuantizeReport quantize_model(const std::string& input, const std::filesystem::path& output,
                              const QuantizeOptions& options);

}  // namespace tenon
