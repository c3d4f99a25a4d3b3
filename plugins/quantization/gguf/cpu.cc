#include <cstring>
#include <string>

#include "kernels.h"
#include "plugin.h"
#include "tenon/sdk/cpu/gguf_blocks.h"

namespace tenon::gguf {
namespace {

using namespace sdk::cpu;

const KernelTable& kernels(Isa isa) {
  return isa == Isa::kAvx512 ? kAvx512Kernels : isa == Isa::kAvx2 ? kAvx2Kernels : kScalarKernels;
}

}  // namespace

Gguf::Gguf(const sdk::Params&, const sdk::Env& env) : isa_(isa_of(env.device())) {}

tenon_claim Gguf::claim(const tenon_linear& s, const tenon_bounds&) const {
  const tenon_claim claim = claim_linear(s);
  for (uint32_t i = 0; i < s.n_mats; ++i) {
    const char* name = tenon_format_name(s.source[i]);
    if (!can_unpack(s.source[i])) {
      throw sdk::Refused(std::string("stored as ") + name +
                         "; this scheme multiplies f32, f16, bf16, q4_0, q4_1, q5_0, q5_1, q8_0 and q2_k to q6_k");
    }
    const uint32_t block = tenon_format_block(s.source[i]).elements;
    if (s.in_dim % block != 0) {
      throw sdk::Refused("a width of " + std::to_string(s.in_dim) + " is not whole blocks of " + name + " (" +
                         std::to_string(block) + ")");
    }
  }
  return claim;
}

std::unique_ptr<Gguf::Site> Gguf::bind(const tenon_linear& s, std::span<const tenon_claim* const>) const {
  auto site = std::make_unique<Site>();
  site->k = static_cast<uint32_t>(s.in_dim);
  site->in_place = true;
  for (uint32_t i = 0; i < s.n_mats; ++i) {
    const tenon_block block = tenon_format_block(s.source[i]);
    site->mats.push_back(
        {s.source[i], static_cast<uint32_t>(s.out_dim[i]), uint64_t{site->k} / block.elements * block.bytes});
  }
  return site;
}

tenon_footprint Gguf::footprint(Site& site) const {
  return footprint_of(site, 0);
}

void Gguf::load(Site& site, const tenon_rows& src, void* const* store, void*, void*) const {
  each_loaded_row(site, src, store,
                  [&](uint8_t* to, const uint8_t* from) { std::memcpy(to, from, site.mats[src.mat].row_bytes); });
}

void Gguf::record(Site& site, const tenon_linear_call& call, sdk::Recorder& rec) const {
  record_linear<&kernels>(site, isa_, call, rec);
}

void Gguf::record_rows(Site& site, const tenon_tid* store, tenon_tid index, tenon_tid y, sdk::Recorder& rec) const {
  record_linear_rows<&kernels>(site, isa_, store[0], index, y, rec);
}

}  // namespace tenon::gguf

TENON_PLUGIN(tenon::gguf::Gguf);
