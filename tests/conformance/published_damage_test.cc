// A matrix of a published checkpoint that is damaged, or of which config.json says what is not understood, is refused
// with the tensor or the key, what was found and what would be right.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "conformance/published_forms.h"
#include "support/component.h"

namespace tenon::test {
namespace {

using conformance::FileMatrix;
using conformance::published_forms;
using conformance::published_site;
using conformance::PublishedForm;
using conformance::QuantizedSite;
using conformance::SiteCase;
using ::testing::AllOf;
using ::testing::HasSubstr;

using Damage = std::function<void(FileMatrix&)>;

// Returns the refusal of matrices of 256 columns in a form after the damage was done; "" if they are taken.
class Checked {
 public:
  explicit Checked(const std::string& label) : form_(labelled(label)), description_(form_.description) {}

  // A text of config.json's quantization_config becomes another one.
  Checked& says(const std::string& before, const std::string& after) {
    const size_t at = description_.find(before);
    if (at == std::string::npos) throw std::runtime_error(before);
    description_.replace(at, before.size(), after);
    return *this;
  }
  Checked& on(const std::string& device) {
    device_ = device;
    return *this;
  }
  // Adds one more key.
  Checked& says(const std::string& key) { return says("{", "{" + key + ", "); }
  std::string refusal(
      const Damage& damage = [](FileMatrix&) {}, std::vector<int64_t> rows = {64}) const {
    SiteCase c = published_site(form_, std::move(rows), 256);
    c.stored = [make = form_.make, damage](const conformance::FileShape& shape, std::mt19937& random) {
      FileMatrix m = make(shape, random);
      damage(m);
      return m;
    };
    c.description = description_;
    try {
      if (device_ == "cpu") {
        const QuantizedSite site(std::make_unique<Component>("quantization", form_.scheme), c);
      } else {
        const QuantizedSite site(
            std::make_unique<conformance::Component>(plugins().load("quantization", form_.scheme, device_),
                                                     *device(device_), std::vector<Setting>{}),
            c);
      }
    } catch (const std::runtime_error& e) {
      return e.what();
    }
    return "";
  }

 private:
  static const PublishedForm& labelled(const std::string& label) {
    for (const PublishedForm& form : published_forms()) {
      if (form.label == label) return form;
    }
    throw std::runtime_error(label);
  }

  const PublishedForm& form_;
  std::string description_, device_ = "cpu";
};

FileMatrix::Tensor& tensor(FileMatrix& m, const std::string& name) {
  for (FileMatrix::Tensor& t : m.tensors) {
    if (name == t.stored.name) return t;
  }
  throw std::runtime_error(name);
}
template <class T>
Damage value(const std::string& name, size_t i, T value) {
  return [=](FileMatrix& m) { std::memcpy(tensor(m, name).bytes.data() + i * sizeof(T), &value, sizeof(T)); };
}
Damage dimension(const std::string& name, size_t i, int64_t dim) {
  return [=](FileMatrix& m) { tensor(m, name).stored.dim[i] = dim; };
}
Damage format(const std::string& name, tenon_format format) {
  return [=](FileMatrix& m) { tensor(m, name).stored.format = format; };
}
Damage missing(const std::string& name) {
  return [=](FileMatrix& m) { std::erase_if(m.tensors, [&](const auto& t) { return name == t.stored.name; }); };
}
// Adds a tensor: one number in f32, after all others by its name.
Damage superfluous() {
  return [](FileMatrix& m) { m.tensors.push_back({{"zzz", TENON_F32, 1, {1, 0, 0, 0}}, std::vector<uint8_t>(4)}); };
}
constexpr uint16_t kHalfInfinity = 0x7c00, kNegativeHalf = 0xa800, kBf16Nan = 0x7fc0;

TEST(DamagedFp8, IsRefusedByName) {
  const Checked blocks("fp8_blocks");
  EXPECT_EQ(blocks.refusal(), "");
  EXPECT_THAT(blocks.refusal(dimension("weight_scale_inv", 1, 3)),
              HasSubstr("\"test.matrix.weight_scale_inv\" is f32 (1, 3); expected f32 (1, 2)"));
  EXPECT_THAT(blocks.refusal(value("weight_scale_inv", 1, std::nanf(""))),
              HasSubstr("\"test.matrix.weight_scale_inv\": number 1 is not finite"));
  EXPECT_THAT(blocks.refusal(value("weight_scale_inv", 1, -1.0F)),
              HasSubstr("\"test.matrix.weight_scale_inv\": number 1 is negative"));
  EXPECT_THAT(blocks.refusal(value("weight", 5, uint8_t{0x7f})), HasSubstr("a weight of row 0 is NaN"));
  EXPECT_THAT(Checked("fp8_matrix").refusal(value("input_scale", 0, INFINITY)),
              HasSubstr("\"test.matrix.input_scale\": number 0 is not finite"));
  for (const float wrong : {0.0F, -1.0F}) {
    EXPECT_THAT(Checked("fp8_matrix").refusal(value("input_scale", 0, wrong)),
                HasSubstr("\"test.matrix.input_scale\": number 0 is not positive"));
  }
  EXPECT_THAT(Checked("fp8_blocks").says("[128, 128]", "[128, 100]").refusal(),
              HasSubstr("blocks of 128 x 100 weights"));
}
TEST(DamagedFp8, HasConfigRefusedByKey) {
  EXPECT_THAT(Checked("fp8_one").says(R"("twist": 3)").refusal(),
              HasSubstr("config.json: quantization_config.twist is 3; expected no such key"));
  EXPECT_THAT(Checked("fp8_blocks").says("[128, 128]", "128").refusal(),
              HasSubstr("quantization_config.weight_block_size is 128; expected a list"));
  EXPECT_THAT(Checked("fp8_compressed_rows").says("\"num_bits\": 8", "\"num_bits\": \"8\"").refusal(),
              HasSubstr("config_groups.group_0.weights.num_bits is \"8\"; expected a whole number"));
}

TEST(DamagedGptq, IsRefusedByName) {
  const Checked form("gptq_4_128"), ordered("gptq_4_32_act");
  EXPECT_EQ(form.refusal(), "");
  EXPECT_EQ(ordered.refusal(), "");
  EXPECT_THAT(Checked("gptq_4_128").says("\"group_size\": 128", "\"group_size\": 64").refusal(),
              HasSubstr("\"test.matrix.qzeros\" is i32 (2, 8); expected i32 (4, 8)"));
  EXPECT_THAT(form.refusal(dimension("qweight", 0, 64)),
              HasSubstr("\"test.matrix.qweight\" is i32 (64, 64); expected i32 (32, 64)"));
  EXPECT_THAT(form.refusal(dimension("scales", 1, 32)),
              HasSubstr("\"test.matrix.scales\" is f16 (2, 32); expected f16 (2, 64)"));
  EXPECT_THAT(form.refusal(format("scales", TENON_BF16)), HasSubstr("\"test.matrix.scales\" is bf16 (2, 64)"));
  EXPECT_THAT(form.refusal(missing("qzeros")), HasSubstr("\"test.matrix.qzeros\" is missing; expected i32 (2, 8)"));
  EXPECT_THAT(form.refusal(superfluous()),
              HasSubstr("\"test.matrix.zzz\" is not one that this scheme reads: g_idx, qw"));
  EXPECT_THAT(form.refusal(value("scales", 5, kHalfInfinity)),
              HasSubstr("\"test.matrix.scales\": number 5 is not finite"));
  EXPECT_THAT(form.refusal(value("qzeros", 0, uint32_t{0x0f})),
              HasSubstr("the zero point of row 0, group 0 is stored as 15"));
  EXPECT_THAT(Checked("gptq_4_128").says("\"group_size\": 128", "\"group_size\": 48").refusal([](FileMatrix& m) {
    tensor(m, "qzeros").stored.dim[0] = 6;
    tensor(m, "scales").stored.dim[0] = 6;
  }),
              HasSubstr("groups of 48 weights; expected whole multiples of 32"));
}
// AutoRound writes scales below 0, and they mean what they say.
TEST(PublishedGroups, MayHaveNegativeScales) {
  for (const char* label : {"gptq_4_128", "awq_128"}) {
    EXPECT_EQ(Checked(label).refusal(value("scales", 5, kNegativeHalf)), "") << label;
  }
}
TEST(DamagedGptq, HasGroupsOfColumnsRefused) {
  const Checked form("gptq_4_128"), ordered("gptq_4_32_act");
  for (const int32_t group : {-1, 2}) {
    EXPECT_THAT(form.refusal(value("g_idx", 3, group)),
                HasSubstr("\"test.matrix.g_idx\": column 3 is of group " + std::to_string(group) + "; there are 2"));
  }
  EXPECT_THAT(form.refusal(value("g_idx", 3, int32_t{1})),
              HasSubstr("column 3 is of group 1; expected 0, as config.json does not say"));
  EXPECT_THAT(ordered.refusal(missing("g_idx")), HasSubstr("\"test.matrix.g_idx\" is missing; expected i32 (256)"));
  EXPECT_THAT(ordered.refusal([](FileMatrix& m) {
    auto* group = reinterpret_cast<int32_t*>(tensor(m, "g_idx").bytes.data());
    group[7] = group[7] == 4 ? 5 : 4;
  }),
              AllOf(HasSubstr("\"test.matrix.g_idx\": group"), HasSubstr("has other than 32 columns")));
  // The second matrix of the site is in another order, and the first one is not.
  EXPECT_THAT(ordered.refusal(
                  [](FileMatrix& m) {
                    auto* group = reinterpret_cast<int32_t*>(tensor(m, "g_idx").bytes.data());
                    if (tensor(m, "qweight").stored.dim[1] == 32)
                      std::swap(group[0], *std::find_if(group, group + 256, [&](int32_t g) { return g != group[0]; }));
                  },
                  {64, 32}),
              HasSubstr("are in another order than those of \"test.matrix\" beside it, which has the same x"));
}
// The same code reads them, but from device memory.
TEST(DamagedOnAGpu, IsRefusedByName) {
  if (device("cuda") == nullptr) GTEST_SKIP() << "no device cuda";
  const Checked form = Checked("gptq_4_128").on("cuda"), ordered = Checked("gptq_4_32_act").on("cuda");
  EXPECT_EQ(form.refusal(), "");
  EXPECT_THAT(form.refusal(missing("qzeros")), HasSubstr("\"test.matrix.qzeros\" is missing; expected i32 (2, 8)"));
  EXPECT_THAT(form.refusal(value("scales", 5, kHalfInfinity)),
              HasSubstr("\"test.matrix.scales\": number 5 is not finite"));
  EXPECT_THAT(form.refusal(value("g_idx", 3, int32_t{2})),
              HasSubstr("\"test.matrix.g_idx\": column 3 is of group 2; there are 2"));
  EXPECT_EQ(ordered.refusal([](FileMatrix&) {}, {64, 32}), "");
  EXPECT_THAT(ordered.refusal(
                  [](FileMatrix& m) {
                    auto* group = reinterpret_cast<int32_t*>(tensor(m, "g_idx").bytes.data());
                    if (tensor(m, "qweight").stored.dim[1] == 32)
                      std::swap(group[0], *std::find_if(group, group + 256, [&](int32_t g) { return g != group[0]; }));
                  },
                  {64, 32}),
              HasSubstr("are in another order than those of \"test.matrix\" beside it, which has the same x"));
}

TEST(DamagedGptq, HasConfigRefusedByKey) {
  const auto changed = [](const std::string& before, const std::string& after) {
    return Checked("gptq_4_128").says(before, after).refusal();
  };
  EXPECT_THAT(changed("\"bits\": 4", "\"bits\": 5"), HasSubstr("bits is 5; expected 2 or 3 or 4 or 8"));
  EXPECT_THAT(changed("\"bits\": 4", "\"bits\": \"4\""), HasSubstr("bits is \"4\"; expected a whole number"));
  EXPECT_THAT(changed("\"bits\": 4, ", ""), HasSubstr("quantization_config.bits is missing"));
  EXPECT_THAT(changed("128", "0"), HasSubstr("group_size is 0; expected a positive number, or -1"));
  EXPECT_THAT(changed("\"desc_act\": false", "\"desc_act\": 1"), HasSubstr("desc_act is 1; expected true or false"));
  EXPECT_THAT(changed("\"checkpoint_format\": \"gptq\"", "\"checkpoint_format\": \"marlin\""),
              HasSubstr("checkpoint_format is \"marlin\"; expected \"gptq\" or \"gptq_v2\""));
  EXPECT_THAT(Checked("gptq_4_128").says(R"("format": "gptq_v2")").refusal(),
              HasSubstr("format is \"gptq_v2\"; expected \"gptq\" as checkpoint_format says"));
  EXPECT_THAT(Checked("gptq_4_128").says(R"("dynamic": {"+:.*down.*": {"bits": 8}})").refusal(),
              HasSubstr("quantization_config.dynamic.+:.*down.*.bits is 8; expected no such key"));
}

TEST(DamagedAwq, IsRefusedByName) {
  const Checked form("awq_128");
  EXPECT_EQ(form.refusal(), "");
  EXPECT_THAT(Checked("awq_128").says("\"group_size\": 128", "\"group_size\": 64").refusal(),
              HasSubstr("\"test.matrix.qzeros\" is i32 (2, 8); expected i32 (4, 8)"));
  EXPECT_THAT(form.refusal(dimension("qweight", 1, 64)),
              HasSubstr("\"test.matrix.qweight\" is i32 (256, 64); expected i32 (256, 8)"));
  EXPECT_THAT(form.refusal(missing("qzeros")), HasSubstr("\"test.matrix.qzeros\" is missing"));
  EXPECT_THAT(form.refusal(superfluous()), HasSubstr("\"test.matrix.zzz\" is not one that this scheme reads"));
  EXPECT_THAT(form.refusal(value("scales", 70, kHalfInfinity)),
              HasSubstr("\"test.matrix.scales\": number 70 is not finite"));
}
TEST(DamagedAwq, HasConfigOfEveryProgramTaken) {
  EXPECT_EQ(Checked("awq_128")
                .says(R"("backend": "auto", "desc_act": false, "sym": true, "format": "gemm", "damp_percent": 0.1,
                         "dataset": null, "meta": {"quantizer": ["gptqmodel:7"]}, "pack_dtype": "int32")")
                .refusal(),
            "");
  EXPECT_EQ(Checked("awq_128").says("\"version\"", "\"format\"").refusal(), "");
}
TEST(DamagedAwq, HasConfigRefusedByKey) {
  const auto changed = [](const std::string& before, const std::string& after) {
    return Checked("awq_128").says(before, after).refusal();
  };
  EXPECT_THAT(changed("\"gemm\"", "\"gemv\""), HasSubstr("version is \"gemv\"; expected \"gemm\" or \"GEMM\""));
  EXPECT_THAT(changed("\"version\": \"gemm\", ", ""), HasSubstr("version is missing; expected \"gemm\""));
  EXPECT_THAT(changed("\"bits\": 4", "\"bits\": 8"), HasSubstr("bits is 8; expected 4"));
  EXPECT_THAT(changed("\"zero_point\": true", "\"zero_point\": \"yes\""),
              HasSubstr("zero_point is \"yes\"; expected true"));
  EXPECT_THAT(Checked("awq_128").says(R"("twist": [3])").refusal(),
              HasSubstr("quantization_config.twist.0 is 3; expected no such key"));
}

TEST(DamagedCompressedTensors, AreRefusedByName) {
  const Checked packed("compressed_4_128"), zeros("compressed_4_32_zeros"), bytes("compressed_8_0_plain");
  for (const Checked& form : {packed, zeros, bytes}) {
    EXPECT_EQ(form.refusal(), "");
    EXPECT_THAT(form.refusal(missing("weight_scale")), HasSubstr("\"test.matrix.weight_scale\" is missing"));
    EXPECT_THAT(form.refusal(superfluous()), HasSubstr("\"test.matrix.zzz\" is not one that this scheme reads"));
    EXPECT_THAT(form.refusal(value("weight_scale", 1, kBf16Nan)),
                HasSubstr("\"test.matrix.weight_scale\": number 1 is not finite"));
    EXPECT_THAT(form.refusal(format("weight_scale", TENON_F32)), HasSubstr("\"test.matrix.weight_scale\" is f32"));
  }
  EXPECT_THAT(packed.refusal(missing("weight_shape")), HasSubstr("\"test.matrix.weight_shape\" is missing"));
  EXPECT_THAT(packed.refusal(value("weight_shape", 1, int64_t{250})),
              HasSubstr("\"test.matrix.weight_shape\" says (64, 250); expected (64, 256)"));
  EXPECT_THAT(packed.refusal(dimension("weight_packed", 1, 64)),
              HasSubstr("\"test.matrix.weight_packed\" is i32 (64, 64); expected i32 (64, 32)"));
  EXPECT_THAT(zeros.refusal(missing("weight_zero_point")), HasSubstr("\"test.matrix.weight_zero_point\" is missing"));
  EXPECT_THAT(Checked("compressed_4_32_zeros").says("\"symmetric\": false", "\"symmetric\": true").refusal(),
              HasSubstr("\"test.matrix.weight_zero_point\" is there, but config.json says that weights are symmetric"));
  EXPECT_THAT(Checked("compressed_4_128").says("\"group_size\": 128", "\"group_size\": 64").refusal(),
              HasSubstr("\"test.matrix.weight_scale\" is bf16 (64, 2); expected bf16 (64, 4)"));
  EXPECT_THAT(Checked("compressed_4_128_act").refusal(value("weight_g_idx", 0, int32_t{2})),
              HasSubstr("\"test.matrix.weight_g_idx\": column 0 is of group 2; there are 2"));
}
TEST(DamagedCompressedTensors, HaveConfigRefusedByKey) {
  const auto changed = [](const std::string& before, const std::string& after) {
    return Checked("compressed_4_128").says(before, after).refusal();
  };
  EXPECT_THAT(changed("\"input_activations\": null", R"("input_activations": {"num_bits": 8, "type": "int"})"),
              HasSubstr("config_groups.group_0.input_activations is an object; expected no such key, or null"));
  EXPECT_THAT(changed("\"kv_cache_scheme\": null", R"("kv_cache_scheme": {"num_bits": 8})"),
              HasSubstr("kv_cache_scheme is an object; expected no such key, or null"));
  EXPECT_THAT(changed("\"num_bits\": 4", "\"num_bits\": 3"), HasSubstr("weights.num_bits is 3; expected 4 or 8"));
  EXPECT_THAT(changed("\"type\": \"int\"", "\"type\": \"float\""),
              HasSubstr("weights.type is \"float\"; expected \"int\""));
  EXPECT_THAT(changed("\"dynamic\": false", "\"dynamic\": true"), HasSubstr("weights.dynamic is true; expected false"));
  EXPECT_THAT(changed("\"group_size\": 128", "\"group_size\": null"),
              HasSubstr("weights.group_size is null; expected a pos"));
  EXPECT_THAT(changed("\"pack-quantized\"", "\"marlin-24\""),
              HasSubstr("format is \"marlin-24\"; expected \"pack-quan"));
  EXPECT_THAT(changed("\"group_0\": {", R"("group_1": {"targets": ["Linear"]}, "group_0": {)"),
              HasSubstr("config_groups.group_1.targets.0 is \"Linear\"; expected no such key"));
  EXPECT_THAT(Checked("compressed_8_0_plain").says("\"num_bits\": 8", "\"num_bits\": 4").refusal(),
              HasSubstr("weights.num_bits is 4; expected 8"));
}

TEST(DamagedInt8OfCompressedTensors, IsRefusedByName) {
  const Checked rows("compressed_8_0_plain_int8_x"), one("compressed_8_0_plain_one_int8_x");
  for (const Checked& form : {rows, one}) {
    EXPECT_EQ(form.refusal(), "");
    EXPECT_THAT(form.refusal(superfluous()), HasSubstr("\"test.matrix.zzz\" is not one that this scheme reads"));
    EXPECT_THAT(form.refusal(dimension("weight", 1, 128)),
                HasSubstr("\"test.matrix.weight\" is i8 (64, 128); expected i8 (64, 256)"));
    EXPECT_THAT(form.refusal(format("weight", TENON_U8)), HasSubstr("this scheme reads weight i8"));
  }
  EXPECT_THAT(rows.refusal(missing("weight_scale")),
              HasSubstr("\"test.matrix.weight_scale\" is missing; expected bf16 (64, 1)"));
  EXPECT_THAT(one.refusal(dimension("weight_scale", 0, 64)),
              HasSubstr("\"test.matrix.weight_scale\" is f32 (64); expected f32 (1)"));
  EXPECT_THAT(rows.refusal(format("weight_scale", TENON_I8)),
              HasSubstr("\"test.matrix.weight_scale\" is i8 (64, 1); expected bf16 (64, 1)"));
  EXPECT_THAT(rows.refusal(value("weight_scale", 63, kBf16Nan)),
              HasSubstr("\"test.matrix.weight_scale\": number 63 is not finite"));
  EXPECT_THAT(one.refusal(value("weight_scale", 0, INFINITY)),
              HasSubstr("\"test.matrix.weight_scale\": number 0 is not finite"));
}
TEST(DamagedInt8OfCompressedTensors, HasConfigRefusedByKey) {
  const auto changed = [](const std::string& before, const std::string& after) {
    return Checked("compressed_8_0_plain_int8_x").says(before, after).refusal();
  };
  const std::string x = "quantization_config.config_groups.group_0.input_activations.";
  EXPECT_THAT(changed("\"dynamic\": true", "\"dynamic\": false"),
              HasSubstr(x + "dynamic is false; expected true: each"));
  EXPECT_THAT(changed("\"dynamic\": true", "\"dynamic\": \"local\""),
              HasSubstr(x + "dynamic is \"local\"; expected true or false"));
  EXPECT_THAT(changed("\"strategy\": \"token\"", "\"strategy\": \"tensor\""),
              HasSubstr(x + "strategy is \"tensor\"; expected \"token\""));
  const std::string symmetric = R"("symmetric": true, "strategy": "token")";
  EXPECT_THAT(changed(symmetric, R"("symmetric": false, "strategy": "token")"),
              HasSubstr(x + "symmetric is false; expected true"));
  EXPECT_THAT(changed(symmetric, symmetric + R"(, "group_size": 128)"),
              HasSubstr(x + "group_size is 128; expected no such key"));
  EXPECT_THAT(changed(R"({"num_bits": 8, "type")", R"({"num_bits": 4, "type")"),
              HasSubstr(x + "num_bits is 4; expected 8"));
  EXPECT_THAT(changed("\"strategy\": \"channel\"", "\"strategy\": \"group\""),
              HasSubstr("weights.strategy is \"group\"; expected \"tensor\" or \"channel\""));
  EXPECT_THAT(changed(R"("symmetric": true, "strategy": "channel")", R"("symmetric": false, "strategy": "channel")"),
              HasSubstr("weights.symmetric is false; expected true"));
}

TEST(DamagedBitsandbytes, IsRefusedByName) {
  const Checked int8("bitsandbytes_int8"), nf4("bitsandbytes_nf4"), nested("bitsandbytes_nf4_double");
  for (const Checked& form : {int8, nf4, nested}) {
    EXPECT_EQ(form.refusal(), "");
    EXPECT_THAT(form.refusal(superfluous()), HasSubstr("\"test.matrix.zzz\" is not one that this scheme reads"));
  }
  EXPECT_THAT(int8.refusal(value("SCB", 9, std::nanf(""))), HasSubstr("\"test.matrix.SCB\": number 9 is not finite"));
  EXPECT_THAT(int8.refusal(value("SCB", 9, -0.5F)), HasSubstr("\"test.matrix.SCB\": number 9 is negative"));
  EXPECT_THAT(int8.refusal(dimension("SCB", 0, 32)), HasSubstr("\"test.matrix.SCB\" is f32 (32); expected f32 (64)"));
  EXPECT_THAT(int8.refusal(format("SCB", TENON_F16)), HasSubstr("\"test.matrix.SCB\" is f16 (64); expected f32 (64)"));
  EXPECT_THAT(int8.refusal(missing("SCB")), HasSubstr("is stored as weight i8 (64, 256), weight_format u8 ()"));
  EXPECT_THAT(int8.refusal(dimension("weight", 1, 128)),
              HasSubstr("\"test.matrix.weight\" is i8 (64, 128); expected i8 (64, 256)"));
  EXPECT_THAT(int8.refusal(value("weight_format", 0, uint8_t{2})),
              HasSubstr("\"test.matrix.weight_format\" is 2; expected 0"));
  EXPECT_THAT(nf4.refusal(value("weight.absmax", 2, -1.0F)),
              HasSubstr("\"test.matrix.weight.absmax\": number 2 is neg"));
  EXPECT_THAT(nf4.refusal(value("weight.quant_map", 3, 0.5F)), HasSubstr("\"test.matrix.weight.quant_map\": code 3"));
  EXPECT_THAT(nf4.refusal(dimension("weight.absmax", 0, 64)), HasSubstr("blocksize is 64, and there are 64 scales"));
  for (const char* name : {"weight.absmax", "weight.nested_absmax", "weight.nested_quant_map", "weight.quant_map"}) {
    EXPECT_THAT(nested.refusal(missing(name)), HasSubstr("\"test.matrix." + std::string(name) + "\" is missing"))
        << name;
  }
  EXPECT_THAT(nested.refusal(format("weight.nested_absmax", TENON_F16)),
              HasSubstr("\"test.matrix.weight.nested_absmax\" is f16 (1); expected f32 (1)"));
  EXPECT_THAT(nested.refusal(value("weight.nested_absmax", 0, -1.0F)),
              HasSubstr("\"test.matrix.weight.nested_absmax\": number 0 is negative"));
}
TEST(DamagedBitsandbytes, HasTextsRefusedByKey) {
  const Damage other_block = [](FileMatrix& m) {
    std::vector<uint8_t>& state = tensor(m, "weight.quant_state.bitsandbytes__nf4").bytes;
    const std::string digits = "\"blocksize\": 64";
    const auto at = std::search(state.begin(), state.end(), digits.begin(), digits.end());
    at[static_cast<ptrdiff_t>(digits.size()) - 2] = '7';
  };
  EXPECT_THAT(
      Checked("bitsandbytes_nf4").refusal(other_block),
      HasSubstr("\"test.matrix.weight.quant_state.bitsandbytes__nf4\".blocksize is 74; expected a multiple of 64"));
  EXPECT_THAT(Checked("bitsandbytes_nf4").refusal(value("weight.quant_state.bitsandbytes__nf4", 0, '[')),
              HasSubstr("\"test.matrix.weight.quant_state.bitsandbytes__nf4\" is no JSON"));
  EXPECT_THAT(Checked("bitsandbytes_int8").says("\"load_in_8bit\": true", "\"load_in_8bit\": \"yes\"").refusal(),
              HasSubstr("load_in_8bit is \"yes\"; expected true or false"));
  const Checked outliers("bitsandbytes_int8_outliers");
  EXPECT_THAT(Checked(outliers).says("1.5", "-1.5").refusal(),
              HasSubstr("llm_int8_threshold is -1.5; expected a number that is 0 or greater"));
  EXPECT_THAT(Checked(outliers).says("1.5", "\"6\"").refusal(),
              HasSubstr("llm_int8_threshold is \"6\"; expected a number"));
  EXPECT_THAT(Checked("bitsandbytes_int8").says(R"("twist": 3)").refusal(),
              HasSubstr("config.json: quantization_config.twist is 3; expected no such key"));
}

TEST(DamagedMxfp4, IsRefusedByName) {
  const Checked packed("mxfp4_packed"), blocks("mxfp4_in_blocks"), nv("nvfp4_packed");
  for (const Checked& form : {packed, blocks, nv}) {
    EXPECT_EQ(form.refusal(), "");
    EXPECT_THAT(form.refusal(superfluous()), HasSubstr("\"test.matrix.zzz\" is not one that this scheme reads"));
  }
  EXPECT_THAT(packed.refusal(missing("weight_scale")),
              HasSubstr("\"test.matrix.weight_scale\" is missing; expected u8 (64, 8)"));
  EXPECT_THAT(packed.refusal(dimension("weight_packed", 1, 64)),
              HasSubstr("\"test.matrix.weight_packed\" is u8 (64, 64); expected u8 (64, 128)"));
  EXPECT_THAT(packed.refusal(value("weight_scale", 9, uint8_t{255})),
              HasSubstr("\"test.matrix.weight_scale\": number 9 is 255, which is no number"));
  EXPECT_THAT(blocks.refusal(dimension("blocks", 2, 8)),
              HasSubstr("\"test.matrix.blocks\" is u8 (64, 8, 8); expected u8 (64, 8, 16)"));
  EXPECT_THAT(nv.refusal(dimension("weight_scale", 1, 8)),
              HasSubstr("\"test.matrix.weight_scale\" is f8e4m3 (64, 8); expected f8e4m3 (64, 16)"));
  EXPECT_THAT(nv.refusal(value("weight_scale", 3, uint8_t{127})), HasSubstr("number 3 is not finite"));
  EXPECT_THAT(nv.refusal(value("weight_scale", 3, uint8_t{0x81})), HasSubstr("number 3 is negative"));
  EXPECT_THAT(nv.refusal(value("weight_global_scale", 0, 0.F)), HasSubstr("is 0.000000; expected a positive number"));
  EXPECT_THAT(nv.refusal(value("weight_global_scale", 0, INFINITY)), HasSubstr("number 0 is not finite"));
  EXPECT_THAT(Checked("nvfp4_packed").says("\"group_size\": 16", "\"group_size\": 32").refusal(),
              HasSubstr("config_groups.group_0.weights.group_size is 32; expected 16"));
  EXPECT_THAT(Checked("mxfp4_in_blocks").says(R"("twist": 3)").refusal(),
              HasSubstr("quantization_config.twist is 3; expected no such key"));
}

TEST(DamagedTorchAo, IsRefusedByName) {
  const Checked grouped("torchao_4_32"), rows("torchao_8_0");
  for (const Checked& form : {grouped, rows}) {
    EXPECT_EQ(form.refusal(), "");
    EXPECT_THAT(form.refusal(superfluous()), HasSubstr("\"test.matrix.zzz\" is not one that this scheme reads"));
    EXPECT_THAT(form.refusal(missing("_weight_zero_point")),
                HasSubstr("\"test.matrix._weight_zero_point\" is missing; expected i8"));
  }
  EXPECT_THAT(grouped.refusal(dimension("_weight_scale", 1, 7)),
              HasSubstr("\"test.matrix._weight_scale\" has 7 scales for a row of 256 weights"));
  EXPECT_THAT(grouped.refusal(dimension("_weight_zero_point", 1, 4)),
              HasSubstr("\"test.matrix._weight_zero_point\" is i8 (64, 4); expected i8 (64, 8)"));
  EXPECT_THAT(grouped.refusal(value("_weight_qdata", 5, int8_t{8})),
              HasSubstr("\"test.matrix._weight_qdata\" has 8, which is no number of 4 bits"));
  EXPECT_THAT(grouped.refusal(value("_weight_scale", 5, kBf16Nan)), HasSubstr("number 5 is not finite"));
  EXPECT_THAT(rows.refusal(value("_weight_scale", 5, std::nanf(""))), HasSubstr("number 5 is not finite"));
  EXPECT_THAT(rows.refusal(value("_weight_zero_point", 3, int8_t{1})), HasSubstr("number 3 is 1; with scales in f32"));
  EXPECT_THAT(Checked("torchao_8_0").says("Int8WeightOnlyConfig", "Float8WeightOnlyConfig").refusal(),
              HasSubstr("quant_type.default._type is \"Float8WeightOnlyConfig\"; expected \"Int8WeightOnlyConfig\""));
}

TEST(DamagedPackedTorchAo, IsRefusedByName) {
  const Checked form("torchao_packed_32");
  EXPECT_EQ(form.refusal(), "");
  EXPECT_THAT(form.refusal(superfluous()), HasSubstr("\"test.matrix.zzz\" is not one that this scheme reads"));
  EXPECT_THAT(form.refusal(missing("_weight_zero_point")),
              HasSubstr("\"test.matrix._weight_zero_point\" is missing; expected bf16 (8, 64)"));
  EXPECT_THAT(form.refusal(dimension("_weight_qdata", 1, 256)),
              HasSubstr("\"test.matrix._weight_qdata\" is i8 (64, 256); expected i8 (64, 128)"));
  EXPECT_THAT(form.refusal(dimension("_weight_scale", 0, 7)),
              HasSubstr("\"test.matrix._weight_scale\" has 7 scales for a row of 256 weights"));
  EXPECT_THAT(form.refusal(dimension("_weight_scale", 0, 16)),
              HasSubstr("groups of 16 weights; expected whole multiples of 32"));
  EXPECT_THAT(form.refusal(value("_weight_scale", 5, kBf16Nan)),
              HasSubstr("\"test.matrix._weight_scale\": number 5 is not finite"));
  EXPECT_THAT(form.refusal(value("_weight_zero_point", 5, kBf16Nan)),
              HasSubstr("\"test.matrix._weight_zero_point\": number 5 is not finite"));
  EXPECT_THAT(Checked("torchao_packed_32").says("PLAIN", "TILE_PACKED_TO_4D").refusal(),
              HasSubstr("int4_packing_format._data is \"TILE_PACKED_TO_4D\"; expected \"PLAIN\""));
}

TEST(DamagedHqq, IsRefusedByName) {
  const Checked form("hqq_4_64"), three("hqq_3_64");
  for (const Checked& f : {form, three}) {
    EXPECT_EQ(f.refusal(), "");
    EXPECT_THAT(f.refusal(missing("scale")), HasSubstr("\"test.matrix.scale\" is missing; expected f16 (256, 1)"));
    EXPECT_THAT(f.refusal(superfluous()), HasSubstr("\"test.matrix.zzz\" is not one that this scheme reads"));
    EXPECT_THAT(f.refusal(value("scale", 7, kHalfInfinity)),
                HasSubstr("\"test.matrix.scale\": number 7 is not finite"));
    EXPECT_THAT(f.refusal(value("zero", 7, kHalfInfinity)), HasSubstr("\"test.matrix.zero\": number 7 is not finite"));
    EXPECT_THAT(f.refusal(value("group_size", 0, int32_t{32})),
                HasSubstr("\"test.matrix.group_size\" has 32; expected 64"));
    EXPECT_THAT(f.refusal(value("shape", 1, int64_t{128})), HasSubstr("\"test.matrix.shape\" has 128; expected 256"));
    for (const char* flag : {"quant_scale", "quant_zero", "view_as_float"}) {
      EXPECT_THAT(f.refusal(value(flag, 0, uint8_t{1})),
                  HasSubstr(std::string("\"test.matrix.") + flag + "\" has 1; expected 0"));
    }
    EXPECT_THAT(f.refusal(value("channel_wise", 0, uint8_t{0})),
                HasSubstr("\"test.matrix.channel_wise\" has 0; expected 1"));
    EXPECT_THAT(f.refusal(value("packing", 0, '2')), HasSubstr("\"test.matrix.packing\" says \"2bit_"));
    EXPECT_THAT(f.refusal(value("unpack_view_dtype", 6, 'f')),
                HasSubstr("\"test.matrix.unpack_view_dtype\" says \"torch.f"));
    EXPECT_THAT(f.refusal(format("packing", TENON_I8)), HasSubstr("\"test.matrix.packing\" is i8 ("));
  }
  EXPECT_THAT(form.refusal(dimension("scale", 0, 100)),
              HasSubstr("\"test.matrix.scale\" is f16 (100, 1); expected one number for each group"));
  EXPECT_THAT(form.refusal(dimension("zero", 0, 128)),
              HasSubstr("\"test.matrix.zero\" is f16 (128, 1); expected f16 (256, 1)"));
  EXPECT_THAT(three.refusal(dimension("W_q", 0, 25)),
              HasSubstr("\"test.matrix.W_q\" is i32 (25, 64); expected i32 (26, 64)"));
  EXPECT_THAT(Checked("hqq_4_64").says("\"axis\": 1", "\"axis\": 0").refusal(), HasSubstr("axis is 0; expected 1"));
  EXPECT_THAT(Checked("hqq_4_64").says("\"nbits\": 4", "\"nbits\": 5").refusal(),
              HasSubstr("nbits is 5; expected 1 or 2 or 3 or 4 or 8"));
}

}  // namespace
}  // namespace tenon::test
