// Here a quantization component writes matrices: describe() and encode() of its instance run on the host's CPU.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "../pipeline/context.h"
#include "tenon/abi/quantization.h"

namespace tenon {

// This is a matrix of a model, and what it is there.
struct ModelMatrix {
  std::string path;    // "layers.3.attention.q", which experts share; if no model declares it, its name
  std::string name;    // the file's name without ".weight"
  bool known = false;  // true: a model declares it
  int32_t layer = -1;  // -1: in no layer
  int64_t rows = 0, columns = 0;
  bool product = true, lookup = false;  // see LinearDecl
  std::optional<uint32_t> expert = {};  // its number among the experts that share the path
};

// A scheme writes these tensors for a matrix.
struct MatrixDescription {
  struct Tensor {
    std::string name;  // it follows the matrix's name and a dot
    tenon_format format;
    std::vector<int64_t> shape;
    bool by_row;  // true: the first dimension is the matrix's rows
    uint64_t bytes() const;
  };
  std::vector<Tensor> tensors;
  bool whole = false;       // encode() takes all rows in one call
  std::string description;  // JSON
  std::string plain_names;  // the key in it of a list of what stays plain; "": there is none
};

// These matrices share x; those of experts have each the rows that came to it. See tenon_column_factors.
struct SharedColumns {
  std::vector<const ModelMatrix*> matrices;          // [n], or [experts][n]
  std::vector<const float*> data;                    // the matrices' weights
  std::vector<std::span<const std::byte>> observed;  // [1], or [experts]; empty: no row came
  std::span<const uint32_t> tied;
  bool routed = false;
};

// Thread: any may call encode(), one at a time for one matrix; one at a time may call the others.
class SchemeEncoder {
 public:
  // The configuration is that of a quantization component. The registry outlives it. Throws Error: kUsage for a
  // component that writes no files, else as Registry::load and Instance do.
  SchemeEncoder(ComponentConfig config, Registry& registry);

  const ComponentConfig& config() const { return config_; }
  const std::string& name() const { return config_.name; }
  bool observes() const { return table().observe != nullptr; }
  bool observes(const ModelMatrix& matrix) const;
  bool scales_columns() const { return observes() && table().column_factors != nullptr; }

  // Returns the description, or the reason of the refusal. Throws Error(kPlugin)
  // for a description that cannot be stored.
  std::variant<MatrixDescription, std::string> describe(const ModelMatrix& matrix) const;
  // See tenon_encode. Throws Error: kModel with the scheme's reason where it refuses the numbers, kPlugin.
  void encode(const ModelMatrix& matrix, const tenon_encode& rows) const;
  // Returns the factors of the columns. Throws Error(kPlugin) for factors that are no numbers above 0, and for
  // different ones of tied columns.
  std::vector<float> column_factors(const SharedColumns& shared) const;

 private:
  const tenon_quantization& table() const { return instance_.table<tenon_quantization>(); }
  void check(const ModelMatrix& matrix, const MatrixDescription& described) const;

  ComponentConfig config_;
  std::unique_ptr<Context> context_;
  Instance instance_;
};

}  // namespace tenon
