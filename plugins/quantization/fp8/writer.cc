// Matrices of N rows and K columns in e4m3 as other programs read them:
//   blocks   X.weight (N, K), X.weight_scale_inv f32 (ceil(N / 128), ceil(K / 128)): quant_method "fp8", DeepSeek's form
//   tensor   X.weight (N, K), X.weight_scale f32 (1): compressed-tensors' format "float-quantized"
// Embeddings and the head stay as they are, as those programs expect.
#include "../published/writer.h"

#include <algorithm>
#include <cstdint>
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
constexpr const char* kTensor =
    R"({"quant_method":"compressed-tensors","format":"float-quantized","quantization_status":"compressed",)"
    R"("ignore":["lm_head"],"config_groups":{"group_0":{"targets":["Linear"],"input_activations":null,)"
    R"("output_activations":null,"weights":{"num_bits":8,"type":"float","strategy":"tensor","symmetric":true,)"
    R"("dynamic":false}}}})";
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
  explicit Fp8Writer(bool blocks) : blocks_(blocks) {}

  tenon_written describe(const tenon_linear& s) const override {
    if (s.rows_wanted != 0 || std::string_view(s.path) == "lm_head") {
      throw sdk::Refused("this form of fp8 leaves embeddings and the head as they are");
    }
    const int64_t n = s.out_dim[0], k = s.in_dim;
    auto w = sdk::abi_struct<tenon_written>();
    w.whole = 1;
    w.tensor[w.n_tensors++] = {"weight", TENON_F8E4M3, 2, {n, k}};
    w.tensor[w.n_tensors++] = blocks_ ? tenon_stored{"weight_scale_inv", TENON_F32, 2, {parts(n), parts(k)}}
                                      : tenon_stored{"weight_scale", TENON_F32, 1, {1}};
    w.description = blocks_ ? kBlocks : kTensor;
    return w;
  }

  void encode(const tenon_linear& s, const tenon_encode& e) const override {
    const int64_t n = s.out_dim[0], k = s.in_dim, rows = blocks_ ? kBlock : n, columns = blocks_ ? kBlock : k;
    auto* scale = static_cast<float*>(e.out[1]);
    for (int64_t row = 0; row < n; row += rows) {
      for (int64_t column = 0; column < k; column += columns) {
        const Part part{row, column, std::min(rows, n - row), std::min(columns, k - column)};
        *scale++ = encode_part(e.data, k, part, static_cast<uint8_t*>(e.out[0]));
      }
    }
  }

 private:
  static int64_t parts(int64_t count) { return (count + kBlock - 1) / kBlock; }

  bool blocks_;
};

}  // namespace

std::unique_ptr<published::Writer> PublishedSchema::writer(const sdk::Params& params) {
  const std::string scales = params.text("scales");
  if (scales == "row") return nullptr;
  return std::make_unique<Fp8Writer>(scales == "block");
}

}  // namespace tenon::fp8
