#include "../int8_rows/cpu_scheme.h"
#include "../published/scheme.h"
#include "scheme.h"

namespace tenon::compressed_tensors {
namespace {

class RoundedRows : public int8_rows::CpuScheme<RoundedRows, RoundedSchema> {
 public:
  using Base = int8_rows::CpuScheme<RoundedRows, RoundedSchema>;
  using Site = RoundedSite<sdk::cpu::LinearSite>;
  using Base::Base;

  static tenon_format source_of(const tenon_linear& s, uint32_t mat) {
    (void)RoundedMatrix(s, mat);
    return rows::kInt8Rows;
  }
  std::unique_ptr<Site> bind(const tenon_linear& s, std::span<const tenon_claim* const> claims) const {
    return std::make_unique<Site>(std::move(*Base::bind(s, claims)), s);
  }
  // One scale may be that of all rows, so all come together.
  tenon_footprint footprint(Site& site) const {
    tenon_footprint f = Base::footprint(site);
    f.flags |= TENON_FOOTPRINT_WHOLE;
    return f;
  }
  void load(Site& site, const tenon_rows& src, void* const* store, void*, void*) const {
    const std::vector<float> scales = site.rounded[src.mat % site.rounded.size()].scales(src.tensor[rows::kScale]);
    const float* scale = scales.data();
    sdk::cpu::each_loaded_row(site, src, store, [&](uint8_t* to, const sdk::cpu::FileRow& from) {
      rows::join_int8_row(from[rows::kWeight], reinterpret_cast<const uint8_t*>(scale++), site.k, to);
    });
  }
};

using Plain = published::PublishedScheme<Schema, published::HeldIntegers>;

}  // namespace
}  // namespace tenon::compressed_tensors

using CompressedTensors =
    tenon::compressed_tensors::Scheme<tenon::compressed_tensors::Plain, tenon::compressed_tensors::RoundedRows>;
TENON_PLUGIN(CompressedTensors);
