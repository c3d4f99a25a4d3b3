#include <algorithm>
#include <cfloat>

#include "../int8_rows/load_kernels.cuh"
#include "../rows/stored_rows.h"
#include "schema.h"

namespace tenon::int8wo {
namespace {

using Format = cuda::Int8Format<>;

// This is the rule of rows/quantize_rows.h.
struct Rule {
  static constexpr float kSteps = 127.5F, kLeastScale = FLT_EPSILON, kLeastCode = -128;
};

}  // namespace

class Int8wo : public cuda::PackedScheme<Int8wo>, public Schema {
 public:
  static constexpr bool kRouted = true;

  Int8wo(const sdk::Params& params, const sdk::Env& env) : PackedScheme(env, params.boolean(sdk::kPlainCopy)) {}

  static tenon_format source(const tenon_linear& s, uint32_t mat) {
    return rows::has_own_tensors(s.matrix[mat], TENON_I8) ? rows::need_int8(s, mat) : PackedScheme::source(s, mat);
  }
  static uint32_t code(std::span<const tenon_format>) { return 0; }
  static bool exact(const Site& site) {
    return std::all_of(site.source.begin(), site.source.end(), [](tenon_format f) { return f == rows::kInt8Rows; });
  }
  template <class Use>
  static void with_format(uint32_t, const Use& use) {
    use(Format{});
  }
  void load(Site& site, const tenon_rows& src, void* const* store, void*, void* queue) const {
    const cuda::LoadedRows loaded = cuda::loaded_rows(site, src, store[0]);
    float* scales = site.scales(store[1], src);
    if (site.source_of(src) == rows::kInt8Rows) {
      cuda::launch_load(&int8_rows::take_kernel<Format>, src, queue, loaded, scales,
                        static_cast<const float*>(src.tensor[rows::kScale].data));
    } else {
      cuda::launch_load(&int8_rows::load_kernel<Format, Rule>, src, queue, loaded, scales);
    }
    load_plain(site, src, store, queue);
  }
};

}  // namespace tenon::int8wo

TENON_PLUGIN(tenon::int8wo::Int8wo);
