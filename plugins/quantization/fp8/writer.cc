// This writes matrices of N rows and K columns in e4m3 as other programs read them:
//   blocks   X.weight (N, K), X.weight_scale_inv f32 (ceil(N / 128), ceil(K / 128)):
//            quant_method "fp8", DeepSeek's form
//   tensor   X.weight (N, K), X.weight_scale f32 (1): compressed-tensors' format "float-quantized"
//   tensor or row with static activations   the same form; of rows X.weight_scale f32 (N, 1); and X.input_scale f32
//                                           (1): the largest magnitude of x that calibration saw, over 448
// Embeddings and the head stay as they are, as those programs expect.
#include "../published/writer.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "../coded/quantize.h"
#include "published.h"
#include "tenon/sdk/error.h"

namespace tenon::fp8 {
namespace {

using Codes = PublishedSchema::Codes<0>;

constexpr int64_t kBlock = PublishedSchema::kBlock;
constexpr const char* kBlocks =
    R"({"quant_method":"fp8","fmt":"e4m3","activation_scheme":"dynamic","weight_block_size":[128,128],)"
    R"("modules_to_not_convert":["lm_head"]})";
// Returns what compressed-tensors says of numbers in e4m3; `strategy` says what has a scale.
std::string numbers(const std::string& strategy) {
  return R"({"num_bits":8,"type":"float","strategy":")" + strategy + R"(","symmetric":true,"dynamic":false})";
}
std::string compressed_description(bool rows, bool static_x) {
  return R"({"quant_method":"compressed-tensors","format":"float-quantized","quantization_status":"compressed",)"
         R"("ignore":["lm_head"],"config_groups":{"group_0":{"targets":["Linear"],"input_activations":)" +
         (static_x ? numbers("tensor") : "null") + R"(,"output_activations":null,"weights":)" +
         numbers(rows ? "channel" : "tensor") + "}}}";
}
static_assert(kBlock == 128);

struct Part {
  int64_t row0, column0, rows, columns;
};

// Makes the codes of a part of a matrix, and returns its scale.
float encode_part(const float* w, int64_t k, const Part& part, uint8_t* codes) {
  coded::Range range;
  const auto each = [&](const auto& use) {
    for (int64_t r = part.row0; r < part.row0 + part.rows; ++r) {
      for (int64_t i = part.column0; i < part.column0 + part.columns; ++i) use(r * k + i);
    }
  };
  each([&](int64_t at) { range.add(w[at]); });
  if (!range.finite) {
    throw sdk::Refused("rows " + std::to_string(part.row0) + " to " + std::to_string(part.row0 + part.rows - 1) +
                       " have a weight that is not finite");
  }
  const coded::Scale scale = Codes::scale_of(range);
  each([&](int64_t at) { codes[at] = static_cast<uint8_t>(Codes::code(w[at], scale)); });
  return scale.scale;
}

class Fp8Writer final : public published::Writer {
 public:
  Fp8Writer(std::string scales, bool static_x)
      : scales_(std::move(scales)),
        static_x_(static_x),
        description_(blocks() ? kBlocks : compressed_description(rows(), static_x)) {}

  tenon_written describe(const tenon_linear& s) const override {
    if (s.rows_wanted != 0 || std::string_view(s.path) == "lm_head") {
      throw sdk::Refused("this form of fp8 leaves embeddings and the head as they are");
    }
    if (static_x_ && blocks()) {
      throw sdk::Refused(
          "no form has scales = \"block\" and activations = \"static\"; expected scales of a row or a tensor");
    }
    const int64_t n = s.out_dim[0], k = s.in_dim;
    auto w = sdk::abi_struct<tenon_written>();
    w.whole = 1;
    w.tensor[w.n_tensors++] = {"weight", TENON_F8E4M3, 2, {n, k}};
    w.tensor[w.n_tensors++] = blocks() ? tenon_stored{"weight_scale_inv", TENON_F32, 2, {parts(n), parts(k)}}
                              : rows() ? tenon_stored{"weight_scale", TENON_F32, 2, {n, 1}}
                                       : tenon_stored{"weight_scale", TENON_F32, 1, {1}};
    if (static_x_) w.tensor[w.n_tensors++] = {"input_scale", TENON_F32, 1, {1}};
    w.description = description_.c_str();
    w.plain_names = blocks() ? "modules_to_not_convert" : "ignore";
    return w;
  }

  void encode(const tenon_linear& s, const tenon_encode& e) const override {
    const int64_t n = s.out_dim[0], k = s.in_dim, columns = blocks() ? kBlock : k;
    const int64_t rows = blocks() ? kBlock : this->rows() ? 1 : n;
    auto* scale = static_cast<float*>(e.out[1]);
    for (int64_t row = 0; row < n; row += rows) {
      for (int64_t column = 0; column < k; column += columns) {
        const Part part{row, column, std::min(rows, n - row), std::min(columns, k - column)};
        *scale++ = encode_part(e.data, k, part, static_cast<uint8_t*>(e.out[0]));
      }
    }
    if (static_x_) *static_cast<float*>(e.out[2]) = x_scale(e.observed);
  }

 private:
  bool blocks() const { return scales_ == "block"; }
  bool rows() const { return scales_ == "row"; }
  static int64_t parts(int64_t count) { return (count + kBlock - 1) / kBlock; }
  static float x_scale(const void* observed) {
    if (observed == nullptr) {
      throw sdk::Refused("activations = \"static\" needs a text that shows how large x becomes: --calibrate");
    }
    float largest = 0;
    std::memcpy(&largest, observed, sizeof(largest));
    if (!std::isfinite(largest)) throw sdk::Refused("x was not finite while the text ran");
    return row_scale(largest);
  }

  std::string scales_;
  bool static_x_;
  std::string description_;
};

}  // namespace

std::unique_ptr<published::Writer> PublishedSchema::writer(const sdk::Params& params) {
  const std::string scales = params.text("scales");
  const bool static_x = std::string(params.text("activations")) == "static";
  if (scales == "row" && !static_x) return nullptr;
  return std::make_unique<Fp8Writer>(scales, static_x);
}

}  // namespace tenon::fp8
