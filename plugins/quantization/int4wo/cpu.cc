#include "../rows/encode.h"
#include "kernels.h"
#include "pack.h"
#include "plugin.h"

namespace tenon::int4wo {

using namespace sdk::cpu;

Kernels kernels(Isa isa) {
  return {isa >= Isa::kAvx512 ? &avx512::kKernels : isa >= Isa::kAvx2 ? &avx2::kKernels : &scalar::kKernels};
}

Int4wo::Int4wo(const sdk::Params& params, const sdk::Env& env)
    : LinearScheme(env),
      group_(static_cast<uint32_t>(params.integer("group_size"))),
      description_(R"({"quant_method":"tenon","scheme":"int4wo","group_size":)" + std::to_string(group_) + "}") {}

tenon_claim Int4wo::claim(const tenon_linear& s, const tenon_bounds&) const {
  return claim_linear(s, [](tenon_format format) { return sdk::int4_group(format) != 0; });
}

std::unique_ptr<Int4wo::Site> Int4wo::bind(const tenon_linear& s, std::span<const tenon_claim* const>) const {
  auto site = std::make_unique<Site>();
  site->k = static_cast<uint32_t>(s.in_dim);
  for (uint32_t i = 0; i < s.n_mats; ++i) {
    const uint32_t stored = sdk::int4_group(s.source[i]), group = stored != 0 ? stored : group_;
    site->mats.push_back({code_of(group), static_cast<uint32_t>(s.out_dim[i]), row_bytes(site->k, group)});
  }
  return site;
}

void Int4wo::load(Site& site, const tenon_rows& src, void* const* store, void* scratch, void*) const {
  each_loaded_row(site, src, store, [&](uint8_t* to, const uint8_t* from) {
    if (const uint32_t stored = sdk::int4_group(src.format); stored != 0) return take_row(from, site.k, stored, to);
    auto* w = static_cast<float*>(scratch);
    sdk::unpack_row(src.format, from, site.k, w);
    pack_row(w, site.k, group_, to);
  });
}

tenon_written Int4wo::describe(const tenon_linear& s) const {
  return rows::describe_int4(s, group_, description_.c_str());
}

void Int4wo::encode(const tenon_linear& s, const tenon_encode& e) const {
  rows::encode_int4(s, group_, e);
}

}  // namespace tenon::int4wo

TENON_PLUGIN(tenon::int4wo::Int4wo);
