#include <cstring>

#include "kernels.h"
#include "plugin.h"

namespace tenon::gguf {

using namespace sdk::cpu;

const KernelTable& kernels(Isa isa) {
  return isa == Isa::kAvx512 ? kAvx512Kernels : isa == Isa::kAvx2 ? kAvx2Kernels : kScalarKernels;
}

tenon_claim Gguf::claim(const tenon_linear& s, const tenon_bounds&) const {
  return claim_linear(s);
}

std::unique_ptr<Gguf::Site> Gguf::bind(const tenon_linear& s, std::span<const tenon_claim* const>) const {
  auto site = std::make_unique<Site>();
  site->k = static_cast<uint32_t>(s.in_dim);
  site->in_place = true;
  for (uint32_t i = 0; i < s.n_mats; ++i) {
    site->mats.push_back({s.source[i], static_cast<uint32_t>(s.out_dim[i]), plain_row_bytes(s.source[i], site->k)});
  }
  return site;
}

void Gguf::load(Site& site, const tenon_rows& src, void* const* store, void*, void*) const {
  each_loaded_row(site, src, store,
                  [&](uint8_t* to, const uint8_t* from) { std::memcpy(to, from, site.mats[src.mat].row_bytes); });
}

}  // namespace tenon::gguf

TENON_PLUGIN(tenon::gguf::Gguf);
