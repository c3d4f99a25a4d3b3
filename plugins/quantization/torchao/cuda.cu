#include "../published/cuda_scheme.cuh"
#include "../published/pair_forms.cuh"
#include "schema.h"

namespace tenon::torchao {
namespace {

template <uint32_t kIndex>
constexpr auto form_of() {
  if constexpr (kIndex < kRows) {
    return std::type_identity<published::FormOf<kAll, kIndex>>{};
  } else if constexpr (kIndex == kRows) {
    return std::type_identity<cuda::GroupedFormat<cuda::Bytes<128>, cuda::NoScales, 64, 2>>{};
  } else {
    return std::type_identity<published::GroupedForm<kAll[kIndex].bits, cuda::FloatPairs, kAll[kIndex].group>>{};
  }
}

}  // namespace

struct CudaSchema : Schema {
  static constexpr bool kRoutesRows = true;
  template <uint32_t kIndex>
  using Format = typename decltype(form_of<kIndex>())::type;
};

}  // namespace tenon::torchao

TENON_PLUGIN(tenon::published::CudaScheme<tenon::torchao::CudaSchema>);
