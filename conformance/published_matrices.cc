// Each form's numbers are drawn first, as the integers and scales that they are, and then put where the
// form has them; a weight is computed from the numbers that were drawn. So a reader that looks for a
// number in another place finds another weight.
#include "conformance/published_matrices.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "tenon/sdk/convert.h"
#include "tenon/sdk/stored.h"

namespace tenon::conformance {

namespace {

// This collects tensors with their bytes, which put() fills.
class Tensors {
 public:
  uint8_t* add(const tenon_stored& stored) {
    matrix.tensors.push_back({stored, std::vector<uint8_t>(sdk::stored_bytes(stored))});
    return matrix.tensors.back().bytes.data();
  }
  FileMatrix sorted() && {
    std::sort(matrix.tensors.begin(), matrix.tensors.end(),
              [](const auto& a, const auto& b) { return std::string_view(a.stored.name) < b.stored.name; });
    return std::move(matrix);
  }
  FileMatrix matrix;
};

// Writes the bits of a number from bit `at` on of 32-bit words that stand `stride` words apart.
void put_bits(uint8_t* words, uint64_t stride, uint64_t at, uint32_t n, uint32_t value) {
  for (uint32_t b = 0; b < n; ++b) {
    const uint64_t bit = at + b, byte = bit / 32 * stride * 4 + bit % 32 / 8;
    words[byte] = static_cast<uint8_t>(words[byte] | (value >> b & 1) << bit % 8);
  }
}
template <class T>
void put(uint8_t* to, uint64_t i, T value) {
  std::memcpy(to + i * sizeof(T), &value, sizeof(T));
}
// Draws a scale, stores it in a format and returns it as it is rounded to that.
float put_scale(uint8_t* to, uint64_t i, tenon_format format, Random& random) {
  const float drawn = std::uniform_real_distribution<float>(0.005F, 0.05F)(random);
  if (format == TENON_F32) put(to, i, drawn);
  if (format == TENON_F32) return drawn;
  const uint16_t bits = format == TENON_F16 ? sdk::float_to_half(drawn) : sdk::float_to_bf16(drawn);
  put(to, i, bits);
  return format == TENON_F16 ? sdk::half_to_float(bits) : sdk::bf16_to_float(bits);
}

// This holds integers in groups: codes and zero points from 0 on, and scales.
struct Groups {
  int64_t n, k, groups;
  uint32_t bits;
  std::vector<int64_t> group;  // the group that each column belongs to
  std::vector<uint32_t> code;  // (n, k)
  std::vector<uint32_t> zero;  // (n, groups)
  std::vector<float> scale;    // (n, groups)

  uint32_t code_at(int64_t row, int64_t i) const { return code[static_cast<size_t>(row * k + i)]; }
  size_t at(int64_t row, int64_t g) const { return static_cast<size_t>(row * groups + g); }
  std::vector<float> weights() const {
    std::vector<float> all;
    for (int64_t row = 0; row < n; ++row) {
      for (int64_t i = 0; i < k; ++i) {
        const size_t g = at(row, group[static_cast<size_t>(i)]);
        all.push_back(static_cast<float>(double{scale[g]} * (double(code_at(row, i)) - double(zero[g]))));
      }
    }
    return all;
  }
};
struct GroupsShape {
  int64_t n, k;
  uint32_t bits;
  int64_t size;             // columns of a group; 0: the whole row
  uint32_t least_zero = 0;  // the smallest zero point
};
Groups draw_groups(const GroupsShape& shape, Random& random) {
  const auto& [n, k, bits, size, least] = shape;
  Groups g{n, k, size == 0 ? 1 : (k + size - 1) / size, bits, {}, {}, {}, {}};
  for (int64_t i = 0; i < k; ++i) g.group.push_back(size == 0 ? 0 : i / size);
  for (int64_t i = 0; i < n * k; ++i) g.code.push_back(static_cast<uint32_t>(random() % (1U << bits)));
  for (int64_t i = 0; i < n * g.groups; ++i) {
    g.zero.push_back(least + static_cast<uint32_t>(random() % ((1U << bits) - least)));
  }
  g.scale.resize(g.zero.size());
  return g;
}
// All matrices of a set get the same order, as those have that share x.
void shuffle_columns(Groups& g, uint32_t set) {
  Random random(static_cast<uint32_t>(g.k) + set);
  std::shuffle(g.group.begin(), g.group.end(), random);
}

}  // namespace

FileMatrix gptq(const GptqOptions& o, const FileShape& shape, Random& random) {
  const auto [n, k, set] = shape;
  Groups g = draw_groups({n, k, o.bits, o.group, o.v2 ? 0U : 1U}, random);
  if (o.act_order) shuffle_columns(g, set);
  Tensors t;
  uint8_t* weights = t.add({"qweight", TENON_I32, 2, {k * o.bits / 32, n, 0, 0}});
  for (int64_t row = 0; row < n; ++row) {
    for (int64_t i = 0; i < k; ++i) {
      put_bits(weights + row * 4, static_cast<uint64_t>(n), static_cast<uint64_t>(i) * o.bits, o.bits,
               g.code_at(row, i));
    }
  }
  uint8_t* zeros = t.add({"qzeros", TENON_I32, 2, {g.groups, n * o.bits / 32, 0, 0}});
  uint8_t* scales = t.add({"scales", TENON_F16, 2, {g.groups, n, 0, 0}});
  for (int64_t i = 0; i < g.groups; ++i) {
    for (int64_t row = 0; row < n; ++row) {
      const size_t at = g.at(row, i);
      put_bits(zeros, 1, static_cast<uint64_t>(i * n + row) * o.bits, o.bits, g.zero[at] - (o.v2 ? 0 : 1));
      g.scale[at] = put_scale(scales, static_cast<uint64_t>(i * n + row), TENON_F16, random);
    }
  }
  if (o.with_g_idx) {
    uint8_t* index = t.add({"g_idx", TENON_I32, 1, {k, 0, 0, 0}});
    for (int64_t i = 0; i < k; ++i)
      put(index, static_cast<uint64_t>(i), static_cast<int32_t>(g.group[static_cast<size_t>(i)]));
  }
  t.matrix.weights = g.weights();
  return std::move(t).sorted();
}

FileMatrix awq(int64_t group, int64_t n, int64_t k, Random& random) {
  constexpr int64_t kOrder[8] = {0, 2, 4, 6, 1, 3, 5, 7};
  Groups g = draw_groups({n, k, 4, group}, random);
  Tensors t;
  uint8_t* weights = t.add({"qweight", TENON_I32, 2, {k, n / 8, 0, 0}});
  uint8_t* zeros = t.add({"qzeros", TENON_I32, 2, {g.groups, n / 8, 0, 0}});
  uint8_t* scales = t.add({"scales", TENON_F16, 2, {g.groups, n, 0, 0}});
  for (int64_t word = 0; word < n / 8; ++word) {
    for (int64_t j = 0; j < 8; ++j) {
      const int64_t row = word * 8 + kOrder[j];
      for (int64_t i = 0; i < k; ++i) {
        put_bits(weights, 1, static_cast<uint64_t>((i * (n / 8) + word) * 32 + 4 * j), 4, g.code_at(row, i));
      }
      for (int64_t i = 0; i < g.groups; ++i) {
        put_bits(zeros, 1, static_cast<uint64_t>((i * (n / 8) + word) * 32 + 4 * j), 4, g.zero[g.at(row, i)]);
        g.scale[g.at(row, i)] = put_scale(scales, static_cast<uint64_t>(i * n + row), TENON_F16, random);
      }
    }
  }
  t.matrix.weights = g.weights();
  return std::move(t).sorted();
}

FileMatrix compressed(const CompressedOptions& o, const FileShape& shape, Random& random) {
  const auto [n, k, set] = shape;
  Groups g = draw_groups({n, k, o.bits, o.group}, random);
  if (o.act_order) shuffle_columns(g, set);
  if (o.symmetric) std::fill(g.zero.begin(), g.zero.end(), 1U << (o.bits - 1));
  Tensors t;
  const int64_t words = (k * o.bits + 31) / 32;
  uint8_t* weights = o.packed ? t.add({"weight_packed", TENON_I32, 2, {n, words, 0, 0}})
                              : t.add({"weight", TENON_I8, 2, {n, k, 0, 0}});
  for (int64_t row = 0; row < n; ++row) {
    for (int64_t i = 0; i < k; ++i) {
      const uint32_t code = g.code_at(row, i);
      if (o.packed) put_bits(weights + row * words * 4, 1, static_cast<uint64_t>(i) * o.bits, o.bits, code);
      if (!o.packed)
        put(weights, static_cast<uint64_t>(row * k + i), static_cast<int8_t>(static_cast<int32_t>(code) - 128));
    }
  }
  const tenon_stored by_group = {"weight_scale", o.scale, 2, {n, g.groups, 0, 0}};
  uint8_t* scales = t.add(o.one_scale ? tenon_stored{"weight_scale", o.scale, 1, {1, 0, 0, 0}} : by_group);
  for (size_t i = 0; i < g.scale.size(); ++i) {
    g.scale[i] = o.one_scale && i > 0 ? g.scale[0] : put_scale(scales, i, o.scale, random);
  }
  if (!o.symmetric) {
    uint8_t* zeros = t.add({"weight_zero_point", TENON_I32, 2, {(n * o.bits + 31) / 32, g.groups, 0, 0}});
    for (int64_t row = 0; row < n; ++row) {
      for (int64_t i = 0; i < g.groups; ++i) {
        put_bits(zeros + i * 4, static_cast<uint64_t>(g.groups), static_cast<uint64_t>(row) * o.bits, o.bits,
                 g.zero[g.at(row, i)]);
      }
    }
  }
  if (o.packed) {
    uint8_t* sizes = t.add({"weight_shape", TENON_I64, 1, {2, 0, 0, 0}});
    put(sizes, 0, n);
    put(sizes, 1, k);
  }
  if (o.act_order) {
    uint8_t* index = t.add({"weight_g_idx", TENON_I32, 1, {k, 0, 0, 0}});
    for (int64_t i = 0; i < k; ++i)
      put(index, static_cast<uint64_t>(i), static_cast<int32_t>(g.group[static_cast<size_t>(i)]));
  }
  t.matrix.x_steps = o.x_in_int8 ? 127.5 : 0;
  t.matrix.weights = g.weights();
  return std::move(t).sorted();
}

namespace {

// Decodes an e4m3 number: sign, four bits of exponent with a bias of 7, three of mantissa.
double e4m3(uint32_t code) {
  const uint32_t exponent = code >> 3 & 15, mantissa = code & 7;
  const double magnitude =
      exponent == 0 ? mantissa / 8.0 * std::exp2(-6) : (1 + mantissa / 8.0) * std::exp2(int(exponent) - 7);
  return (code & 128) != 0 ? -magnitude : magnitude;
}

}  // namespace

FileMatrix fp8(const Fp8Options& o, int64_t n, int64_t k, Random& random) {
  Tensors t;
  uint8_t* weights = t.add({"weight", TENON_F8E4M3, 2, {n, k, 0, 0}});
  tenon_stored stored = {o.scale_name, o.format, static_cast<uint32_t>(o.shape.size()), {}};
  std::copy(o.shape.begin(), o.shape.end(), stored.dim);
  uint8_t* scales = t.add(stored);
  const int64_t across = (k + o.block_columns - 1) / o.block_columns, down = (n + o.block_rows - 1) / o.block_rows;
  std::vector<float> scale;
  for (int64_t i = 0; i < across * down; ++i)
    scale.push_back(put_scale(scales, static_cast<uint64_t>(i), o.format, random) / 64);
  for (size_t i = 0; o.format == TENON_F32 && i < scale.size(); ++i) put(scales, i, scale[i]);
  for (size_t i = 0; o.format != TENON_F32 && i < scale.size(); ++i) scale[i] *= 64;
  for (int64_t row = 0; row < n; ++row) {
    for (int64_t i = 0; i < k; ++i) {
      uint32_t code = random() % 256;
      if ((code & 127) == 127) code = 0;
      weights[row * k + i] = static_cast<uint8_t>(code);
      const auto at = static_cast<size_t>(row / o.block_rows * across + i / o.block_columns);
      t.matrix.weights.push_back(static_cast<float>(e4m3(code) * double{scale[at]}));
    }
  }
  if (o.x_scale != TENON_FORMAT_NONE) {
    t.matrix.x_scale = put_scale(t.add({o.x_scale_name, o.x_scale, stored.rank, {1}}), 0, o.x_scale, random);
  }
  t.matrix.x_group = o.x_group;
  t.matrix.x_powers = o.x_powers;
  return std::move(t).sorted();
}

namespace {

// Returns bitsandbytes' sixteen values.
std::vector<double> four_bits(bool normal) {
  if (normal) {
    return {-1.0,
            -0.6961928009986877,
            -0.5250730514526367,
            -0.39491748809814453,
            -0.28444138169288635,
            -0.18477343022823334,
            -0.09105003625154495,
            0.0,
            0.07958029955625534,
            0.16093020141124725,
            0.24611230194568634,
            0.33791524171829224,
            0.44070982933044434,
            0.5626170039176941,
            0.7229568362236023,
            1.0};
  }
  std::vector<double> all = {0, 0.0625 / 12, 8.0 / 12, 1, 4.0 / 12, 0.5, 2.0 / 12, 0.25};
  for (int i = 0; i < 8; ++i) all.push_back(-all[static_cast<size_t>(i)]);
  return all;
}

}  // namespace

FileMatrix float4(bool normal, bool nested, int64_t n, int64_t k, Random& random) {
  constexpr int64_t kBlock = 64, kNested = 256;
  const int64_t blocks = (n * k + kBlock - 1) / kBlock, nests = (blocks + kNested - 1) / kNested;
  Tensors t;
  const std::vector<double> values = four_bits(normal);
  uint8_t* map = t.add({"weight.quant_map", TENON_F32, 1, {16, 0, 0, 0}});
  for (size_t i = 0; i < 16; ++i) put(map, i, static_cast<float>(values[i]));
  std::string state = R"({"quant_type": ")" + std::string(normal ? "nf4" : "fp4") +
                      R"(", "blocksize": 64, "dtype": "float16", "shape": [)" + std::to_string(n) + ", " +
                      std::to_string(k) + "]";
  std::vector<float> scale(static_cast<size_t>(blocks));
  if (nested) {
    constexpr float kOffset = 0.03125F;
    state += R"(, "nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": 0.03125)";
    uint8_t* codes = t.add({"weight.absmax", TENON_U8, 1, {blocks, 0, 0, 0}});
    uint8_t* outer = t.add({"weight.nested_absmax", TENON_F32, 1, {nests, 0, 0, 0}});
    uint8_t* inner = t.add({"weight.nested_quant_map", TENON_F32, 1, {256, 0, 0, 0}});
    std::vector<float> of_map, of_nest;
    for (size_t i = 0; i < 256; ++i) put(inner, i, of_map.emplace_back(static_cast<float>(i) / 128 - 0.9F));
    for (int64_t i = 0; i < nests; ++i)
      of_nest.push_back(put_scale(outer, static_cast<uint64_t>(i), TENON_F32, random));
    for (size_t i = 0; i < scale.size(); ++i) {
      codes[i] = static_cast<uint8_t>(random());
      scale[i] = of_map[codes[i]] * of_nest[i / kNested] + kOffset;
    }
  } else {
    uint8_t* absmax = t.add({"weight.absmax", TENON_F32, 1, {blocks, 0, 0, 0}});
    for (size_t i = 0; i < scale.size(); ++i) scale[i] = put_scale(absmax, i, TENON_F32, random);
  }
  state += "}";
  const char* name = normal ? "weight.quant_state.bitsandbytes__nf4" : "weight.quant_state.bitsandbytes__fp4";
  std::copy(state.begin(), state.end(), t.add({name, TENON_U8, 1, {static_cast<int64_t>(state.size()), 0, 0, 0}}));
  uint8_t* weights = t.add({"weight", TENON_U8, 2, {n * k / 2, 1, 0, 0}});
  for (int64_t i = 0; i < n * k; ++i) {
    const auto code = static_cast<uint32_t>(random() % 16);
    weights[i / 2] = static_cast<uint8_t>(weights[i / 2] | code << (i % 2 == 0 ? 4 : 0));
    t.matrix.weights.push_back(static_cast<float>(values[code] * double{scale[static_cast<size_t>(i / kBlock)]}));
  }
  return std::move(t).sorted();
}

FileMatrix int8(double x_outlier, int64_t n, int64_t k, Random& random) {
  Tensors t;
  uint8_t* largest = t.add({"SCB", TENON_F32, 1, {n, 0, 0, 0}});
  uint8_t* weights = t.add({"weight", TENON_I8, 2, {n, k, 0, 0}});
  t.add({"weight_format", TENON_U8, 0, {}});
  t.matrix.x_steps = 127;
  t.matrix.x_outlier = x_outlier;
  for (int64_t row = 0; row < n; ++row) {
    const double scale = double{put_scale(largest, static_cast<uint64_t>(row), TENON_F32, random)} / 127;
    for (int64_t i = 0; i < k; ++i) {
      const auto q = static_cast<int8_t>(static_cast<int>(random() % 255) - 127);
      put(weights, static_cast<uint64_t>(row * k + i), q);
      t.matrix.weights.push_back(static_cast<float>(q * scale));
    }
  }
  return std::move(t).sorted();
}

namespace {

// Decodes an e2m1 number: sign, two bits of exponent with a bias of 1, one of mantissa.
double e2m1(uint32_t code) {
  const uint32_t exponent = code >> 1 & 3, mantissa = code & 1;
  const double magnitude = exponent == 0 ? mantissa / 2.0 : (1 + mantissa / 2.0) * std::exp2(int(exponent) - 1);
  return (code & 8) != 0 ? -magnitude : magnitude;
}

}  // namespace

FileMatrix e2m1(const E2m1Options& o, int64_t n, int64_t k, Random& random) {
  const int64_t group = o.nv ? 16 : 32, groups = k / group;
  Tensors t;
  uint8_t* codes =
      o.blocks ? t.add({o.codes, TENON_U8, 3, {n, groups, 16, 0}}) : t.add({o.codes, TENON_U8, 2, {n, k / 2, 0, 0}});
  uint8_t* scales = t.add({o.scales, o.nv ? TENON_F8E4M3 : TENON_U8, 2, {n, groups, 0, 0}});
  float of_all = 1;
  if (o.nv) {
    of_all = std::uniform_real_distribution<float>(100, 900)(random);
    put(t.add({"weight_global_scale", TENON_F32, 1, {1, 0, 0, 0}}), 0, of_all);
  }
  for (int64_t i = 0; i < n * groups; ++i) scales[i] = static_cast<uint8_t>(o.nv ? random() % 127 : 119 + random() % 6);
  for (int64_t i = 0; i < n * k; ++i) {
    const auto code = static_cast<uint32_t>(random() % 16);
    codes[i / 2] = static_cast<uint8_t>(codes[i / 2] | code << (i % 2 * 4));
    const uint8_t scale = scales[i / group];
    t.matrix.weights.push_back(
        static_cast<float>(e2m1(code) * (o.nv ? e4m3(scale) / double{of_all} : std::exp2(int{scale} - 127))));
  }
  return std::move(t).sorted();
}

FileMatrix torchao(const TorchAoOptions& o, int64_t n, int64_t k, Random& random) {
  Groups g = draw_groups({n, k, o.bits, o.group}, random);
  const auto half = static_cast<int32_t>(1U << (o.bits - 1));
  if (o.symmetric) std::fill(g.zero.begin(), g.zero.end(), static_cast<uint32_t>(half));
  Tensors t;
  uint8_t* codes = t.add({"_weight_qdata", TENON_I8, 2, {n, k, 0, 0}});
  for (size_t i = 0; i < g.code.size(); ++i) put(codes, i, static_cast<int8_t>(static_cast<int32_t>(g.code[i]) - half));
  uint8_t* scales = t.add({"_weight_scale", o.scale, 2, {n, g.groups, 0, 0}});
  uint8_t* zeros = t.add({"_weight_zero_point", TENON_I8, 2, {n, g.groups, 0, 0}});
  for (size_t i = 0; i < g.scale.size(); ++i) {
    g.scale[i] = put_scale(scales, i, o.scale, random);
    put(zeros, i, static_cast<int8_t>(static_cast<int32_t>(g.zero[i]) - half));
  }
  t.matrix.weights = g.weights();
  return std::move(t).sorted();
}

FileMatrix torchao_packed(int64_t group, int64_t n, int64_t k, Random& random) {
  const int64_t groups = k / group;
  Tensors t;
  uint8_t* codes = t.add({"_weight_qdata", TENON_I8, 2, {n, k / 2, 0, 0}});
  uint8_t* scales = t.add({"_weight_scale", TENON_BF16, 2, {groups, n, 0, 0}});
  uint8_t* zeros = t.add({"_weight_zero_point", TENON_BF16, 2, {groups, n, 0, 0}});
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t row = 0; row < n; ++row) {
      const auto at = static_cast<uint64_t>(g * n + row);
      put_scale(scales, at, TENON_BF16, random);
      put(zeros, at, sdk::float_to_bf16(std::uniform_real_distribution<float>(-0.1F, 0.1F)(random)));
    }
  }
  for (int64_t row = 0; row < n; ++row) {
    for (int64_t i = 0; i < k; ++i) {
      const auto q = static_cast<int32_t>(random() % 16) - 8;
      put_bits(codes, 1, static_cast<uint64_t>(row * k + i) * 4, 4, static_cast<uint32_t>(q) & 15);
      uint16_t scale = 0, zero = 0;
      std::memcpy(&scale, scales + (i / group * n + row) * 2, sizeof(scale));
      std::memcpy(&zero, zeros + (i / group * n + row) * 2, sizeof(zero));
      t.matrix.weights.push_back(
          static_cast<float>(q * double{sdk::bf16_to_float(scale)} + double{sdk::bf16_to_float(zero)}));
    }
  }
  return std::move(t).sorted();
}

FileMatrix hqq(uint32_t bits, int64_t group, int64_t n, int64_t k, Random& random) {
  const bool three = bits == 3;
  const int64_t groups = n * k / group, codes = three ? 10 : 8 / static_cast<int64_t>(bits),
                stretch = (groups + codes - 1) / codes;
  Tensors t;
  uint8_t* words = t.add({"W_q", three ? TENON_I32 : TENON_U8, 2, {stretch, group, 0, 0}});
  uint8_t* scales = t.add({"scale", TENON_F16, 2, {groups, 1, 0, 0}});
  uint8_t* zeros = t.add({"zero", TENON_F16, 2, {groups, 1, 0, 0}});
  put(t.add({"nbits", TENON_I32, 0, {}}), 0, static_cast<int32_t>(bits));
  put(t.add({"group_size", TENON_I32, 0, {}}), 0, static_cast<int32_t>(group));
  put(t.add({"axis", TENON_I32, 0, {}}), 0, int32_t{1});
  put(t.add({"channel_wise", TENON_U8, 0, {}}), 0, uint8_t{1});
  for (const char* name : {"quant_scale", "quant_zero", "view_as_float"}) t.add({name, TENON_U8, 0, {}});
  const auto text = [&](const char* name, const std::string& says) {
    std::copy(says.begin(), says.end(), t.add({name, TENON_U8, 1, {static_cast<int64_t>(says.size()), 0, 0, 0}}));
  };
  text("packing", std::to_string(bits) + (three ? "bit_32" : "bit_u8"));
  text("unpack_view_dtype", three ? "torch.int32" : "torch.uint8");
  uint8_t* shape = t.add({"shape", TENON_I64, 1, {2, 0, 0, 0}});
  put(shape, 0, n);
  put(shape, 1, k);
  for (int64_t g = 0; g < groups; ++g) {
    const float scale = put_scale(scales, static_cast<uint64_t>(g), TENON_F16, random);
    const auto most = static_cast<float>((1U << bits) - 1);
    const uint16_t zero = sdk::float_to_half(std::uniform_real_distribution<float>(0, most)(random));
    put(zeros, static_cast<uint64_t>(g), zero);
    for (int64_t i = 0; i < group; ++i) {
      const auto code = static_cast<uint32_t>(random() % (1U << bits));
      const int64_t first = (g % stretch * group + i) * (three ? 32 : 8);
      put_bits(words, 1, static_cast<uint64_t>(first) + static_cast<uint64_t>(codes - 1 - g / stretch) * bits, bits,
               code);
      t.matrix.weights.push_back(static_cast<float>((double(code) - double{sdk::half_to_float(zero)}) * double{scale}));
    }
  }
  return std::move(t).sorted();
}

}  // namespace tenon::conformance
