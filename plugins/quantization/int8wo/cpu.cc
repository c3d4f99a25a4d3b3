#include "../rows/encode.h"
#include "kernels.h"
#include "pack.h"
#include "packings.h"
#include "plugin.h"

namespace tenon::int8wo {

using namespace sdk::cpu;

Kernels kernels(Isa isa) {
  return KernelSets{&scalar::kKernels,  &avx2::kKernels,       &avx512::kKernels,
                    &avx_vnni::kPacked, &avx512_vnni::kPacked, &packing_of}
      .of(isa);
}

namespace {

tenon_format source_of(const tenon_linear& s, uint32_t mat) {
  return rows::has_own_tensors(s.matrix[mat], TENON_I8) ? rows::need_int8(s, mat) : unpacked_source(s, mat);
}

}  // namespace

tenon_claim Int8wo::claim(const tenon_linear& s, const tenon_bounds&) const {
  return claim_linear(s, &source_of, true);
}

std::unique_ptr<Int8wo::Site> Int8wo::bind(const tenon_linear& s, std::span<const tenon_claim* const>) const {
  auto site = std::make_unique<Site>();
  site->k = static_cast<uint32_t>(s.in_dim);
  site->experts = s.experts;
  site->exact = true;
  const PackingOf packing = int16_packing(s, kernels(isa()));
  if (packing != nullptr) site->activations = Activations::kInt16;
  for (uint32_t i = 0; i < s.n_mats; ++i) {
    const uint64_t bytes = packing != nullptr ? kPacking.bytes_of_row(site->k) : row_bytes(site->k);
    site->mats.push_back(stored_matrix(s, i, kInt8Row, bytes, source_of(s, i)));
    site->exact &= site->mats.back().source == rows::kInt8Rows;
  }
  return site;
}

void Int8wo::load(Site& site, const tenon_rows& src, void* const* store, void* scratch, void*) const {
  const tenon_format source = site.mat(src).source;
  RowStore to_store(site.address_of(src, store), site.k, site.packed() ? &kPacking : nullptr,
                    site.packed() ? filled_row_bytes(site.k) : row_bytes(site.k));
  each_numbered_row(site, src, [&](uint64_t row, const FileRow& from) {
    to_store.put(row, [&](uint8_t* to) {
      if (source == rows::kInt8Rows) return take_row(from[rows::kWeight], from[rows::kScale], site.k, to);
      auto* w = static_cast<float*>(scratch);
      sdk::unpack_row(source, from[0], site.k, w);
      pack_row(w, site.k, to);
    });
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
