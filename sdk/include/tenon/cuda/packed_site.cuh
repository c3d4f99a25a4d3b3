// This is a site as a scheme that packs weights keeps it; it says whether the scheme takes a site on.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "tenon/cuda/expert_groups.cuh"
#include "tenon/cuda/packed.cuh"
#include "tenon/sdk/gguf_blocks.h"
#include "tenon/sdk/quantization.h"

namespace tenon::cuda {

struct PackedSite {
  uint32_t code = 0;  // the code of its format, which the scheme's with_format() takes
  TileMap map{};
  uint32_t k = 0;
  uint32_t experts = 0;              // 0: the site is not routed
  std::vector<uint32_t> first;       // by matrix of an expert: its first column in y
  std::vector<uint32_t> rows;        // by matrix of an expert
  std::vector<tenon_format> source;  // by matrix of an expert: what the scheme's source() says
  bool exact = false;                // each weight has the value that it has in the file
  uint64_t weight_bytes = 0;         // the packed weights of an expert, or of a site that is not routed
  uint32_t stores = 1;               // packed weights take so many; 2: the rows have scales, in the second one
  bool keeps_plain = false;          // one store more has the weights as PlainOf<F>[columns][k], in y's order

  tenon_format source_of(const tenon_rows& src) const { return source[src.mat % rows.size()]; }
  uint32_t expert_of(const tenon_rows& src) const { return src.mat / static_cast<uint32_t>(rows.size()); }
  // Returns the store that has the rows' scales, of those of the site; 0 if they have none.
  tenon_tid scale_store(const tenon_tid* store) const { return stores == 2 ? store[1] : 0; }
  // Returns the first scale of the rows' expert in a store of scales.
  float* scales(void* store, const tenon_rows& src) const {
    return static_cast<float*>(store) + size_t{expert_of(src)} * map.tiles() * kTileRows;
  }
};

// Returns the format of a plain matrix, for a scheme's source(). Throws Refused where `reads` is false of it.
inline tenon_format plain_source(const tenon_linear& s, uint32_t mat, bool (*reads)(tenon_format)) {
  const tenon_format format = sdk::need_plain(s, mat);
  const std::string name = tenon_format_name(format);
  if (!reads(format)) {
    throw sdk::Refused("tensor " + sdk::full_name(s.matrix[mat], "weight") + " is stored as " + name +
                       "; on a GPU this scheme reads " + sdk::readable_formats(reads));
  }
  if (sdk::plain_row_bytes(format, static_cast<uint64_t>(s.in_dim)) == 0) {
    throw sdk::Refused("a width of " + std::to_string(s.in_dim) + " is not whole blocks of " +
                       std::to_string(tenon_format_block(format).elements) + " (" + name + ")");
  }
  return format;
}

__host__ __device__ inline bool is_float(tenon_format format) {
  return format == TENON_F32 || format == TENON_F16 || format == TENON_BF16;
}

namespace detail {

// Returns how many ops of an epilogue a product takes: [BIAS] [ADD or SILU_MUL].
inline uint32_t taken_of(const std::vector<tenon_fop>& ops, bool halves) {
  uint32_t n = !ops.empty() && ops[0].id == TENON_F_BIAS ? 1 : 0;
  if (n < ops.size() && (ops[n].id == TENON_F_ADD || (ops[n].id == TENON_F_SILU_MUL && halves))) ++n;
  return n;
}

// Throws Refused with the reason why a site is not taken on. source(s, i) throws
// for matrices that the scheme does not read.
template <class Source>
void check_site(const tenon_linear& s, const Source& source, bool routed) {
  // Up to these sizes products of 32 bits hold, and a row of x fits in shared memory.
  constexpr int64_t kMostRows = 1 << 24, kMostColumns = 56 << 10;
  if (s.experts != 0 && !routed) {
    throw sdk::Refused("expert matrices are not supported; only dense models run with this scheme");
  }
  if (s.experts > kMostExperts) throw sdk::Refused(std::to_string(s.experts) + " experts; at most 1024");
  if (s.experts != 0 && s.rows_wanted != 0) throw sdk::Refused("an embedding has no experts");
  int64_t columns = 0;
  for (uint32_t i = 0; i < s.n_mats; ++i) {
    (void)source(s, i);
    columns += s.out_dim[i];
  }
  if (s.n_mats == 0 || columns <= 0 || columns > kMostRows || s.in_dim <= 0 || s.in_dim > kMostColumns) {
    throw sdk::Refused("a site of " + std::to_string(columns) + " rows and " + std::to_string(s.in_dim) +
                       " columns; rows must be 1 to 2^24, columns 1 to 57344");
  }
}

}  // namespace detail

}  // namespace tenon::cuda
