// Weights come from a file or a folder through the reader of its format. Readers know nothing of architectures: they
// hand on names and metadata as the file has them, and the model translates them by `convention()`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tenon/abi/device.h"

namespace tenon {

// This is one value of a file's metadata. Integers are int64_t, and uint64_t only beyond its range;
// arrays hold one kind each (booleans as integers). An array of arrays, objects or a mixture appears as
// one entry for each element: "key.0", "key.1", ...
using MetadataValue = std::variant<bool, int64_t, uint64_t, double, std::string, std::vector<int64_t>,
                                   std::vector<double>, std::vector<std::string>>;

// This is one tensor as stored. `shape` is outermost first: a matrix is (rows = outputs,
// columns = inputs), and its rows are contiguous.
struct WeightTensor {
  std::string name;            // the file's name for it
  uint32_t format = 0;         // a tenon_format, see tenon/abi/types.h
  std::vector<int64_t> shape;  // counts of elements; empty = a scalar
  uint64_t bytes = 0;          // the whole tensor has so many as stored
  uint32_t file = 0;           // index into Weights::files()
  uint64_t offset = 0;         // it begins so many bytes after the start of that file
};

// These are the weights of an open model. Any thread may read them after construction. The object owns its mappings.
class Weights {
 public:
  virtual ~Weights() = default;

  // Says whose names tensors and metadata have: "gguf" or "huggingface".
  virtual std::string_view convention() const = 0;
  virtual const std::vector<std::filesystem::path>& files() const = 0;
  virtual const std::vector<WeightTensor>& tensors() const = 0;
  // Returns the tensor of that name; nullptr if there is none.
  virtual const WeightTensor* find(std::string_view name) const = 0;
  // Returns all tensors whose names are this name, a dot and something more, sorted by name.
  virtual std::vector<const WeightTensor*> find_under(std::string_view name) const = 0;

  // Returns the metadata of a key; nullptr if there is none. config.json is flattened with dots
  // ("rope_scaling.factor"), and its quantization_config is there as JSON text as well;
  // "null_keys" lists its keys that are null.
  virtual const MetadataValue* metadata(std::string_view key) const = 0;
  virtual std::vector<std::string> metadata_keys() const = 0;

  // Returns the tensor's bytes in the file's mapping, valid for the life of this object; nullptr if there is no mapping
  // (synthetic) or if the file has the tensor at an address from which its format cannot be read. read() works for
  // both. Reading the bytes pages them in: errors of the medium arrive as SIGBUS, as for any mapping.
  virtual const std::byte* mapped(const WeightTensor& tensor) const = 0;
  // Copies bytes [offset, offset + out.size()) of the tensor as stored. Throws Error(kIo).
  virtual void read(const WeightTensor& tensor, uint64_t offset, std::span<std::byte> out) const = 0;
  // Says how a device makes up bytes [offset, offset + bytes) of the tensor itself, as read() gives them; nothing if
  // they come from a file. The table lives as long as this object.
  virtual std::optional<tenon_generated> generated(const WeightTensor&, uint64_t, uint64_t) const { return {}; }
  // Hints that the mapped bytes are wanted soon: it starts paging them in and returns at once.
  virtual void prefetch(const WeightTensor&) const {}
  // Hints that these mapped bytes are not wanted soon: they stay readable, but are paged in anew.
  virtual void release(const WeightTensor&, uint64_t /*offset*/, uint64_t /*bytes*/) const {}
};

// These are options of single readers; the others do not look at them.
struct WeightsOptions {
  uint64_t seed = 1;                 // the same seed gives the same synthetic weights on every machine
  tenon_format format = TENON_BF16;  // synthetic: TENON_BF16, TENON_F16 or TENON_F32
};

// This is a reader as the registry lists it.
struct WeightsReader {
  std::string_view name;                    // the value in TOML
  std::string_view doc;                     // one line that says what it accepts
  bool (*claims)(const std::string& path);  // looks at the name and the first bytes; never throws
  std::unique_ptr<Weights> (*open)(const std::string& path, const WeightsOptions& options);
};

std::span<const WeightsReader> builtin_weights_readers();

// Opens a Hugging Face folder, a .safetensors file, a .gguf file or "synthetic:NAME" with the first reader that claims
// it. Throws Error(kIo) for a file that cannot be read, and Error(kModel) for one that is not as it should be, with the
// file, the tensor or key, the offset, what was found and what would be right.
std::unique_ptr<Weights> open_weights(const std::string& path, const WeightsOptions& options = {});

// These look up a value with its type. A missing key gives nullopt; a value of another kind throws
// Error(kModel) that names the file and key.
std::optional<int64_t> metadata_int(const Weights& weights, std::string_view key);
std::optional<double> metadata_real(const Weights& weights, std::string_view key);
std::optional<bool> metadata_bool(const Weights& weights, std::string_view key);
std::optional<std::string> metadata_text(const Weights& weights, std::string_view key);

}  // namespace tenon
