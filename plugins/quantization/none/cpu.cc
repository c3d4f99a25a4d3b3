#include <cmath>
#include <cstring>
#include <string>

#include "kernels.h"
#include "plugin.h"

namespace tenon::none {

using namespace sdk::cpu;

Kernels kernels(Isa isa) {
  return KernelSets{&scalar::kKernels, &avx2::kKernels, &avx512::kKernels}.of(isa);
}

namespace {

// A weight that was finite stays finite, or the model would answer with NaN.
void narrow(tenon_format format, const float* w, uint32_t k, uint8_t* to) {
  for (uint32_t i = 0; i < k; ++i) {
    const uint16_t bits = format == TENON_F16 ? sdk::float_to_half(w[i]) : sdk::float_to_bf16(w[i]);
    const float back = format == TENON_F16 ? sdk::half_to_float(bits) : sdk::bf16_to_float(bits);
    if (std::isinf(back) && std::isfinite(w[i])) {
      throw sdk::Failed("weight " + std::to_string(w[i]) + " in column " + std::to_string(i) + " is too large for " +
                        tenon_format_name(format) + "; use dtype = \"fp32\"");
    }
    std::memcpy(to + 2 * size_t{i}, &bits, sizeof(bits));
  }
}

}  // namespace

None::None(const sdk::Params& params, const sdk::Env& env)
    : LinearScheme(env), dtype_(format_named(params.text("dtype"))) {}

tenon_format None::held(tenon_format source) const {
  if (dtype_ != TENON_FORMAT_NONE) return dtype_;
  return source == TENON_F16 || source == TENON_BF16 ? source : static_cast<tenon_format>(TENON_F32);
}

tenon_claim None::claim(const tenon_linear& s, const tenon_bounds&) const {
  return claim_linear(s, &unpacked_source, true);
}

std::unique_ptr<None::Site> None::bind(const tenon_linear& s, std::span<const tenon_claim* const>) const {
  auto site = std::make_unique<Site>();
  site->k = static_cast<uint32_t>(s.in_dim);
  site->experts = s.experts;
  site->in_place = s.experts == 0;
  site->exact = true;
  for (uint32_t i = 0; i < s.n_mats; ++i) {
    const tenon_format source = unpacked_source(s, i), format = held(source);
    site->in_place &= format == source;
    site->exact &= format == source || format == TENON_F32;
    site->mats.push_back(stored_matrix(s, i, format, sdk::plain_row_bytes(format, site->k), source));
  }
  return site;
}

void None::load(Site& site, const tenon_rows& src, void* const* store, void* scratch, void*) const {
  each_loaded_row(site, src, store, [&](uint8_t* to, const FileRow& from) {
    const StoredMatrix& m = site.mat(src);
    if (m.code == m.source) {
      std::memcpy(to, from[0], m.row_bytes);
      return;
    }
    auto* w = m.code == TENON_F32 ? reinterpret_cast<float*>(to) : static_cast<float*>(scratch);
    sdk::unpack_row(m.source, from[0], site.k, w);
    if (m.code != TENON_F32) narrow(m.code, w, site.k, to);
  });
}

}  // namespace tenon::none

TENON_PLUGIN(tenon::none::None);
