// quantization.fp8 has what Schema has, and the matrices of published checkpoints.
//   quant_method "fp8"     X.weight e4m3, X.weight_scale, or X.weight_scale_inv a block (DeepSeek's form)
//   quant_method "compressed-tensors" of format "float-quantized"    X.weight e4m3, X.weight_scale
// A weight stands for its code's value times the scale, in both names of it. A scale is one number of the matrix (),
// (1) or (1, 1), one of each row (N) or (N, 1), or one of each block, in f32, f16 or bf16.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "../published/matrix.h"
#include "activations.h"
#include "schema.h"

namespace tenon::published {
class Writer;
}  // namespace tenon::published

namespace tenon::fp8 {

// This is a matrix of a published checkpoint, and the scale of x that comes with it.
class PublishedMatrix : public published::Matrix {
 public:
  using Matrix::Matrix;
  float x_scale() const { return x_scale_; }  // the file has it, once loaded; 0: it has none

 protected:
  float x_scale_ = 0;
};

struct PublishedSchema : Schema {
  // Blocks have a scale of their own in each row.
  static constexpr uint32_t kBlock = 128;
  static constexpr coded::Coding kCodings[] = {
      Schema::kCodings[0],
      {.bits = 8, .group = kBlock, .scaling = coded::Scaling::kGroup, .weight_format = TENON_F8E4M3}};
  // Returns a PublishedMatrix.
  static std::unique_ptr<published::Matrix> published(const tenon_linear& s, uint32_t mat);
  // Returns what the products of a site do with x. wish: the parameter `activations`; "auto" is what config.json says of
  // matrices that are stored in one of these forms. Throws Refused where a static scale is missing, and for what
  // config.json says of x and is not done here.
  static Rounding rounding(const tenon_linear& s, std::string_view wish);
  // Returns the names of the scales of x that the file has of the site's matrices.
  static std::vector<std::string> x_scales(const tenon_linear& s);
  // Returns null where it writes the scheme's own tensors.
  static std::unique_ptr<published::Writer> writer(const sdk::Params& params);
};

}  // namespace tenon::fp8
