#include <cstring>
#include <string>

#include "kernels.h"
#include "plugin.h"

namespace tenon::gguf {

using namespace sdk::cpu;

Kernels kernels(Isa isa) {
  switch (isa) {
    case Isa::kAvx512Vnni:
      return {&kAvx512Kernels, &kAvx512VnniInt8};
    case Isa::kAvx512:
      return {&kAvx512Kernels, &kAvx2Int8};
    case Isa::kAvx2:
      return {&kAvx2Kernels, &kAvx2Int8};
    default:
      return {&kScalarKernels, &kScalarInt8};
  }
}

tenon_claim Gguf::claim(const tenon_linear& s, const tenon_bounds&) const {
  const tenon_claim claim = claim_linear(s);
  for (uint32_t i = 0; int8_ && s.product_wanted != 0 && i < s.n_mats; ++i) {
    if (kScalarInt8.find(s.source[i]) == nullptr) {
      throw sdk::Refused(
          std::string("activations = \"int8\" multiplies q4_0, q4_1, q5_0, q5_1 and q8_0, and a matrix is ") +
          tenon_format_name(s.source[i]) + "; give it activations = \"f32\", by an override if need be");
    }
  }
  return claim;
}

Gguf::Gguf(const sdk::Params& params, const sdk::Env& env)
    : LinearScheme(env), int8_(params.text("activations") == "int8") {}

std::unique_ptr<Gguf::Site> Gguf::bind(const tenon_linear& s, std::span<const tenon_claim* const>) const {
  auto site = std::make_unique<Site>();
  site->k = static_cast<uint32_t>(s.in_dim);
  site->in_place = true;
  site->int8_activations = int8_ && s.product_wanted != 0;
  for (uint32_t i = 0; i < s.n_mats; ++i) {
    site->mats.push_back({s.source[i], static_cast<uint32_t>(s.out_dim[i]), sdk::row_bytes(s.source[i], site->k)});
  }
  return site;
}

void Gguf::load(Site& site, const tenon_rows& src, void* const* store, void*, void*) const {
  each_loaded_row(site, src, store,
                  [&](uint8_t* to, const uint8_t* from) { std::memcpy(to, from, site.mats[src.mat].row_bytes); });
}

}  // namespace tenon::gguf

TENON_PLUGIN(tenon::gguf::Gguf);
