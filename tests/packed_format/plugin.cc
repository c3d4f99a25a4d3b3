// quantization.acme.two_bits has two bits a weight, multiplied by rows of x in int8.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "tenon/sdk/convert.h"
#include "tenon/sdk/cpu/linear_scheme.h"
#include "tenon/sdk/gguf_blocks.h"
#include "two_bits.h"

namespace acme {
namespace {

using namespace tenon;
using namespace tenon::sdk::cpu;

// A block before it is packed.
struct Block {
  uint16_t scale;  // it is f16
  uint8_t code[kBlock];
};

Block quantized(const float* w) {
  float square = 0;
  for (uint32_t i = 0; i < kBlock; ++i) square += w[i] * w[i];
  Block b;
  b.scale = sdk::float_to_half(1.2F * std::sqrt(square / kBlock));
  const float scale = std::max(sdk::half_to_float(b.scale), 1e-7F);
  for (uint32_t i = 0; i < kBlock; ++i) {
    b.code[i] = static_cast<uint8_t>(std::clamp(std::rint(w[i] / scale), -1.0F, 2.0F) + 1);
  }
  return b;
}

uint8_t* codes_of(uint8_t* unit, uint32_t row, uint32_t step) {
  return unit + 32 + 64 * (step % 2) + 4 * row;
}
void pack(const uint8_t* weights, uint32_t row, uint8_t* unit) {
  const auto* b = reinterpret_cast<const Block*>(weights);
  std::memcpy(unit + 2 * size_t{row}, &b->scale, 2);
  for (uint32_t step = 0; step < 8; ++step) {
    for (uint32_t i = 0; i < 4; ++i) {
      uint8_t& byte = codes_of(unit, row, step)[i];
      if (step < 2) byte = 0;
      byte = static_cast<uint8_t>(byte | b->code[4 * step + i] << (step / 2 * 2));
    }
  }
}
void unpack(const uint8_t* unit, uint32_t row, float* w) {
  uint16_t bits;
  std::memcpy(&bits, unit + 2 * size_t{row}, 2);
  const float scale = sdk::half_to_float(bits);
  for (uint32_t k = 0; k < kBlock; ++k) {
    const uint32_t step = k / 4, byte = unit[32 + 64 * (step % 2) + 4 * row + k % 4];
    w[k] = scale * static_cast<float>(static_cast<int>(byte >> (step / 2 * 2) & 3u) - 1);
  }
}
constexpr Packing kPacking{kTwoBits, kBlock, kUnitBytes, &pack, &unpack};

Kernels kernels(Isa isa) {
  const auto packing = [](uint32_t) { return &kPacking; };
  switch (isa) {
    case Isa::kAvx512Bf16:
    case Isa::kAvx512Vnni:
      return {&avx512::kKernels, &avx512_vnni::kPacked, nullptr, packing};
    case Isa::kAvx512:
      return {&avx512::kKernels, &avx2::kPacked, nullptr, packing};
    case Isa::kAvxVnni:
      return {&avx2::kKernels, &avx_vnni::kPacked, nullptr, packing};
    case Isa::kAvx2:
      return {&avx2::kKernels, &avx2::kPacked, nullptr, packing};
    default:
      return {&scalar::kKernels, &scalar::kPacked, nullptr, packing};
  }
}

class TwoBitScheme : public LinearScheme<TwoBitScheme, &kernels> {
 public:
  static constexpr const char* kName = "acme.two_bits";
  static constexpr const char* kDoc = "two bits a weight, a scale for 32; activations in int8";
  static constexpr auto kParams = sdk::params();

  TwoBitScheme(const sdk::Params&, const sdk::Env& env) : LinearScheme(env) {}

  tenon_claim claim(const tenon_linear& s, const tenon_bounds&) const {
    if (s.in_dim % kBlock != 0) throw sdk::Refused("a width that is no multiple of 32");
    if (!halves_are_groups(s)) throw sdk::Refused("halves that are no multiple of 16 rows");
    return claim_linear(s);
  }
  std::unique_ptr<Site> bind(const tenon_linear& s, std::span<const tenon_claim* const>) const {
    auto site = std::make_unique<Site>();
    site->k = static_cast<uint32_t>(s.in_dim);
    site->activations = Activations::kInt8;
    for (uint32_t i = 0; i < s.n_mats; ++i) {
      site->mats.push_back(stored_matrix(s, i, kTwoBits, kPacking.bytes_of_row(site->k), unpacked_source(s, i)));
    }
    return site;
  }
  void load(Site& site, const tenon_rows& src, void* const* store, void* scratch, void*) const {
    auto* w = static_cast<float*>(scratch);
    std::vector<Block> row(site.k / kBlock);
    each_numbered_row(site, src, [&](uint64_t number, const FileRow& from) {
      sdk::unpack_row(site.mat(src).source, from[0], site.k, w);
      for (size_t b = 0; b < row.size(); ++b) row[b] = quantized(w + b * kBlock);
      pack_row(kPacking, {reinterpret_cast<const uint8_t*>(row.data()), row.size() * sizeof(Block)}, site.k, number,
               static_cast<uint8_t*>(store[src.mat]));
    });
  }
};

}  // namespace
}  // namespace acme

TENON_PLUGIN(acme::TwoBitScheme);
