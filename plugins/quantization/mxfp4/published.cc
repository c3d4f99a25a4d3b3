// A matrix of N rows and K columns has floats of four bits, e2m1, two a byte, the first in the lower half:
//   MXFP4  compressed-tensors, format "mxfp4-pack-quantized"   weight_packed u8 (N, K / 2), weight_scale u8 (N, K / 32)
//          quant_method "mxfp4"                                blocks u8 (N, K / 32, 16), scales u8 (N, K / 32)
//   NVFP4  compressed-tensors, format "nvfp4-pack-quantized"   weight_packed u8 (N, K / 2), weight_scale e4m3
//                                                              (N, K / 16), weight_global_scale f32 (1)
// A weight stands for its code's value times 2^(scale - 127), in NVFP4 times scale / global scale.
#include "../published/compressed_tensors.h"
#include "../published/description.h"
#include "../published/matrix.h"
#include "../published/plain_lists.h"
#include "schema.h"

namespace tenon::mxfp4 {
namespace {

using published::Description;

constexpr uint32_t kMxGroup = 32, kNvGroup = 16;
constexpr uint8_t kNoNumber = 255;  // this exponent stands for no number

// A checkpoint calls its tensors so; nv says how its scales are.
struct Form {
  const char *codes, *scales;
  bool nv = false;
};

Form form_of(const Description& d) {
  if (d.need("quant_method", {"mxfp4", "compressed-tensors"}) == "mxfp4") {
    // These say which matrices stay plain, and whether another program unpacks the others.
    constexpr std::string_view kHarmless[] = {"dequantize", "modules_to_not_convert"};
    d.need_all_read(kHarmless);
    return {"blocks", "scales"};
  }
  const std::string group = published::kCompressedGroup, weights = published::kCompressedWeights;
  const std::string format =
      d.need(d.has(group + "format") ? group + "format" : "format", {"mxfp4-pack-quantized", "nvfp4-pack-quantized"});
  d.only("format", {"mxfp4-pack-quantized", "nvfp4-pack-quantized"});
  const bool nv = format == "nvfp4-pack-quantized";
  (void)d.need(weights + "num_bits", {int64_t{4}});
  (void)d.need(weights + "type", {"float"});
  d.only_boolean(weights + "symmetric", true);
  (void)(nv ? d.need(weights + "strategy", {"tensor_group"}) : d.need(weights + "strategy", {"group"}));
  (void)d.need(weights + "group_size", {int64_t{nv ? kNvGroup : kMxGroup}});
  // x is multiplied as it is, whatever is said of it: the README states that.
  (void)compressed_weights(d, true);
  return {"weight_packed", "weight_scale", nv};
}

class E2m1Matrix final : public published::Matrix {
 public:
  E2m1Matrix(const tenon_linear& s, uint32_t mat, const Form& form) : Matrix(s, mat), form_(form) {
    const tenon_matrix& m = s.matrix[mat];
    const int64_t n = s.out_dim[mat], k = s.in_dim;
    if (k % kMxGroup != 0) {
      throw sdk::Refused("matrix \"" + name_ + "\": rows of " + std::to_string(k) +
                         " weights; expected a multiple of 32");
    }
    const bool blocks = std::string_view(form.codes) == "blocks";
    const tenon_stored packed = {form.codes, TENON_U8, 2, {n, k / 2, 0, 0}};
    const tenon_stored in_blocks = {form.codes, TENON_U8, 3, {n, k / kMxGroup, kMxGroup / 2, 0}};
    published::need_tensor(m, blocks ? in_blocks : packed);
    const uint32_t group = form.nv ? kNvGroup : kMxGroup;
    tenon_stored scales = {form.scales, form.nv ? TENON_F8E4M3 : TENON_U8, 2, {n, k / group, 0, 0}};
    const tenon_stored* found = sdk::find_tensor(m, form.scales);
    if (!form.nv && found != nullptr && found->format == TENON_E8M0) scales.format = TENON_E8M0;
    published::need_tensor(m, scales);
    std::vector<std::string_view> known = {form.codes, form.scales};
    if (form.nv) {
      published::need_tensor(m, {"weight_global_scale", TENON_F32, 1, {1, 0, 0, 0}});
      known.push_back("weight_global_scale");
    }
    // The scale of x belongs to products of two numbers of four bits.
    if (!blocks) known.push_back("input_global_scale");
    published::need_no_others(m, known);
    codes_ = published::index_of(m, form.codes);
    scales_ = published::index_of(m, form.scales);
    global_ = published::index_of(m, "weight_global_scale");
    coding_ = form.nv ? kNv : kMx;
  }

  void take_rows(const tenon_rows& src, const Put& put) override {
    const auto* packed = static_cast<const uint8_t*>(src.tensor[codes_].data);
    const auto* stored = static_cast<const uint8_t*>(src.tensor[scales_].data);
    const uint32_t groups = columns_ / (form_.nv ? kNvGroup : kMxGroup);
    const float of_matrix = form_.nv ? global_scale(src) : 0;
    std::vector<uint8_t> codes(columns_);
    std::vector<float> scale(form_.nv ? 1 : groups, of_matrix);
    for (uint64_t row = 0; row < rows_; ++row, packed += columns_ / 2, stored += groups) {
      published::unpack_codes(4, packed, columns_, codes.data());
      for (uint32_t g = 0; g < groups; ++g) {
        const uint64_t at = row * groups + g;
        if (form_.nv) {
          if ((stored[g] & 127U) == 127U) wrong(at, "not finite");
          if (stored[g] > 128U) wrong(at, "negative");
        } else {
          if (stored[g] == kNoNumber) wrong(at, "255, which is no number");
          const uint32_t bits = stored[g] == 0 ? 0x00400000U : uint32_t{stored[g]} << 23;
          std::memcpy(&scale[g], &bits, sizeof(bits));
        }
      }
      put(row, {codes.data(), scale.data(), form_.nv ? stored : nullptr});
    }
  }

 private:
  // Returns 1 / weight_global_scale.
  float global_scale(const tenon_rows& src) const {
    const published::Floats all(src.tensor[global_], TENON_F32, full_name("weight_global_scale"),
                                published::Floats::Sign::kNotNegative);
    const float inverse = 1 / all[0];
    if (std::isfinite(inverse)) return inverse;
    throw sdk::Failed("tensor " + full_name("weight_global_scale") + " is " + std::to_string(all[0]) +
                      "; expected a positive number");
  }
  [[noreturn]] void wrong(uint64_t at, const char* what) const {
    throw sdk::Failed("tensor " + full_name(form_.scales) + ": number " + std::to_string(at) + " is " + what);
  }

  Form form_;
  uint32_t codes_ = 0, scales_ = 0, global_ = 0;
};

}  // namespace

std::unique_ptr<published::Matrix> Schema::published(const tenon_linear& s, uint32_t mat) {
  const tenon_matrix& m = s.matrix[mat];
  if (sdk::find_tensor(m, "weight_packed") == nullptr && sdk::find_tensor(m, "blocks") == nullptr) {
    published::refuse_form(m, "weight_packed and weight_scale of compressed-tensors, or blocks and scales");
  }
  published::need_unlisted(s, mat);
  return std::make_unique<E2m1Matrix>(s, mat, form_of(Description(s.description)));
}

}  // namespace tenon::mxfp4
