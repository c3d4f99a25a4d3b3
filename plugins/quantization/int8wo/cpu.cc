#include "../rows/encode.h"
#include "kernels.h"
#include "pack.h"
#include "plugin.h"

namespace tenon::int8wo {

using namespace sdk::cpu;

Kernels kernels(Isa isa) {
  return {isa >= Isa::kAvx512 ? &avx512::kKernels : isa >= Isa::kAvx2 ? &avx2::kKernels : &scalar::kKernels};
}

tenon_claim Int8wo::claim(const tenon_linear& s, const tenon_bounds&) const {
  return claim_linear(
      s, [](tenon_format format) { return format == sdk::kInt8Rows; }, true);
}

std::unique_ptr<Int8wo::Site> Int8wo::bind(const tenon_linear& s, std::span<const tenon_claim* const>) const {
  auto site = std::make_unique<Site>();
  site->k = static_cast<uint32_t>(s.in_dim), site->experts = s.experts;
  for (uint32_t i = 0; i < s.n_mats; ++i) {
    site->mats.push_back({kInt8Row, static_cast<uint32_t>(s.out_dim[i]), row_bytes(site->k)});
  }
  return site;
}

void Int8wo::load(Site& site, const tenon_rows& src, void* const* store, void* scratch, void*) const {
  each_loaded_row(site, src, store, [&](uint8_t* to, const uint8_t* from) {
    if (src.format == sdk::kInt8Rows) return take_row(from, site.k, to);
    auto* w = static_cast<float*>(scratch);
    sdk::unpack_row(src.format, from, site.k, w);
    pack_row(w, site.k, to);
  });
}

tenon_written Int8wo::describe(const tenon_linear& s) const {
  return rows::describe_int8(s, R"({"quant_method":"tenon","scheme":"int8wo"})");
}

void Int8wo::encode(const tenon_linear& s, const tenon_encode& e) const {
  rows::encode_int8(s, e);
}

}  // namespace tenon::int8wo

TENON_PLUGIN(tenon::int8wo::Int8wo);
