// bitsandbytes stores a matrix of N rows and K columns so.
//   nf4 and fp4:
//     weight u8 (N K / 2, 1)        two codes a byte, the first in the upper half, row after row
//     weight.absmax f32 (N K / B)   the scale of each B weights; with double quantization codes u8 of it, and
//     weight.nested_quant_map f32 (256), weight.nested_absmax f32: a scale is map[code] * nested_absmax[i / b] + offset
//     weight.quant_map f32 (16)     what codes stand for
//     weight.quant_state.bitsandbytes__nf4 (or fp4) u8
//                                   JSON: blocksize (B), nested_blocksize (b), nested_offset, shape
//   int8:
//     weight i8 (N, K)
//     SCB f32 (N)                   a weight is weight * SCB / 127
#include <optional>

#include "../int8_rows/definition.h"
#include "../published/description.h"
#include "../published/matrix.h"
#include "../published/plain_lists.h"
#include "rounded.h"
#include "schema.h"

namespace tenon::bitsandbytes {
namespace {

using published::Description;
using published::Floats;

constexpr char kState[] = "weight.quant_state.bitsandbytes__";

constexpr const char* kThreshold = "llm_int8_threshold";

// x of this magnitude and above stays out of int8; 0: none does.
float threshold_of(const Description& d) {
  const auto threshold = static_cast<float>(d.number(kThreshold, 6));
  if (!(threshold >= 0) || !std::isfinite(threshold)) d.wrong(kThreshold, "a number that is 0 or greater");
  return threshold;
}

bool is_int8(const tenon_matrix& m) {
  return sdk::find_tensor(m, "SCB") != nullptr;
}

void need_known(const Description& d) {
  (void)d.need("quant_method", {"bitsandbytes"});
  d.only("bnb_4bit_quant_storage", {"uint8"});
  for (const char* key : {"load_in_4bit", "load_in_8bit", "bnb_4bit_use_double_quant"}) (void)d.boolean(key, false);
  d.only("bnb_4bit_quant_type", {"nf4", "fp4"});
  (void)threshold_of(d);
  // The matrices themselves say what they hold. The rest is about the type in which x is multiplied, which is f32 here.
  constexpr std::string_view kHarmless[] = {"_load_in_4bit",
                                            "_load_in_8bit",
                                            "bnb_4bit_compute_dtype",
                                            "llm_int8_enable_fp32_cpu_offload",
                                            "llm_int8_has_fp16_weight",
                                            "llm_int8_skip_modules",
                                            "modules_to_not_convert"};
  d.need_all_read(kHarmless);
}

class Int8Matrix final : public published::Matrix {
 public:
  Int8Matrix(const tenon_linear& s, uint32_t mat) : Matrix(s, mat), tensors_(s, mat) { coding_ = kInt8; }
  void take_rows(const tenon_rows& src, const Put& put) override {
    const std::vector<float> scales = tensors_.scales(expert_of(src), [&](uint32_t t) { return src.tensor[t]; });
    const auto* weights = static_cast<const uint8_t*>(src.tensor[tensors_.weights()].data);
    std::vector<uint8_t> codes(columns_);
    for (uint64_t row = 0; row < rows_; ++row, weights += columns_) {
      for (uint32_t i = 0; i < columns_; ++i) codes[i] = static_cast<uint8_t>(weights[i] ^ 128U);
      put(row, {codes.data(), &scales[row]});
    }
  }

 private:
  RoundedMatrix tensors_;
};

class Float4Matrix final : public published::Matrix {
 public:
  Float4Matrix(const tenon_linear& s, uint32_t mat, bool normal) : Matrix(s, mat), normal_(normal) {
    const tenon_matrix& m = s.matrix[mat];
    const int64_t n = s.out_dim[mat], k = s.in_dim;
    state_name_ = std::string(kState) + (normal ? "nf4" : "fp4");
    published::need_tensor(m, {"weight", TENON_U8, 2, {(n * k + 1) / 2, 1, 0, 0}});
    published::need_tensor(m, {"weight.quant_map", TENON_F32, 1, {16, 0, 0, 0}});
    state_ = published::index_of(m, state_name_);
    nested_ = sdk::find_tensor(m, "weight.nested_absmax") != nullptr ||
              sdk::find_tensor(m, "weight.nested_quant_map") != nullptr;
    blocks_ = need_vector(m, "weight.absmax", nested_ ? TENON_U8 : TENON_F32, (n * k + 63) / 64);
    std::vector<std::string_view> known = {"weight", "weight.absmax", "weight.quant_map", state_name_};
    if (nested_) known.insert(known.end(), {"weight.nested_absmax", "weight.nested_quant_map"});
    published::need_no_others(m, known);
    if (nested_) {
      published::need_tensor(m, {"weight.nested_quant_map", TENON_F32, 1, {256, 0, 0, 0}});
      nested_blocks_ = need_vector(m, "weight.nested_absmax", TENON_F32, (n * k + 16383) / 16384);
    }
    weights_ = published::index_of(m, "weight");
    map_ = published::index_of(m, "weight.quant_map");
    absmax_ = published::index_of(m, "weight.absmax");
    nested_absmax_ = published::index_of(m, "weight.nested_absmax");
    nested_map_ = published::index_of(m, "weight.nested_quant_map");
    coding_ = normal ? kNf4 : kFp4;
  }

  void take_rows(const tenon_rows& src, const Put& put) override {
    check_map(src);
    const std::vector<float> scales = read_scales(src);
    const auto* bytes = static_cast<const uint8_t*>(src.tensor[weights_].data);
    std::vector<uint8_t> codes(columns_), swapped(columns_ / 2);  // read_scales() refuses odd rows
    std::vector<float> scale((columns_ + Schema::kBlock - 1) / Schema::kBlock);
    for (uint64_t row = 0; row < rows_; ++row, bytes += swapped.size()) {
      for (size_t i = 0; i < swapped.size(); ++i) swapped[i] = static_cast<uint8_t>(bytes[i] << 4 | bytes[i] >> 4);
      published::unpack_codes(4, swapped.data(), columns_, codes.data());
      for (size_t g = 0; g < scale.size(); ++g) {
        scale[g] = scales[(row * columns_ + g * Schema::kBlock) / block_] * unit();
      }
      put(row, {codes.data(), scale.data()});
    }
  }

 private:
  float value(uint32_t code) const { return normal_ ? coded::NormalFloat4::value(code) : coded::Float4::value(code); }
  // The held values are so many times those of bitsandbytes, whose largest is 1.
  float unit() const { return 1 / (normal_ ? coded::NormalFloat4::kLargest : coded::Float4::kLargest); }

  // Returns the length of a tensor whose block size stands in the file itself. usual: most files have it, for messages.
  static uint64_t need_vector(const tenon_matrix& m, const char* name, tenon_format format, int64_t usual) {
    tenon_stored wanted = {name, format, 1, {usual, 0, 0, 0}};
    const tenon_stored* found = sdk::find_tensor(m, name);
    if (found != nullptr && found->rank == 1) wanted.dim[0] = found->dim[0];
    return static_cast<uint64_t>(published::need_tensor(m, wanted).dim[0]);
  }

  // The values of the codes are those that every release has written.
  void check_map(const tenon_rows& src) const {
    const Floats map(src.tensor[map_], TENON_F32, full_name("weight.quant_map"));
    constexpr float kNear = 1e-6F;
    for (uint32_t i = 0; i < 16; ++i) {
      if (std::abs(map[i] - value(i) * unit()) <= kNear) continue;
      throw sdk::Failed("tensor " + full_name("weight.quant_map") + ": code " + std::to_string(i) + " stands for " +
                        std::to_string(map[i]) + "; expected " + std::to_string(value(i) * unit()) + " as in " +
                        (normal_ ? "nf4" : "fp4"));
    }
  }
  // The JSON beside the codes says this.
  struct State {
    uint64_t block = 0, nested_block = 1;
    float offset = 0;
  };
  State state(const tenon_rows& src) const {
    const tenon_slice& text = src.tensor[state_];
    const auto size = [](const Description& d, const std::string& key) {
      const int64_t found = d.integer(key, 0);
      if (found <= 0) d.wrong(key, "a positive whole number");
      return static_cast<uint64_t>(found);
    };
    try {
      const Description d({static_cast<const char*>(text.data), text.bytes},
                          "tensor " + full_name(state_name_.c_str()));
      State s{size(d, "blocksize"), 1, 0};
      if (s.block % Schema::kBlock != 0) d.wrong("blocksize", "a multiple of 64");
      if (size(d, "shape.0") != rows_) d.wrong("shape.0", std::to_string(rows_) + " rows");
      if (size(d, "shape.1") != columns_) d.wrong("shape.1", std::to_string(columns_) + " columns");
      d.only("quant_type", {normal_ ? "nf4" : "fp4"});
      if (!nested_) return s;
      s.nested_block = size(d, "nested_blocksize");
      if (!d.has("nested_offset")) d.wrong("nested_offset", "a number");
      s.offset = static_cast<float>(d.number("nested_offset", 0));
      return s;
    } catch (const sdk::Refused& e) {
      throw sdk::Failed(e.what());
    }
  }
  [[noreturn]] void wrong(const std::string& what) const {
    throw sdk::Failed("tensor " + full_name(state_name_.c_str()) + ": " + what);
  }

  // Returns the scale of each block, with double quantization computed in f32 as bitsandbytes does.
  std::vector<float> read_scales(const tenon_rows& src) {
    const State s = state(src);
    block_ = s.block;
    if (columns_ % Schema::kBlock != 0) wrong("rows of " + std::to_string(columns_) + " are not whole blocks of 64");
    if ((rows_ * columns_ + block_ - 1) / block_ != blocks_) {
      wrong("blocksize is " + std::to_string(block_) + ", and there are " + std::to_string(blocks_) + " scales");
    }
    std::vector<float> scales(blocks_);
    if (!nested_) {
      const Floats absmax(src.tensor[absmax_], TENON_F32, full_name("weight.absmax"), Floats::Sign::kNotNegative);
      for (uint64_t i = 0; i < blocks_; ++i) scales[i] = absmax[i];
      return scales;
    }
    const Floats map(src.tensor[nested_map_], TENON_F32, full_name("weight.nested_quant_map"));
    const Floats absmax(src.tensor[nested_absmax_], TENON_F32, full_name("weight.nested_absmax"),
                        Floats::Sign::kNotNegative);
    if ((blocks_ + s.nested_block - 1) / s.nested_block != nested_blocks_) {
      wrong("nested_blocksize is " + std::to_string(s.nested_block) + ", and there are " +
            std::to_string(nested_blocks_) + " nested scales of " + std::to_string(blocks_));
    }
    for (uint64_t i = 0; i < blocks_; ++i) {
      scales[i] = map[published::value_at<uint8_t>(src.tensor[absmax_], i)] * absmax[i / s.nested_block] + s.offset;
    }
    return scales;
  }

  bool normal_, nested_ = false;
  std::string state_name_;
  uint32_t weights_ = 0, map_ = 0, absmax_ = 0, state_ = 0, nested_absmax_ = 0, nested_map_ = 0;
  uint64_t blocks_ = 0, nested_blocks_ = 0, block_ = Schema::kBlock;
};

}  // namespace

RoundedMatrix::RoundedMatrix(const tenon_linear& s, uint32_t mat)
    : names_(published::names_of(s, mat)), rows_(static_cast<uint64_t>(s.out_dim[mat])) {
  const tenon_matrix& m = s.matrix[mat];
  published::need_unlisted(s, mat);
  published::need_tensor(m, {"weight", TENON_I8, 2, {s.out_dim[mat], s.in_dim, 0, 0}});
  published::need_tensor(m, {"SCB", TENON_F32, 1, {s.out_dim[mat], 0, 0, 0}});
  published::need_no_others(m, {"SCB", "weight", "weight_format"});
  weights_ = published::index_of(m, "weight");
  scales_ = published::index_of(m, "SCB");
  format_ = published::index_of(m, "weight_format");
  has_format_ = format_ < m.n_tensors;
  if (has_format_) published::need_tensor(m, {"weight_format", TENON_U8, 0, {}});
  threshold_ = threshold_of(Description(s.description));
}

std::vector<float> RoundedMatrix::scales(size_t expert, const published::ReadTensor& read) const {
  const auto named = [&](const char* tensor) { return "\"" + names_[expert] + "." + tensor + "\""; };
  const auto format = has_format_ ? published::value_at<uint8_t>(read(format_), 0) : uint8_t{0};
  if (format != 0) {
    throw sdk::Failed("tensor " + named("weight_format") + " is " + std::to_string(format) +
                      "; expected 0, rows one after the other");
  }
  const Floats largest(read(scales_), TENON_F32, named("SCB"), Floats::Sign::kNotNegative);
  std::vector<float> of_rows(rows_);
  for (uint64_t row = 0; row < rows_; ++row) of_rows[row] = largest[row] / 127;
  return of_rows;
}

bool Choice::rounds_x(const tenon_linear& s) const {
  if (s.product_wanted == 0 || !rounds_) return false;
  uint32_t n = 0;
  for (uint32_t i = 0; i < s.n_mats; ++i) n += is_int8(s.matrix[i]) ? 1 : 0;
  if (n != 0 && n < s.n_mats) throw sdk::Refused("matrices side by side of which only some round x");
  if (n == 0) return false;
  need_known(Description(s.description));
  return true;
}

std::unique_ptr<published::Matrix> Schema::published(const tenon_linear& s, uint32_t mat) {
  const tenon_matrix& m = s.matrix[mat];
  const bool nf4 = sdk::find_tensor(m, std::string(kState) + "nf4") != nullptr;
  const bool fp4 = sdk::find_tensor(m, std::string(kState) + "fp4") != nullptr;
  const bool int8 = is_int8(m);
  if (!nf4 && !fp4 && !int8) {
    published::refuse_form(m, std::string("weight with ") + kState + "nf4 or fp4, or with SCB");
  }
  need_known(Description(s.description));
  published::need_unlisted(s, mat);
  if (int8) return std::make_unique<Int8Matrix>(s, mat);
  return std::make_unique<Float4Matrix>(s, mat, nf4);
}

}  // namespace tenon::bitsandbytes
