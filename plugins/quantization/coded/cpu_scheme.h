// This is the base of the schemes of coding.h on the CPU.
#pragma once

#include <cmath>
#include <memory>
#include <string>

#include "../published/matrix.h"
#include "../published/writer.h"
#include "kernels.h"
#include "schema.h"
#include "tenon/sdk/cpu/linear_scheme.h"

namespace tenon::coded {

template <Quantizes Schema, sdk::cpu::KernelsOf kKernelsOf>
class CpuScheme : public sdk::cpu::LinearScheme<CpuScheme<Schema, kKernelsOf>, kKernelsOf>, public Schema {
 public:
  using Base = sdk::cpu::LinearScheme<CpuScheme, kKernelsOf>;
  struct Site : sdk::cpu::LinearSite {
    std::vector<uint32_t> groups;  // by matrix: so many weights share a scale in the file, or are to
    std::vector<std::unique_ptr<published::Matrix>>
        published;  // by matrix; null: it is plain, or in tensors of the scheme
  };

  CpuScheme(const sdk::Params& params, const sdk::Env& env)
      : Base(env),
        chosen_(chosen_by<Schema>(params)),
        writer_(writer_of(params)),
        description_(std::string(R"({"quant_method":"tenon","scheme":")") + Schema::kName + R"("})") {}

  tenon_claim claim(const tenon_linear& s, const tenon_bounds&) const {
    return sdk::cpu::claim_linear(s, &source_of, true);
  }

  std::unique_ptr<Site> bind(const tenon_linear& s, std::span<const tenon_claim* const>) const {
    auto site = std::make_unique<Site>();
    site->k = static_cast<uint32_t>(s.in_dim);
    site->experts = s.experts;
    site->exact = true;
    std::vector<Holding> holdings;  // by matrix
    for (uint32_t i = 0; i < s.n_mats; ++i) {
      site->published.push_back(published_matrix(s, i));
      holdings.push_back(holding_of(s, i, site->published[i].get()));
    }
    sdk::cpu::PackingOf packing = sdk::cpu::int16_packing(s, kKernelsOf(this->isa()));
    for (const Holding& h : holdings) {
      if (!Schema::kCodings[h.index].packs()) packing = nullptr;
    }
    if (packing != nullptr) site->activations = sdk::cpu::Activations::kInt16;
    for (uint32_t i = 0; i < s.n_mats; ++i) {
      const auto [index, group] = holdings[i];
      const tenon_format source = source_of(s, i);
      const uint32_t code = sdk::cpu::kOwnFormats + index;
      const uint64_t row_bytes =
          packing != nullptr ? packing(code)->bytes_of_row(site->k) : Schema::kCodings[index].row_bytes(site->k);
      site->mats.push_back(sdk::cpu::stored_matrix(s, i, code, row_bytes, source));
      site->groups.push_back(group);
      site->exact &= is_stored(source);
    }
    return site;
  }

  // All rows of a published matrix come together, since tensors that are not by row may have as many rows by chance.
  tenon_footprint footprint(Site& site) const {
    tenon_footprint f = Base::footprint(site);
    for (const auto& m : site.published) {
      if (m != nullptr) f.flags |= TENON_FOOTPRINT_WHOLE;
    }
    return f;
  }

  void load(Site& site, const tenon_rows& src, void* const* store, void* scratch, void*) const {
    const tenon_format source = site.mat(src).source;
    if (source == kPublished) return load_published(site, src, store);
    sdk::cpu::RowStore rows = row_store(site, src, store);
    const Holding holding{site.mat(src).code - sdk::cpu::kOwnFormats, site.groups[src.mat % site.mats.size()]};
    sdk::cpu::each_numbered_row(site, src, [&](uint64_t row, const sdk::cpu::FileRow& from) {
      rows.put(row, [&](uint8_t* to) {
        if (is_stored(source)) return take_row(holding, from, site.k, to);
        auto* w = static_cast<float*>(scratch);
        sdk::unpack_row(source, from[0], site.k, w);
        for (uint32_t i = 0; i < site.k; ++i) {
          if (!std::isfinite(w[i])) throw sdk::Failed("weight " + std::to_string(i) + " of a row is not finite");
        }
        if (!make_row(holding, w, site.k, to))
          throw sdk::Failed("a group of weights whose range is too large for its scale");
      });
    });
  }

  tenon_written describe(const tenon_linear& s) const {
    if (writer_ != nullptr) return writer_->describe(s);
    auto all = sdk::abi_struct<tenon_written>();
    const auto [index, group] = fitted(static_cast<uint32_t>(s.in_dim));
    for (const tenon_stored& t : tensors_of(Schema::kCodings[index], group, s.out_dim[0], s.in_dim)) {
      all.tensor[all.n_tensors++] = t;
    }
    all.description = description_.c_str();
    return all;
  }

  void encode(const tenon_linear& s, const tenon_encode& e) const {
    if (writer_ != nullptr) return writer_->encode(s, e);
    const auto k = static_cast<uint32_t>(s.in_dim);
    const Holding holding = fitted(k);
    const Coding& c = Schema::kCodings[holding.index];
    const std::vector<tenon_stored> tensors = tensors_of(c, holding.group, s.out_dim[0], s.in_dim);
    for (uint32_t t = 0; t < tensors.size(); ++t) {
      std::memset(e.out[t], 0, e.rows * sdk::row_bytes(tensors[t], s.out_dim[0]));  // the filling of rows
    }
    std::vector<uint8_t> row(c.row_bytes(k));
    for (uint64_t r = 0; r < e.rows; ++r) {
      if (!make_row(holding, e.data + r * k, k, row.data())) {
        throw sdk::Refused("row " + std::to_string(e.row0 + r) + " has a group whose range is too large for its scale");
      }
      each_piece(c, holding.group, k, [&](uint32_t tensor, uint64_t at_tensor, uint64_t at_row, uint64_t bytes) {
        const uint64_t before = r * sdk::row_bytes(tensors[tensor], s.out_dim[0]);
        std::memcpy(static_cast<uint8_t*>(e.out[tensor]) + before + at_tensor, row.data() + at_row, bytes);
      });
    }
  }

 private:
  static std::unique_ptr<published::Matrix> published_matrix(const tenon_linear& s, uint32_t mat) {
    if constexpr (ReadsPublished<Schema>) return Schema::published(s, mat);
    return nullptr;
  }
  static std::unique_ptr<published::Writer> writer_of([[maybe_unused]] const sdk::Params& params) {
    if constexpr (WritesPublished<Schema>) return Schema::writer(params);
    return nullptr;
  }
  sdk::cpu::RowStore row_store(const Site& site, const tenon_rows& src, void* const* store) const {
    const uint32_t code = site.mat(src).code;
    return {site.address_of(src, store), site.k, site.packed() ? kKernelsOf(this->isa()).packing(code) : nullptr,
            Schema::kCodings[code - sdk::cpu::kOwnFormats].row_bytes(site.k)};
  }
  void load_published(Site& site, const tenon_rows& src, void* const* store) const {
    published::Matrix& matrix = *site.published[src.mat % site.mats.size()];
    const Coding& c = Schema::kCodings[matrix.coding()];
    sdk::cpu::each_numbered_row(site, src, [](uint64_t, const sdk::cpu::FileRow&) {});  // checks what there is
    sdk::cpu::RowStore rows = row_store(site, src, store);
    matrix.load(src, [&](uint64_t row, const published::Row& from) {
      rows.put(row, [&](uint8_t* to) { published::hold_row(c, site.k, from, to); });
    });
  }

  static tenon_format source_of(const tenon_linear& s, uint32_t mat) {
    if (published_matrix(s, mat) != nullptr) return kPublished;
    const std::optional<Holding> stored = stored_by<Schema>(s, mat);
    return stored ? kStoredCodings + stored->index : sdk::cpu::unpacked_source(s, mat);
  }
  Holding fitted(uint32_t k) const {
    if constexpr (TakesGroups<Schema>) return Schema::fitted(chosen_, k);
    return chosen_;
  }
  Holding holding_of(const tenon_linear& s, uint32_t mat, const published::Matrix* form) const {
    if (form != nullptr) return {form->coding(), Schema::kCodings[form->coding()].group};
    return stored_by<Schema>(s, mat).value_or(fitted(static_cast<uint32_t>(s.in_dim)));
  }

  static bool make_row(const Holding& h, const float* w, uint32_t k, uint8_t* row) {
    bool fits = false;
    with_index<std::size(Schema::kCodings)>(h.index, [&]<uint32_t kIndex>(std::integral_constant<uint32_t, kIndex>) {
      fits = quantize_row<typename Schema::template Codes<kIndex>>(Schema::kCodings[kIndex], h.group, w, k, row);
    });
    return fits;
  }

  // Takes a row from its tensors in the file. Throws Failed for numbers that are not
  // finite, and zero points that are no code.
  static void take_row(const Holding& h, const sdk::cpu::FileRow& from, uint32_t k, uint8_t* row) {
    const Coding& c = Schema::kCodings[h.index];
    std::memset(row, 0, c.row_bytes(k));
    each_piece(c, h.group, k, [&](uint32_t tensor, uint64_t at_tensor, uint64_t at_row, uint64_t bytes) {
      const uint8_t* piece = from[tensor] + at_tensor;
      if (tensor == 0) {
        check_codes(h.index, piece, bytes);
      } else {
        check_field(c, c.fields()[tensor - 1], piece);
      }
      std::memcpy(row + at_row, piece, bytes);
    });
  }
  static void check_codes(uint32_t index, const uint8_t* codes, uint64_t bytes) {
    if (!Schema::kCodings[index].plain_bytes()) return;
    with_index<std::size(Schema::kCodings)>(index, [&]<uint32_t kIndex>(std::integral_constant<uint32_t, kIndex>) {
      const auto is_nan = &Schema::template Codes<kIndex>::is_nan;
      if (std::any_of(codes, codes + bytes, is_nan)) throw sdk::Failed("a weight of a row is NaN");
    });
  }
  static void check_field(const Coding& c, const Field& f, const uint8_t* piece) {
    float value = *piece;
    if (f.format == TENON_F32) std::memcpy(&value, piece, sizeof(value));
    if (f.format == TENON_BF16) {
      uint16_t bits = 0;
      std::memcpy(&bits, piece, sizeof(bits));
      value = sdk::bf16_to_float(bits);
    }
    if (!std::isfinite(value)) throw sdk::Failed(std::string(f.name) + " of a row is not finite");
    if (has_zero_points(c.scaling) && f.format == TENON_U8 && *piece >> c.bits != 0) {
      throw sdk::Failed("a zero point of " + std::to_string(*piece) + " is no code of " + std::to_string(c.bits) +
                        " bits");
    }
  }

  Holding chosen_;  // what is quantized is held so
  std::unique_ptr<published::Writer> writer_;
  std::string description_;  // describes what the scheme writes
};

}  // namespace tenon::coded
