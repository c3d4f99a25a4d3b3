// This is quantization.sparse24 on a CPU: it prunes and quantizes rows, takes rows that a file has in
// this form, and writes such files. definition.h has the form and the arithmetic; packings.h packs rows
// where the instruction set has dot products of bytes, and products.cc multiplies them. kernels.cc makes
// f32 of rows, where there are no such products.
//
// Two of four weights stay by magnitude alone, as in the 2:4 pattern of NVIDIA's sparse tensor cores (Mishra et al.,
// "Accelerating Sparse Deep Neural Networks", arXiv:2104.08378); there is no search or calibration.
//
// Invariants: a held row has only finite scales, and each of its quads has two different columns in rising order.
// Whatever breaks that, in a file or by its range, throws Failed or Refused before it is held.
#include <cmath>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "../coded/kernels.h"
#include "definition.h"
#include "packings.h"
#include "schema.h"
#include "tenon/sdk/cpu/linear_scheme.h"

namespace tenon::sparse24 {
namespace {

sdk::cpu::Kernels kernels(sdk::cpu::Isa isa) {
  return coded::wide_kernels(isa, &packing_of);
}

float largest_of(const float* w, uint32_t n) {
  float largest = 0;
  for (uint32_t i = 0; i < n; ++i) largest = std::max(largest, std::abs(w[i]));
  return largest;
}

// Makes a row of k finite weights as it is held. Returns false if a scale is too large for fp16.
bool quantize_row(uint32_t group, const float* w, uint32_t k, uint8_t* row) {
  const uint32_t span = group == 0 ? k : group;
  for (uint32_t begin = 0; begin < k; begin += span) {
    const uint32_t n = std::min(span, k - begin);
    const uint16_t bits = scale_bits(largest_of(w + begin, n));
    const float scale = sdk::half_to_float(bits);
    if (!std::isfinite(scale)) return false;
    std::memcpy(row, &bits, kHalfBytes);
    row += kHalfBytes;
    const uint32_t units = group == 0 ? (k + kUnit - 1) / kUnit : group / kUnit;
    for (uint32_t q = 0; q < units * kQuads; ++q) {
      float quad[4] = {};
      for (uint32_t i = 0; i < 4 && 4 * q + i < n; ++i) quad[i] = w[begin + 4 * q + i];
      put_quad(row + q / kQuads * kUnitBytes, q % kQuads, quad_of(quad, scale));
    }
    row += units * kUnitBytes;
  }
  return true;
}

// Calls f(scale's bytes in its tensor, units in theirs, place in the held row, units) for each group of a row.
template <class F>
void each_group(uint32_t group, uint32_t k, const F& f) {
  const uint64_t groups = groups_of(group, k), units = units_of(group, k) / groups;
  for (uint64_t g = 0, at = 0; g < groups; ++g, at += kHalfBytes + units * kUnitBytes) {
    f(g * kHalfBytes, g * units * kUnitBytes, at, units);
  }
}

// Takes a row from its tensors in the file. Throws Failed for scales that are not finite, and quads without an order.
void take_row(uint32_t group, const sdk::cpu::FileRow& from, uint32_t k, uint8_t* row) {
  each_group(group, k, [&](uint64_t at_scale, uint64_t at_units, uint64_t at, uint64_t units) {
    uint16_t bits = 0;
    std::memcpy(&bits, from[kScaleTensor] + at_scale, kHalfBytes);
    if (!std::isfinite(sdk::half_to_float(bits))) throw sdk::Failed(std::string(kScale) + " of a row is not finite");
    const uint8_t* stored = from[kWeightTensor] + at_units;
    for (uint32_t q = 0; q < units * kQuads; ++q) {
      const Quad quad = quad_at(stored + q / kQuads * kUnitBytes, q % kQuads);
      if (in_order(quad)) continue;
      throw sdk::Failed(std::string(kWeight) + " has a quad with weights in columns " +
                        std::to_string(quad.columns & 3) + " and " + std::to_string(quad.columns >> 2) +
                        "; they must be two in rising order");
    }
    std::memcpy(row + at, &bits, kHalfBytes);
    std::memcpy(row + at + kHalfBytes, stored, units * kUnitBytes);
  });
}

// A row of whole rows begins with its scale in f32 where it is packed. make(to) writes one whose scale is a half.
template <class F>
void with_wide_scale(uint8_t* row, const F& make) {
  make(row + kHalfBytes);
  const float scale = sdk::half_at(row + kHalfBytes);
  std::memcpy(row, &scale, sizeof(scale));
}

}  // namespace

class Sparse24 : public sdk::cpu::LinearScheme<Sparse24, &kernels>, public Schema {
 public:
  Sparse24(const sdk::Params& params, const sdk::Env& env)
      : LinearScheme(env),
        chosen_(choose(params)),
        description_(R"({"quant_method":"tenon","scheme":"sparse24","group_size":)" +
                     std::to_string(params.integer("group_size")) + "}") {}

  tenon_claim claim(const tenon_linear& s, const tenon_bounds&) const {
    return sdk::cpu::claim_linear(s, &source_of, true);
  }

  std::unique_ptr<Site> bind(const tenon_linear& s, std::span<const tenon_claim* const>) const {
    auto site = std::make_unique<Site>();
    site->k = static_cast<uint32_t>(s.in_dim);
    site->experts = s.experts;
    site->exact = true;
    const sdk::cpu::PackingOf packing = sdk::cpu::int16_packing(s, kernels(isa()));
    if (packing != nullptr) site->activations = sdk::cpu::Activations::kInt16;
    for (uint32_t i = 0; i < s.n_mats; ++i) {
      const tenon_format source = source_of(s, i);
      const uint32_t index = is_stored(source) ? source - kStored : chosen_;
      const uint32_t code = sdk::cpu::kOwnFormats + index;
      const uint64_t bytes =
          packing != nullptr ? packing(code)->bytes_of_row(site->k) : row_bytes(kGroups[index], site->k);
      site->mats.push_back(sdk::cpu::stored_matrix(s, i, code, bytes, source));
      site->exact &= is_stored(source);
    }
    return site;
  }

  void load(Site& site, const tenon_rows& src, void* const* store, void* scratch, void*) const {
    const tenon_format source = site.mat(src).source;
    const uint32_t code = site.mat(src).code, group = kGroups[code - sdk::cpu::kOwnFormats];
    const bool wide_scale = site.packed() && group == 0;
    const auto make = [&](const sdk::cpu::FileRow& from, uint8_t* to) {
      if (is_stored(source)) return take_row(group, from, site.k, to);
      auto* w = static_cast<float*>(scratch);
      sdk::unpack_row(source, from[0], site.k, w);
      for (uint32_t i = 0; i < site.k; ++i) {
        if (!std::isfinite(w[i])) throw sdk::Failed("weight " + std::to_string(i) + " of a row is not finite");
      }
      if (!quantize_row(group, w, site.k, to)) {
        throw sdk::Failed("a group of weights whose range is too large for its scale");
      }
    };
    sdk::cpu::RowStore rows(site.address_of(src, store), site.k, site.packed() ? packing_of(code) : nullptr,
                            row_bytes(group, site.k) + (wide_scale ? kHalfBytes : 0));
    sdk::cpu::each_numbered_row(site, src, [&](uint64_t row, const sdk::cpu::FileRow& from) {
      rows.put(row, [&](uint8_t* to) {
        if (!wide_scale) return make(from, to);
        with_wide_scale(to, [&](uint8_t* half_row) { make(from, half_row); });
      });
    });
  }

  tenon_written describe(const tenon_linear& s) const {
    auto all = sdk::abi_struct<tenon_written>();
    tenon_stored tensors[2];
    tensors_of(kGroups[chosen_], s.out_dim[0], s.in_dim, tensors);
    for (const tenon_stored& t : tensors) all.tensor[all.n_tensors++] = t;
    all.description = description_.c_str();
    return all;
  }

  void encode(const tenon_linear& s, const tenon_encode& e) const {
    const uint32_t group = kGroups[chosen_];
    const auto k = static_cast<uint32_t>(s.in_dim);
    std::vector<uint8_t> row(row_bytes(group, k));
    auto* scale = static_cast<uint8_t*>(e.out[kScaleTensor]);
    auto* weight = static_cast<uint8_t*>(e.out[kWeightTensor]);
    for (uint64_t r = 0; r < e.rows; ++r) {
      if (!quantize_row(group, e.data + r * k, k, row.data())) {
        throw sdk::Refused("row " + std::to_string(e.row0 + r) + " has a group whose range is too large for its scale");
      }
      each_group(group, k, [&](uint64_t at_scale, uint64_t at_units, uint64_t at, uint64_t units) {
        std::memcpy(scale + at_scale, row.data() + at, kHalfBytes);
        std::memcpy(weight + at_units, row.data() + at + kHalfBytes, units * kUnitBytes);
      });
      scale += groups_of(group, k) * kHalfBytes;
      weight += units_of(group, k) * kUnitBytes;
    }
  }

 private:
  static tenon_format source_of(const tenon_linear& s, uint32_t mat) {
    const tenon_format stored = stored_format(s, mat);
    return stored != 0 ? stored : sdk::cpu::unpacked_source(s, mat);
  }

  uint32_t chosen_;  // it is an index of kGroups
  std::string description_;
};

}  // namespace tenon::sparse24

TENON_PLUGIN(tenon::sparse24::Sparse24);
