// This is a quantization scheme's site on the CPU: how its matrices are stored,
// what is claimed, and how rows are loaded.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tenon/abi/device.h"
#include "tenon/abi/quantization.h"
#include "tenon/sdk/cpu/row_kernels.h"
#include "tenon/sdk/error.h"
#include "tenon/sdk/gguf_blocks.h"
#include "tenon/sdk/recorder.h"
#include "tenon/sdk/stored.h"

namespace tenon::sdk::cpu {

// Kernels are compiled for these instruction sets. Each has what those before it have, except that AVX-512 may come
// without AVX-VNNI.
enum class Isa : uint32_t { kScalar, kAvx2, kAvxVnni, kAvx512, kAvx512Vnni, kAvx512Bf16 };
inline Isa isa_of(const tenon_device& device) {
  constexpr uint64_t kVnni = TENON_ISA_AVX512 | TENON_ISA_AVX512_VNNI;
  if ((device.isa & kVnni) == kVnni) {
    return (device.isa & TENON_ISA_AVX512_BF16) != 0 ? Isa::kAvx512Bf16 : Isa::kAvx512Vnni;
  }
  if ((device.isa & TENON_ISA_AVX512) != 0) return Isa::kAvx512;
  if ((device.isa & TENON_ISA_AVX_VNNI) != 0) return Isa::kAvxVnni;
  return (device.isa & TENON_ISA_AVX2) != 0 ? Isa::kAvx2 : Isa::kScalar;
}
// A site is multiplied on this processor. VBMI is no Isa, since either of two processors may lack what the other has.
struct Processor {
  Isa isa;
  bool vbmi;  // AVX-512 VBMI
  uint32_t threads;
};
inline Processor processor_of(const tenon_device& device) {
  constexpr uint64_t kVbmi = TENON_ISA_AVX512 | TENON_ISA_AVX512_VBMI;
  return {isa_of(device), (device.isa & kVbmi) == kVbmi, device.units};
}
// Says whether the set has dot products of four bytes, which make products of x in 16 bits faster than those in f32.
inline bool has_byte_dots(Isa isa) {
  return isa == Isa::kAvxVnni || isa >= Isa::kAvx512Vnni;
}
// These are a plugin's kernels for one instruction set. All sets have the same formats, equal to the bit.
struct Kernels {
  const KernelTable* f32;
  const PackedTable* packed = nullptr;                 // nullptr: the plugin has no packed formats
  const Bf16Table* bf16 = nullptr;                     // nullptr: the plugin or the instruction set has none
  const Packing* (*packing)(uint32_t code) = nullptr;  // how a format of `packed` is packed; nullptr without one
  const KernelTable* vbmi = nullptr;                   // f32's for AVX-512 VBMI; nullptr: they are f32's own
};
using KernelsOf = Kernels (*)(Isa);

// These are a plugin's tables for all instruction sets, where it multiplies rows as they are stored, and may have
// packed formats for the sets with dot products of bytes, or for one of them.
struct KernelSets {
  const KernelTable *scalar, *avx2, *avx512;
  const PackedTable *avx_vnni = nullptr, *avx512_vnni = nullptr;
  const Packing* (*packing)(uint32_t code) = nullptr;  // how their formats are packed
  const KernelTable* avx512_vbmi = nullptr;            // it replaces avx512's where there is VBMI

  Kernels of(Isa isa) const {
    Kernels chosen{isa >= Isa::kAvx512 ? avx512 : isa >= Isa::kAvx2 ? avx2 : scalar};
    if (has_byte_dots(isa)) chosen.packed = isa >= Isa::kAvx512Vnni ? avx512_vnni : avx_vnni;
    if (chosen.packed != nullptr) chosen.packing = packing;
    if (isa >= Isa::kAvx512) chosen.vbmi = avx512_vbmi;
    return chosen;
  }
};

// This is a matrix as the scheme stores it, and as the file has it.
struct StoredMatrix {
  uint32_t code = 0;  // its row format's or, if x becomes int8, its packed format's
  uint32_t rows = 0;
  uint64_t row_bytes = 0;

  // This serves loading: load() gets row_bytes of a tensor for each row; a tensor without rows has 0
  // there, and load() gets all of its bytes.
  struct Tensor {
    uint64_t row_bytes = 0, bytes = 0;
  };
  tenon_format source = TENON_FORMAT_NONE;  // the scheme may number formats of its own
  std::vector<Tensor> tensors{};
};
// Rows of x are turned into this: kInt8 or kInt16 for packed matrices, kBf16 for matrices in bf16.
enum class Activations : uint32_t { kF32, kInt8, kBf16, kInt16 };

// Store i of a site holds matrix i, row by row or packed; a routed site's holds it for one expert after the other.
//
// An example: gate and up of a model of 4096 k are two matrices of 11008 rows, so the site has two stores and 22016
// columns. In Q4_0 a row is 2304 bytes, and packed in groups of 16 rows it is as many.
struct LinearSite {
  std::vector<StoredMatrix> mats;
  uint32_t k = 0;
  uint32_t experts = 0;   // 0: the site is not routed
  bool in_place = false;  // the stores are the file's bytes
  bool exact = false;     // each weight has the value that it has in the file
  Activations activations = Activations::kF32;

  bool packed() const { return activations == Activations::kInt8 || activations == Activations::kInt16; }

  uint64_t columns() const;
  // These return the bytes of one expert's matrices, as rows, and the bytes of one matrix in
  // its store, where groups of rows are whole.
  uint64_t bytes() const;
  uint64_t store_bytes(const StoredMatrix& m) const {
    return m.row_bytes * (packed() ? (m.rows + kGroupRows - 1) / kGroupRows * kGroupRows : m.rows);
  }
  // While a model is loaded, these return the matrix that rows of a file belong to,
  // and the address in a store where it begins.
  const StoredMatrix& mat(const tenon_rows& src) const { return mats[src.mat % mats.size()]; }
  uint8_t* address_of(const tenon_rows& src, void* const* store) const {
    return static_cast<uint8_t*>(store[src.mat % mats.size()]) + src.mat / mats.size() * store_bytes(mat(src));
  }
};

// Returns matrix i of a site, as claim_linear() found it in the file. code and row_bytes say how the scheme stores it.
inline StoredMatrix stored_matrix(const tenon_linear& s, uint32_t i, uint32_t code, uint64_t row_bytes,
                                  tenon_format source) {
  StoredMatrix m{.code = code, .rows = static_cast<uint32_t>(s.out_dim[i]), .row_bytes = row_bytes, .source = source};
  for (const tenon_stored& t : tensors_of(s.matrix[i])) {
    m.tensors.push_back({sdk::row_bytes(t, s.out_dim[i]), stored_bytes(t)});
  }
  return m;
}

inline uint64_t LinearSite::columns() const {
  uint64_t n = 0;
  for (const StoredMatrix& m : mats) n += m.rows;
  return n;
}
inline uint64_t LinearSite::bytes() const {
  uint64_t n = 0;
  for (const StoredMatrix& m : mats) n += m.rows * m.row_bytes;
  return n;
}

inline constexpr uint32_t kMaxEpilogue = 4;
inline constexpr uint32_t kMostExperts = 1 << 16;

namespace detail {

// This is the part of an epilogue that a product takes on: BIAS and ADD before and after one SILU_MUL.
struct EpiloguePlan {
  uint32_t before = 0, after = 0;  // without a SILU_MUL all stand before it
  bool silu = false;
  uint32_t taken() const { return before + after + (silu ? 1 : 0); }
};
// halves is true if SILU_MUL can be done, see has_halves().
inline EpiloguePlan plan_epilogue(const std::vector<tenon_fop>& ops, bool halves) {
  EpiloguePlan plan;
  for (const tenon_fop& op : ops) {
    const bool room = plan.before + plan.after < kMaxEpilogue;
    if ((op.id == TENON_F_BIAS || op.id == TENON_F_ADD) && room) {
      ++(plan.silu ? plan.after : plan.before);
    } else if (op.id == TENON_F_SILU_MUL && !plan.silu && halves) {
      plan.silu = true;
    } else {
      break;
    }
  }
  return plan;
}

}  // namespace detail

// Says whether a site is what SILU_MUL needs: two matrices of one shape, or one of an even number of rows.
inline bool has_halves(const tenon_linear& s) {
  return s.n_mats == 2 ? s.out_dim[0] == s.out_dim[1] : s.n_mats == 1 && s.out_dim[0] % 2 == 0;
}

// Says whether packed rows can be multiplied: a matrix of gate and up is cut between two rows,
// and groups of rows have to be whole there.
inline bool halves_are_groups(const tenon_linear& s) {
  for (const tenon_fop& op : ops_of(s.epi)) {
    if (op.id == TENON_F_SILU_MUL && s.n_mats == 1) return s.out_dim[0] / 2 % kGroupRows == 0;
  }
  return true;
}

// Says how the matrices of a site are packed for rows of x in 16 bits. nullptr: they stay as they are stored, since the
// instruction set has no dot products of bytes, rows are only looked up, or halves are no whole groups.
using PackingOf = const Packing* (*)(uint32_t code);
inline PackingOf int16_packing(const tenon_linear& s, const Kernels& kernels) {
  return kernels.packed != nullptr && s.product_wanted != 0 && halves_are_groups(s) ? kernels.packing : nullptr;
}

// A scheme names in this way what the file has of matrix i of the first set: it returns a format of its own, or the
// format of a plain matrix. Throws Refused with the tensor, what was found and what would be right.
using SourceOf = tenon_format (*)(const tenon_linear& s, uint32_t mat);

// Names a plain matrix in any format that unpack_row reads.
inline tenon_format unpacked_source(const tenon_linear& s, uint32_t mat) {
  const tenon_format format = need_plain(s, mat);
  const std::string name = tenon_format_name(format);
  if (!can_unpack(format)) {
    throw Refused("tensor " + full_name(s.matrix[mat], "weight") + " is stored as " + name + "; readable are " +
                  readable_formats(&can_unpack));
  }
  if (plain_row_bytes(format, static_cast<uint64_t>(s.in_dim)) == 0) {
    throw Refused("a width of " + std::to_string(s.in_dim) + " is not whole blocks of " +
                  std::to_string(tenon_format_block(format).elements) + " (" + name + ")");
  }
  return format;
}

// Throws Refused: what no scheme on the CPU does (activations other than f32, shapes beyond 2^31), matrices that
// `source` does not take, and routed sites unless the scheme multiplies them.
inline tenon_claim claim_linear(const tenon_linear& s, SourceOf source = &unpacked_source, bool routed = false) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (s.n_mats == 0 || s.n_mats > TENON_MAX_STORES) {
    throw Refused("a site of " + std::to_string(s.n_mats) + " matrices; 1 to " + std::to_string(TENON_MAX_STORES));
  }
  if (s.experts != 0 && !routed) throw Refused("expert matrices are not supported");
  if (s.experts > kMostExperts) throw Refused(std::to_string(s.experts) + " experts; at most 65536");
  if (s.experts != 0 && s.rows_wanted != 0) throw Refused("an embedding has no experts");
  if (s.x_format != TENON_F32 || s.y_format != TENON_F32) throw Refused("activations other than f32");
  if (s.in_dim <= 0 || s.in_dim > kMost) throw Refused("a width of " + std::to_string(s.in_dim) + "; 1 to 2^31 - 1");
  int64_t columns = 0;
  for (uint32_t i = 0; i < s.n_mats; ++i) {
    if (s.out_dim[i] <= 0 || s.out_dim[i] > kMost - columns) throw Refused("rows that are not 1 to 2^31 - 1 in all");
    columns += s.out_dim[i];
  }
  for (uint32_t i = 0; i < s.n_mats; ++i) (void)source(s, i);
  auto claim = abi_struct<tenon_claim>();
  const std::vector<tenon_fop> pro = ops_of(s.pro);
  claim.pro = !pro.empty() && pro.back().id == TENON_F_RMSNORM ? 1 : 0;
  claim.epi = detail::plan_epilogue(ops_of(s.epi), has_halves(s)).taken();
  return claim;
}

inline tenon_footprint footprint_of(const LinearSite& site, uint64_t load_bytes) {
  auto f = abi_struct<tenon_footprint>();
  f.n_stores = static_cast<uint32_t>(site.mats.size());
  f.flags = site.in_place ? TENON_FOOTPRINT_IN_PLACE | TENON_FOOTPRINT_EXACT : site.exact ? TENON_FOOTPRINT_EXACT : 0;
  f.load_bytes = site.in_place ? 0 : load_bytes;
  for (size_t i = 0; i < site.mats.size(); ++i) {
    f.store_bytes[i] = std::max(site.experts, 1U) * site.store_bytes(site.mats[i]);
  }
  return f;
}

// This is a row of a matrix while it loads.
class FileRow {
 public:
  FileRow(const StoredMatrix& matrix, const tenon_rows& src, uint64_t row) : matrix_(matrix), src_(src), row_(row) {}
  // Returns where tensor t of the matrix has the row, or the beginning of a tensor that has no rows.
  const uint8_t* operator[](size_t t) const {
    return static_cast<const uint8_t*>(src_.tensor[t].data) + row_ * matrix_.tensors[t].row_bytes;
  }

 private:
  const StoredMatrix& matrix_;
  const tenon_rows& src_;
  uint64_t row_;  // it counts from src's first
};

// Calls f(number, FileRow) for each row of src. Throws Failed on rows that the site does not have.
template <class F>
void each_numbered_row(const LinearSite& site, const tenon_rows& src, F&& f) {
  if (src.mat >= site.mats.size() * std::max(site.experts, 1U)) {
    throw Failed("rows of a matrix that the site does not have");
  }
  const StoredMatrix& m = site.mat(src);
  bool fits = src.row0 <= m.rows && src.rows <= m.rows - src.row0;
  for (size_t t = 0; t < m.tensors.size(); ++t) {
    const StoredMatrix::Tensor& tensor = m.tensors[t];
    fits = fits && src.tensor[t].bytes == (tensor.row_bytes != 0 ? src.rows * tensor.row_bytes : tensor.bytes);
  }
  if (!fits) {
    throw Failed("rows [" + std::to_string(src.row0) + ", +" + std::to_string(src.rows) +
                 ") with their bytes do not fit a " + "matrix of " + std::to_string(m.rows) + " rows");
  }
  for (uint64_t r = 0; r < src.rows; ++r) f(src.row0 + r, FileRow(m, src, r));
}
// Calls f(row of the store, FileRow) for each.
template <class F>
void each_loaded_row(const LinearSite& site, const tenon_rows& src, void* const* store, F&& f) {
  each_numbered_row(site, src, [&](uint64_t row, const FileRow& from) {
    f(site.address_of(src, store) + row * site.mat(src).row_bytes, from);
  });
}

}  // namespace tenon::sdk::cpu
