#include "../rows/half_quadratic.h"
#include "kernels.h"
#include "pack.h"
#include "packings.h"
#include "plugin.h"

namespace tenon::int4wo {

using namespace sdk::cpu;

Kernels kernels(Isa isa) {
  return KernelSets{&scalar::kKernels,  &avx2::kKernels,       &avx512::kKernels,
                    &avx_vnni::kPacked, &avx512_vnni::kPacked, &packing_of}
      .of(isa);
}

namespace {

tenon_format source_of(const tenon_linear& s, uint32_t mat) {
  return rows::has_own_tensors(s.matrix[mat], TENON_U8) ? rows::need_int4(s, mat) : unpacked_source(s, mat);
}

}  // namespace

Int4wo::Int4wo(const sdk::Params& params, const sdk::Env& env)
    : LinearScheme(env),
      group_(static_cast<uint32_t>(params.integer("group_size"))),
      group_of_(params.boolean("hqq") ? &rows::int4_group_by_hqq : &rows::int4_group_of_range),
      description_(R"({"quant_method":"tenon","scheme":"int4wo","group_size":)" + std::to_string(group_) + "}") {}

tenon_claim Int4wo::claim(const tenon_linear& s, const tenon_bounds&) const {
  return claim_linear(s, &source_of, true);
}

std::unique_ptr<Int4wo::Site> Int4wo::bind(const tenon_linear& s, std::span<const tenon_claim* const>) const {
  auto site = std::make_unique<Site>();
  site->k = static_cast<uint32_t>(s.in_dim);
  site->experts = s.experts;
  site->exact = true;
  const PackingOf packing = int16_packing(s, kernels(isa()));
  if (packing != nullptr) site->activations = Activations::kInt16;
  for (uint32_t i = 0; i < s.n_mats; ++i) {
    const tenon_format source = source_of(s, i);
    const uint32_t stored = rows::int4_group(source), group = stored != 0 ? stored : group_;
    site->exact &= stored != 0;
    const uint64_t bytes =
        packing != nullptr ? packing(code_of(group))->bytes_of_row(site->k) : row_bytes(site->k, group);
    site->mats.push_back(stored_matrix(s, i, code_of(group), bytes, source));
  }
  return site;
}

void Int4wo::load(Site& site, const tenon_rows& src, void* const* store, void* scratch, void*) const {
  const tenon_format source = site.mat(src).source;
  const uint32_t stored = rows::int4_group(source);
  RowStore to_store(site.address_of(src, store), site.k, site.packed() ? packing_of(site.mat(src).code) : nullptr,
                    row_bytes(site.k, stored != 0 ? stored : group_));
  each_numbered_row(site, src, [&](uint64_t row, const FileRow& from) {
    to_store.put(row, [&](uint8_t* to) {
      if (stored != 0) {
        return take_row({from[rows::kWeight], from[rows::kScale], from[rows::kZero]}, site.k, stored, to);
      }
      auto* w = static_cast<float*>(scratch);
      sdk::unpack_row(source, from[0], site.k, w);
      pack_row(w, site.k, group_, group_of_, to);
    });
  });
}

tenon_written Int4wo::describe(const tenon_linear& s) const {
  return rows::describe_int4(s, group_, description_.c_str());
}

void Int4wo::encode(const tenon_linear& s, const tenon_encode& e) const {
  rows::encode_int4(s, group_, group_of_, e);
}

}  // namespace tenon::int4wo

TENON_PLUGIN(tenon::int4wo::Int4wo);
