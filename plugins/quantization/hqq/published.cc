// HQQ's layers write a matrix of N rows and K columns to safetensors so. Groups of G columns are the rows of a matrix
// (N K / G, G) of codes of b bits, row after row of X; these rows are cut into as many equal stretches as codes fit in
// an element, and an element has one code of each stretch, the first stretch in the highest bits:
//   W_q     b = 8, 4, 2, 1: u8 (N K / G / c, G), c = 8 / b codes; b = 3: i32, c = 10 codes,
//           rows filled up to whole tens
//   scale, zero   (N K / G, 1) in f32, f16 or bf16
//   nbits i32, group_size i32, axis i32, shape i64 (2), packing and unpack_view_dtype u8 (a text), quant_scale,
//   quant_zero, view_as_float and channel_wise u8: they say the same, and are checked; others about how it was made
// A weight stands for (code - zero) * scale.
#include "../published/description.h"
#include "../published/paired.h"
#include "../published/plain_lists.h"
#include "schema.h"

namespace tenon::hqq {
namespace {

using published::Description;

// Returns the bits of a code.
uint32_t bits_of(const Description& d) {
  (void)d.need("quant_method", {"hqq"});
  const std::string of = "quant_config.weight_quant_params.";
  const auto bits = static_cast<uint32_t>(d.need(of + "nbits", {1, 2, 3, 4, 8}));
  (void)d.need(of + "axis", {int64_t{1}});
  d.only_boolean(of + "view_as_float", false);
  d.only_boolean("quant_config.offload_meta", false);
  for (const char* key : {"quant_config.scale_quant_params", "quant_config.zero_quant_params"}) d.only_missing(key);
  for (const char* key : {"channel_wise", "optimize", "round_zero"}) (void)d.boolean(of + key, true);
  // The shape of the scales says how large groups are.
  const std::string group = of + "group_size";
  const std::string_view harmless[] = {group, "skip_modules"};
  d.need_all_read(harmless);
  return bits;
}

class HqqMatrix final : public published::PairedMatrix {
 public:
  HqqMatrix(const tenon_linear& s, uint32_t mat, uint32_t bits)
      : PairedMatrix(s, mat), bits_(bits), codes_an_element_(bits == 3 ? 10 : 8 / bits) {
    const tenon_matrix& m = s.matrix[mat];
    const int64_t all = s.out_dim[mat] * s.in_dim;
    const tenon_stored* scale = sdk::find_tensor(m, "scale");
    const int64_t found = scale != nullptr && scale->rank == 2 ? scale->dim[0] : 0;
    const int64_t group = found > 0 && all % found == 0 ? all / found : 0;
    if (scale != nullptr && (group == 0 || s.in_dim % group != 0 || group % kLeastGroup != 0)) {
      throw sdk::Refused("tensor " + sdk::full_name(m, "scale") + " is " + sdk::type_and_shape(*scale) +
                         "; expected one number for each group, whole multiples of 32 of " + std::to_string(s.in_dim) +
                         " columns");
    }
    const int64_t groups = scale != nullptr ? found : all / std::min<int64_t>(s.in_dim, 64);
    choose_coding(Schema::kCodings, std::max(bits_, 2U),
                  static_cast<uint32_t>(scale != nullptr ? group : std::min<int64_t>(s.in_dim, 64)));
    scale_format_ = published::need_floats(m, {"scale", TENON_F16, 2, {groups, 1, 0, 0}}).format;
    zero_format_ = published::need_floats(m, {"zero", TENON_F16, 2, {groups, 1, 0, 0}}).format;
    stretch_ = static_cast<uint64_t>((groups + codes_an_element_ - 1) / codes_an_element_);
    if (bits != 3 && groups % codes_an_element_ != 0) {
      throw sdk::Refused("matrix \"" + name_ + "\": " + std::to_string(groups) + " groups; expected a multiple of " +
                         std::to_string(codes_an_element_));
    }
    const tenon_format format = bits == 3 ? TENON_I32 : TENON_U8;
    published::need_tensor(m, {"W_q", format, 2, {static_cast<int64_t>(stretch_), int64_t{group_}, 0, 0}});
    for (const char* name : {"nbits", "axis", "group_size"}) {
      if (sdk::find_tensor(m, name) != nullptr) published::need_tensor(m, {name, TENON_I32, 0, {}});
    }
    if (sdk::find_tensor(m, "shape") != nullptr) published::need_tensor(m, {"shape", TENON_I64, 1, {2, 0, 0, 0}});
    for (const Flag& flag : kFlags) {
      if (sdk::find_tensor(m, flag.name) != nullptr) published::need_tensor(m, {flag.name, TENON_U8, 0, {}});
    }
    for (const char* name : {"packing", "unpack_view_dtype"}) {
      const tenon_stored* text = sdk::find_tensor(m, name);
      if (text != nullptr && (text->format != TENON_U8 || text->rank != 1)) {
        throw sdk::Refused("tensor " + sdk::full_name(m, name) + " is " + sdk::type_and_shape(*text) +
                           "; expected a text in u8");
      }
    }
    published::need_no_others(
        m, {"W_q", "axis", "channel_wise", "compute_dtype", "encoded_state_dict", "group_size", "nbits", "offload_meta",
            "optimize", "packing", "quant_scale", "quant_zero", "round_zero", "scale", "shape", "stores_quant_config",
            "unpack_view_dtype", "view_as_float", "zero"});
    codes_ = published::index_of(m, "W_q");
    for (uint32_t i = 0; i < m.n_tensors; ++i) names_.emplace_back(m.tensor[i].name);
  }

 protected:
  void check(const tenon_rows& src) const override {
    const auto need = [&](const char* name, int64_t found, int64_t right) {
      if (found == right) return;
      throw sdk::Failed("tensor " + full_name(name) + " has " + std::to_string(found) + "; expected " +
                        std::to_string(right));
    };
    const auto number = [&](const char* name) { return published::value_at<int32_t>(tensor(src, name), 0); };
    if (has("nbits")) need("nbits", number("nbits"), bits_);
    if (has("axis")) need("axis", number("axis"), 1);
    if (has("group_size")) need("group_size", number("group_size"), group_);
    for (const Flag& flag : kFlags) {
      if (has(flag.name)) need(flag.name, published::value_at<uint8_t>(tensor(src, flag.name), 0), flag.right);
    }
    need_text(src, "packing", std::to_string(bits_) + (bits_ == 3 ? "bit_32" : "bit_u8"));
    need_text(src, "unpack_view_dtype", bits_ == 3 ? "torch.int32" : "torch.uint8");
    if (!has("shape")) return;
    need("shape", published::value_at<int64_t>(tensor(src, "shape"), 0), static_cast<int64_t>(rows_));
    need("shape", published::value_at<int64_t>(tensor(src, "shape"), 1), columns_);
  }
  void take_codes(const tenon_rows& src, uint64_t row, uint8_t* codes) const override {
    const uint32_t groups = columns_ / group_;
    for (uint32_t g = 0; g < groups;) {
      // Groups lie side by side as far as the stretch goes.
      const uint64_t group = row * groups + g, in_stretch = group % stretch_;
      const auto some = static_cast<uint32_t>(std::min<uint64_t>(groups - g, stretch_ - in_stretch));
      take_run(
          src.tensor[codes_],
          {in_stretch * group_, some * group_, static_cast<uint32_t>(codes_an_element_ - 1 - group / stretch_) * bits_},
          codes);
      codes += size_t{some} * group_;
      g += some;
    }
  }
  Numbers numbers_of(const tenon_rows& src) const override {
    return {{tensor(src, "scale"), scale_format_, full_name("scale")},
            {tensor(src, "zero"), zero_format_, full_name("zero")}};
  }
  Pair pair_of(const Numbers& numbers, uint64_t row, uint64_t group) const override {
    const uint64_t of_file = row * (columns_ / group_) + group;
    const float scale = numbers.scales[of_file], offset = -(scale * numbers.zeros[of_file]);
    if (std::isfinite(offset)) return {scale, offset};
    throw sdk::Failed("tensor " + full_name("zero") + ": number " + std::to_string(of_file) +
                      " times its scale is beyond f32");
  }

 private:
  // These say that scales, zero points and codes lie as they are read here.
  struct Flag {
    const char* name;
    uint8_t right;
  };
  static constexpr Flag kFlags[] = {{"channel_wise", 1}, {"quant_scale", 0}, {"quant_zero", 0}, {"view_as_float", 0}};

  void need_text(const tenon_rows& src, const char* name, const std::string& right) const {
    if (!has(name)) return;
    const tenon_slice& stored = tensor(src, name);
    const std::string found(static_cast<const char*>(stored.data), stored.bytes);
    if (found == right) return;
    throw sdk::Failed("tensor " + full_name(name) + " says \"" + found + "\"; expected \"" + right + "\"");
  }
  bool has(std::string_view name) const { return std::find(names_.begin(), names_.end(), name) != names_.end(); }
  const tenon_slice& tensor(const tenon_rows& src, std::string_view name) const {
    return src.tensor[std::find(names_.begin(), names_.end(), name) - names_.begin()];
  }
  // These are elements of W_q that follow each other and have codes of a row, all in the same bits.
  struct Run {
    uint64_t first;
    uint32_t n, shift;
  };
  void take_run(const tenon_slice& packed, const Run& run, uint8_t* codes) const {
    const uint32_t mask = (1U << bits_) - 1;
    if (bits_ == 3) {
      for (uint32_t i = 0; i < run.n; ++i) {
        const auto element = published::value_at<uint32_t>(packed, run.first + i);
        codes[i] = static_cast<uint8_t>(element >> run.shift & mask);
      }
      return;
    }
    // Eight bytes are shifted at once; groups are whole multiples of 32.
    const auto* elements = static_cast<const uint8_t*>(packed.data) + run.first;
    const uint64_t masks = mask * 0x0101010101010101U;
    for (uint32_t i = 0; i < run.n; i += 8) {
      uint64_t eight;
      std::memcpy(&eight, elements + i, sizeof(eight));
      eight = eight >> run.shift & masks;
      std::memcpy(codes + i, &eight, sizeof(eight));
    }
  }

  uint32_t bits_, codes_an_element_, codes_ = 0;
  uint64_t stretch_ = 0;  // so many groups have their codes in the same bits
  tenon_format scale_format_ = TENON_F16, zero_format_ = TENON_F16;
  std::vector<std::string> names_;  // the tensors' names
};

}  // namespace

std::unique_ptr<published::Matrix> Schema::published(const tenon_linear& s, uint32_t mat) {
  const tenon_matrix& m = s.matrix[mat];
  if (sdk::find_tensor(m, "W_q") == nullptr) published::refuse_form(m, "W_q, scale and zero of HQQ");
  published::need_unlisted(s, mat);
  return std::make_unique<HqqMatrix>(s, mat, bits_of(Description(s.description)));
}

}  // namespace tenon::hqq
