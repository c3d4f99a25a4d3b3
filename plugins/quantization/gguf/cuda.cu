// Loading takes GGUF's blocks apart into tiles (forms.cuh): each weight keeps its integer, and each group its scale, so
// that what is multiplied is what the file says. A block of threads loads a row.
#include <algorithm>
#include <set>
#include <string>

#include "blocks.cuh"
#include "forms.cuh"
#include "schema.h"
#include "tenon/cuda/load_rows.cuh"

namespace tenon::gguf {
namespace {

// A site's code is the form's type, or one of these.
constexpr uint32_t kEightBit = 1000, kSixBit = 1001;

struct Blocks {
  uint32_t row_bytes, block_bytes;
  __device__ BlockRow row(const cuda::LoadedRows& rows, uint32_t i) const {
    return {rows.format, block_bytes, static_cast<const uint8_t*>(rows.data) + size_t{i} * row_bytes};
  }
};

__device__ void put_half(uint8_t* to, uint32_t bits) {
  *reinterpret_cast<uint16_t*>(to) = static_cast<uint16_t>(bits);
}
// Puts the scales of the group that begins at k, of a row of a tile.
template <class F>
__device__ void put_scales(cuda::HalfScales, uint8_t* segment, uint32_t row, uint32_t k, const GroupScales& s) {
  put_half(segment + F::scale_offset(row, k), s.d);
}
template <class F>
__device__ void put_scales(cuda::ScalePairs<__half>, uint8_t* segment, uint32_t row, uint32_t k, const GroupScales& s) {
  *reinterpret_cast<uint32_t*>(segment + F::scale_offset(row, k)) = s.d | s.m << 16;
}
template <class F>
__device__ void put_scales(cuda::ExponentScales, uint8_t* segment, uint32_t row, uint32_t k, const GroupScales& s) {
  segment[F::scale_offset(row, k)] = static_cast<uint8_t>(s.d);
}
template <class F, bool Offsets>
__device__ void put_scales(cuda::TwoLevelScales<Offsets>, uint8_t* segment, uint32_t row, uint32_t k,
                           const GroupScales& s) {
  uint8_t *of_row = segment + F::kScales + cuda::TwoLevelScales<Offsets>::row_byte_offset(row),
          *of_group = segment + F::scale_offset(row, k);
  *of_group = static_cast<uint8_t>(s.sc);
  if (Offsets) of_group[1] = static_cast<uint8_t>(s.min);
  if (k % F::kSegmentK != 0) return;
  put_half(of_row, s.d);
  if (Offsets) put_half(of_row + 2, s.m);
}

// Where weights are chosen out of sixteen numbers, codes are packed, and have no bias.
template <class F>
__global__ void load_blocks_kernel(const cuda::LoadedRows rows, const Blocks blocks) {
  const uint32_t padded = cuda::segments_of<F>(rows.k) * F::kSegmentK,
                 row = rows.packed_row(blockIdx.x) % cuda::kTileRows;
  const BlockRow from = blocks.row(rows, blockIdx.x);
  for (uint32_t k = 8 * threadIdx.x; k < padded; k += 8 * blockDim.x) {
    uint8_t* segment = rows.segment<F>(blockIdx.x, k);
    uint32_t q[8];
    for (uint32_t i = 0; i < 8; ++i) q[i] = static_cast<uint32_t>((k < rows.k ? from.weight(k + i) : 0) + F::kBias);
    F::put(segment, row, k, q);
    if (k % F::kGroup == 0) {
      put_scales<F>(typename F::Scales{}, segment, row, k, k < rows.k ? from.scales(k) : GroupScales{});
    }
  }
}

template <class F>
__global__ void load_floats_kernel(const cuda::LoadedRows rows, const Blocks blocks) {
  const uint32_t padded = cuda::segments_of<F>(rows.k) * F::kSegmentK;
  const BlockRow from = blocks.row(rows, blockIdx.x);
  for (uint32_t k = 4 * threadIdx.x; k < padded; k += 4 * blockDim.x) {
    float w[4];
    for (uint32_t i = 0; i < 4; ++i) {
      w[i] = cuda::is_float(rows.format) ? rows.weight(blockIdx.x, k + i) : k < rows.k ? from.value(k + i) : 0;
    }
    F::put(rows.quad<F>(blockIdx.x, k), w);
  }
}

bool has_minima(tenon_format f) {
  return f == TENON_Q4_1 || f == TENON_Q5_1 || f == TENON_Q2_K || f == TENON_Q4_K || f == TENON_Q5_K;
}

}  // namespace

class Gguf : public cuda::PackedScheme<Gguf>, public Schema {
 public:
  static constexpr bool kRouted = true;

  Gguf(const sdk::Params& params, const sdk::Env& env)
      : PackedScheme(env), env_(env), int8_(params.text("activations") == "int8") {}

  static tenon_format source(const tenon_linear& s, uint32_t mat) {
    return cuda::plain_source(s, mat, [](tenon_format f) { return sdk::can_unpack(f); });
  }
  static bool exact(const Site&) { return true; }

  tenon_claim claim(const tenon_linear& s, const tenon_bounds& b) const {
    if (int8_) {
      throw sdk::Refused("activations = \"int8\" is for the CPU; on a GPU use \"f32\"");
    }
    return PackedScheme::claim(s, b);
  }

  // See forms.cuh.
  static uint32_t code(std::span<const tenon_format> sources) {
    const auto all = [&](auto is) { return std::all_of(sources.begin(), sources.end(), is); };
    const tenon_format first = sources[0];
    const bool alike = all([&](tenon_format f) { return f == first; });
    if (alike && (cuda::is_float(first) || has_form(first))) return first;
    if (all(&is_ternary)) return TENON_TQ2_0;
    const bool minima = !all([](tenon_format f) { return !has_minima(f); });
    if (all(&is_k_type)) return minima ? kSixBit : static_cast<uint32_t>(TENON_Q6_K);
    if (all([](tenon_format f) { return f >= TENON_Q4_0 && f <= TENON_Q8_0; })) {
      return minima ? kEightBit : static_cast<uint32_t>(TENON_Q8_0);
    }
    return TENON_F32;
  }
  template <class Use>
  static void with_format(uint32_t code, const Use& use) {
    switch (code) {
      case TENON_F16:
        return use(F16Form{});
      case TENON_BF16:
        return use(Bf16Form{});
      case TENON_Q4_0:
        return use(Q4_0Form{});
      case TENON_Q4_1:
        return use(Q4_1Form{});
      case TENON_Q4_K:
        return use(Q4_KForm{});
      case TENON_Q8_0:
        return use(Q8_0Form{});
      case TENON_Q6_K:
        return use(Q6_KForm{});
      case TENON_IQ4_NL:
        return use(Iq4NlForm{});
      case TENON_IQ4_XS:
        return use(Iq4XsForm{});
      case TENON_MXFP4:
        return use(Mxfp4Form{});
      case TENON_TQ2_0:
        return use(TernaryForm{});
      case kEightBit:
        return use(EightBitForm{});
      case kSixBit:
        return use(SixBitForm{});
      default:
        return use(F32Form{});
    }
  }

  std::unique_ptr<Site> bind(const tenon_linear& s, std::span<const tenon_claim* const> claims) const {
    auto site = PackedScheme::bind(s, claims);
    std::set<std::string> types;
    for (const tenon_format source : site->source) {
      if (source != site->code) types.insert(tenon_format_name(source));
    }
    if (!types.empty()) tell(s.path, types, site->code);
    return site;
  }

  void load(Site& site, const tenon_rows& src, void* const* store, void*, void* queue) const {
    const cuda::LoadedRows rows = cuda::loaded_rows(site, src, store[0]);
    const tenon_block block = tenon_format_block(rows.format);
    const Blocks blocks{site.k / block.elements * block.bytes, block.bytes};
    with_format(site.code, [&]<class F>(F) {
      if constexpr (F::kGroup != 0) {
        cuda::launch_load(&load_blocks_kernel<F>, src, queue, rows, blocks);
      } else {
        cuda::launch_load(&load_floats_kernel<F>, src, queue, rows, blocks);
      }
    });
  }

 private:
  static bool has_form(tenon_format f) {
    return f == TENON_Q4_0 || f == TENON_Q4_1 || f == TENON_Q4_K || f == TENON_Q6_K || f == TENON_Q8_0 || is_chosen(f);
  }
  // Says something once for all matrices that are alike.
  void tell(const char* path, const std::set<std::string>& types, uint32_t code) const {
    std::string text;
    for (const std::string& type : types) text += (text.empty() ? "" : ", ") + type;
    text += code == TENON_F32     ? " beside other types held as f32"
            : code == kSixBit     ? " held in 7.5 bits a weight, as 6-bit integers"
            : code == kEightBit   ? " held in 9 bits a weight, as 8-bit integers"
            : code == TENON_Q6_K  ? " held as q6_k, in 6.75 bits a weight"
            : code == TENON_TQ2_0 ? " held as tq2_0, in 2.25 bits a weight"
                                  : " held as q8_0, in 8.5 bits a weight";
    if (told_.insert(text).second)
      env_.log(1, "quantization.gguf: " + text + "; no value changes (first " + path + ")");
  }

  sdk::Env env_;
  bool int8_;
  mutable std::set<std::string> told_;  // [setup] only
};

}  // namespace tenon::gguf

TENON_PLUGIN(tenon::gguf::Gguf);
