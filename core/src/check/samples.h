// These are small inputs that every component of a kind must be able to answer to, for the checks of its interface.
#pragma once

#include "tenon/abi/plugin.h"
#include "tenon/sdk/error.h"
#include "tenon/sdk/fop.h"

namespace tenon {

struct Reason {
  char text[256] = "";
  tenon_reason raw{text, sizeof(text)};
};

inline tenon_bounds some_bounds() {
  auto b = sdk::abi_struct<tenon_bounds>();
  b.rows = 4;
  b.seqs = 2;
  b.rows_per_seq = 4;
  b.out_rows = 2;
  b.kv_len = 8192;  // as a pipeline has that states no capacity: a cache's defaults fit it
  b.slots = 2;
  return b;
}

inline tenon_attn some_layer(const tenon_chain& none) {
  auto layer = sdk::abi_struct<tenon_attn>();
  layer.q_heads = 4;
  layer.kv_heads = 2;
  layer.k_dim = layer.v_dim = 64;
  layer.scale = 0.125F;
  layer.pro = &none;
  return layer;
}

// Makes a linear cache's view; the format outlives it.
inline tenon_kv_view some_view(const tenon_kv_format& format) {
  auto view = sdk::abi_struct<tenon_kv_view>();
  view.format = &format;
  view.heads = 2;
  view.k_dim = view.v_dim = 64;
  view.page_cells = 128;
  view.columns = 1;
  view.pos_rule = TENON_POS_LINEAR;
  return view;
}

inline constexpr int64_t kSomeWidth = 256;
inline tenon_linear some_site(const tenon_chain& none, const int64_t& rows, const tenon_matrix* matrix) {
  auto site = sdk::abi_struct<tenon_linear>();
  site.path = "check";
  site.description = "";
  site.n_mats = 1;
  site.x_format = site.y_format = TENON_F32;
  site.out_dim = &rows;
  site.matrix = matrix;
  site.in_dim = kSomeWidth;
  site.product_wanted = 1;
  site.pro = site.epi = &none;
  return site;
}

// Makes an op over 64 columns: two query heads, one key and one value head of 16.
inline tenon_fop some_op(tenon_id id) {
  auto op = sdk::abi_struct<tenon_fop>();
  op.id = id;
  sdk::Heads(2, 1, 16, 16).store(op);
  return op;
}
inline constexpr int64_t kSomeColumns = 64;

inline tenon_kv_geometry some_geometry(uint32_t layer) {
  auto geometry = sdk::abi_struct<tenon_kv_geometry>();
  geometry.layer = layer;
  geometry.heads = 2;
  geometry.k_dim = geometry.v_dim = 64;
  return geometry;
}

// Sequence 0 generates, 1 is in its prompt, 2 waits.
inline tenon_sequence some_sequence(uint32_t i) {
  auto s = sdk::abi_struct<tenon_sequence>();
  s.id = i + 1;
  s.age = 10 - i;
  s.priority = 1;
  s.phase = i == 0 ? TENON_SEQUENCE_GENERATES : i == 1 ? TENON_SEQUENCE_PROMPT : TENON_SEQUENCE_WAITS;
  s.tokens = 20;
  s.cached = i == 0 ? 19 : i == 1 ? 10 : 0;
  s.pending = s.tokens - s.cached;
  return s;
}

}  // namespace tenon
