#include <algorithm>
#include <type_traits>

#include "schema.h"
#include "tenon/cuda/load_rows.cuh"

namespace tenon::none {
namespace {

template <class F>
__global__ void load_kernel(const cuda::LoadedRows rows) {
  const uint32_t padded = cuda::segments_of<F>(rows.k) * F::kSegmentK;
  for (uint32_t i = 4 * threadIdx.x; i < padded; i += 4 * blockDim.x) {
    float w[4];
    for (uint32_t j = 0; j < 4; ++j) w[j] = rows.weight(blockIdx.x, i + j);
    F::put(rows.quad<F>(blockIdx.x, i), w);
  }
}

}  // namespace

class None : public cuda::PackedScheme<None>, public Schema {
 public:
  static constexpr bool kRouted = true;

  None(const sdk::Params& params, const sdk::Env& env)
      : PackedScheme(env, params.boolean(sdk::kPlainCopy)), dtype_(format_named(params.text("dtype"))) {}

  // Matrices of a site are held alike: what differs becomes f32, which changes no value.
  uint32_t code(std::span<const tenon_format> sources) const {
    if (dtype_ != TENON_FORMAT_NONE) return dtype_;
    const bool alike = std::all_of(sources.begin(), sources.end(), [&](tenon_format f) { return f == sources[0]; });
    return alike ? sources[0] : static_cast<tenon_format>(TENON_F32);
  }
  static bool exact(const Site& site) {
    return site.code == TENON_F32 ||
           std::all_of(site.source.begin(), site.source.end(), [&](tenon_format f) { return f == site.code; });
  }
  template <class Use>
  static void with_format(uint32_t code, const Use& use) {
    if (code == TENON_BF16) return use(cuda::HalfFormat<__nv_bfloat16>{});
    if (code == TENON_F16) return use(cuda::HalfFormat<__half>{});
    use(cuda::F32Format{});
  }
  void load(Site& site, const tenon_rows& src, void* const* store, void*, void* queue) const {
    const cuda::LoadedRows rows = cuda::loaded_rows(site, src, store[0]);
    with_format(site.code, [&]<class F>(F) { cuda::launch_load(&load_kernel<F>, src, queue, rows); });
    load_plain(site, src, store, queue);
  }

 private:
  tenon_format dtype_;
};

}  // namespace tenon::none

TENON_PLUGIN(tenon::none::None);
