// The file readers share these: they collect findings, compute sizes without overflow, and check where tensors lie.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/core/error.h"
#include "tenon/core/weights.h"

namespace tenon::weights {

// Findings about one file, or several, are thrown together. The first twenty are kept, and the rest is counted.
class Findings {
 public:
  // All findings are about `file`; "" if each names its own.
  explicit Findings(std::string file) : file_(std::move(file)) {}

  void add(std::string message);
  void add(Diagnostic finding);
  // Throws Error(kModel) if there are any.
  void throw_if_any();

 private:
  std::string file_;
  std::vector<Diagnostic> shown_;
  size_t more_ = 0;
};

// Returns a name from a file made fit for a message: in quotes, control and
// non-ASCII bytes as \xNN, cut after 100 bytes.
std::string in_quotes(std::string_view name);

// Returns the bytes of a tensor as stored; nullopt where they do not fit into 63 bits or the innermost dimension is no
// whole number of blocks. All of `shape` must be >= 0 and `format` known.
std::optional<uint64_t> stored_bytes(tenon_format format, std::span<const int64_t> shape);

// Returns the alignment that a format's blocks need in memory, 1 to 8.
uint64_t natural_alignment(tenon_format format);

// This key of the metadata has the paths of config.json's null keys. No key of the file can be written like this.
inline constexpr char kNullKeys[] = "\\null_keys";
bool is_null(const Weights& weights, std::string_view key);

// Returns "q4_1 (64, 32)" and the like.
std::string describe(const WeightTensor& tensor);
// Returns the file that the metadata comes from: the first of GGUF, config.json; "" for weights without files.
std::string description_file(const Weights& weights);
// Returns "0.5", "1e-30" and the like.
std::string in_figures(double value);
// Returns "the text \"abc\"", "a list of 3 numbers", and lists of a few texts in full.
std::string describe(const MetadataValue& value);

struct DataRegion {
  uint64_t begin = 0;       // bytes from the start of the file
  uint64_t file_bytes = 0;  // the region ends with the file
  // Each tensor begins at the first multiple of it after the one before, and the file ends at such a multiple or right
  // after the last; 1: no gaps. 0: unknown, gaps are not looked for.
  uint64_t alignment = 0;
};

// Reports tensors of one file that reach beyond it or overlap, and gaps beyond the alignment.
void check_layout(std::span<const WeightTensor> tensors, const DataRegion& region, Findings& findings);

}  // namespace tenon::weights
