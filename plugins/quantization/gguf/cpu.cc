// GGUF's blocks are multiplied on the CPU as they lie in the file, or packed for integer products where the processor
// has them and the settings allow it.
#include <algorithm>
#include <cstring>
#include <string>

#include "kernels.h"
#include "packings.h"
#include "plugin.h"

namespace tenon::gguf {

using namespace sdk::cpu;

Kernels kernels(Isa isa) {
  switch (isa) {
    case Isa::kAvx512Bf16:
      return {&avx512::kKernels, &avx512_vnni::kPacked, &avx512_bf16::kBf16, &packing_by_code};
    case Isa::kAvx512Vnni:
      return {&avx512::kKernels, &avx512_vnni::kPacked, nullptr, &packing_by_code};
    case Isa::kAvx512:
      return {&avx512::kKernels, &avx2::kPacked, nullptr, &packing_by_code};
    case Isa::kAvxVnni:
      return {&avx2::kKernels, &avx_vnni::kPacked, nullptr, &packing_by_code};
    case Isa::kAvx2:
      return {&avx2::kKernels, &avx2::kPacked, nullptr, &packing_by_code};
    default:
      return {&scalar::kKernels, &scalar::kPacked, nullptr, &packing_by_code};
  }
}

namespace {

// Returns why the matrices of a site are not packed; nullptr if they are.
const char* obstacle(const tenon_linear& s) {
  if (!halves_are_groups(s)) return "the halves of a matrix of gate and up are no multiple of 16 rows";
  for (uint32_t i = 0; i < s.n_mats; ++i) {
    const tenon_format format = unpacked_source(s, i);
    if (packing_of(format) == nullptr) return tenon_format_name(format);
  }
  return nullptr;
}

}  // namespace

tenon_claim Gguf::claim(const tenon_linear& s, const tenon_bounds&) const {
  const tenon_claim claim = claim_linear(s, &unpacked_source, true);
  if (wish_ != Wish::kInt8 || s.product_wanted == 0) return claim;
  if (const char* why = obstacle(s)) {
    throw sdk::Refused(std::string("activations = \"int8\" multiplies q4_0, q4_1, q5_0, q8_0, q4_k and q6_k, whose "
                                   "sixteen rows go together: ") +
                       why + "; \"auto\" takes f32 there");
  }
  return claim;
}

Gguf::Gguf(const sdk::Params& params, const sdk::Env& env) : LinearScheme(env) {
  const std::string name = params.text("activations");
  wish_ = name == "int8" ? Wish::kInt8 : name == "f32" ? Wish::kF32 : Wish::kAuto;
}

Activations Gguf::activations_of(const tenon_linear& s) const {
  if (wish_ == Wish::kF32 || s.product_wanted == 0) return Activations::kF32;
  if (obstacle(s) == nullptr) return Activations::kInt8;
  bool bf16 = true;
  for (uint32_t i = 0; i < s.n_mats; ++i) bf16 = bf16 && unpacked_source(s, i) == TENON_BF16;
  return bf16 && kernels(isa()).bf16 != nullptr ? Activations::kBf16 : Activations::kF32;
}

std::unique_ptr<Gguf::Site> Gguf::bind(const tenon_linear& s, std::span<const tenon_claim* const>) const {
  auto site = std::make_unique<Site>();
  site->k = static_cast<uint32_t>(s.in_dim);
  site->experts = s.experts;
  site->activations = activations_of(s);
  site->in_place = !site->packed() && s.experts == 0;  // each expert is a tensor of its own
  site->exact = true;
  for (uint32_t i = 0; i < s.n_mats; ++i) {
    const tenon_format source = unpacked_source(s, i);
    if (site->packed()) {
      const Packing& packing = *packing_of(source);
      site->mats.push_back(stored_matrix(s, i, packing.code, packing.bytes_of_row(site->k), source));
    } else {
      site->mats.push_back(stored_matrix(s, i, source, sdk::plain_row_bytes(source, site->k), source));
    }
  }
  return site;
}

void Gguf::load(Site& site, const tenon_rows& src, void* const* store, void*, void*) const {
  if (!site.packed()) {
    return each_loaded_row(
        site, src, store, [&](uint8_t* to, const FileRow& from) { std::memcpy(to, from[0], site.mat(src).row_bytes); });
  }
  const tenon_format source = site.mat(src).source;
  const Packing& packing = *packing_of(source);
  each_numbered_row(site, src, [&](uint64_t row, const FileRow& from) {
    pack_row(packing, {from[0], sdk::plain_row_bytes(source, site.k)}, site.k, row, site.address_of(src, store));
  });
}

}  // namespace tenon::gguf

TENON_PLUGIN(tenon::gguf::Gguf);
