#include <algorithm>
#include <cstring>

#include "../coded/cpu_scheme.h"
#include "scheme.h"
#include "tenon/sdk/live.h"

namespace tenon::fp8 {
namespace {

sdk::cpu::Kernels kernels(sdk::cpu::Isa isa) {
  using namespace coded;
  return sdk::cpu::KernelSets{.scalar = &scalar::kKernels,
                              .avx2 = &avx2::kKernels,
                              .avx512 = &avx512::kKernels,
                              .avx512_vbmi = &avx512_vbmi::kKernels}
      .of(isa);
}

struct CpuRoundArgs : RoundArgs {
  sdk::cpu::Isa isa;
};

float largest_of(const float* x, uint32_t k) {
  float largest = 0;
  for (uint32_t i = 0; i < k; ++i) largest = std::max(largest, x[i] < 0 ? -x[i] : x[i]);
  return largest;
}

void round_rows(const CpuRoundArgs& a, const sdk::Part& part) {
  const RoundPointers at = round_pointers(a, part);
  const uint32_t live = std::min(at.live[sdk::kLiveRows], a.rows);
  for (uint32_t r = part.begin(); r < std::min(part.end(), live); ++r) {
    const float* x = at.x + r * a.x_stride;
    float* to = at.to + size_t{r} * a.parts * a.k;
    if (at.norm != nullptr) {
      float* last = to + size_t{a.parts - 1} * a.k;  // it is rounded after the other parts
      kernels(a.isa).f32->ops.rms_norm(x, at.norm, a.k, a.eps, last);
      x = last;
    }
    // The product says what is wrong with a row of an expert that there is not.
    const uint32_t set =
        at.expert != nullptr && at.expert[r] >= 0 ? std::min(static_cast<uint32_t>(at.expert[r]), a.experts - 1) : 0;
    for (uint32_t p = 0; p < a.parts; ++p, to += a.k) {
      for (uint32_t begin = 0; begin < a.k; begin += a.group) {
        const uint32_t end = std::min(begin + a.group, a.k);
        const float scale =
            at.scales != nullptr ? at.scales[set * a.parts + p] : group_scale(a, largest_of(x + begin, end - begin));
        for (uint32_t i = begin; i < end; ++i) to[i] = rounded_by(scale, x[i]);
      }
    }
  }
}

void find_largest(const LargestArgs& a, const sdk::Part& part) {
  const uint32_t live = std::min(part.ptr<const uint32_t>(kLargestLive)[sdk::kLiveRows], a.rows);
  auto* largest = part.ptr<float>(kLargest);
  for (uint32_t r = 0; r < live; ++r) {
    *largest = std::max(*largest, largest_of(part.ptr<const float>(kLargestX) + r * a.x_stride, a.k));
  }
  std::fill_n(largest, a.places, *largest);
}

using Base = coded::CpuScheme<PublishedSchema, &kernels>;

class Ops {
 public:
  static constexpr bool kCodes = false;
  explicit Ops(const sdk::Env& env) : isa_(sdk::cpu::isa_of(env.device())) {}
  void round(sdk::Recorder& rec, const sdk::OpSpec& spec, const RoundArgs& args) const {
    rec.emit<&round_rows>(spec, CpuRoundArgs{args, isa_});
  }
  static void observe(sdk::Recorder& rec, const sdk::OpSpec& spec, const LargestArgs& args) {
    rec.emit<&find_largest>(spec, args);
  }
  static void put(void* to, const float& value, void*) { std::memcpy(to, &value, sizeof(value)); }
  static published::Matrix& matrix(const Base::Site& site) { return *site.published.front(); }

 private:
  sdk::cpu::Isa isa_;
};

}  // namespace
}  // namespace tenon::fp8

using Fp8 = tenon::fp8::Scheme<tenon::fp8::Base, tenon::fp8::Ops>;
TENON_PLUGIN(Fp8);
