// Small inputs that every component of a kind must be able to answer to, for the checks of its interface.
#pragma once

#include "tenon/abi/plugin.h"
#include "tenon/sdk/error.h"

namespace tenon {

struct Reason {
  char text[256] = "";
  tenon_reason raw{text, sizeof(text)};
};

inline tenon_bounds some_bounds() {
  auto b = sdk::abi_struct<tenon_bounds>();
  b.rows = 4, b.seqs = 2, b.rows_per_seq = 4, b.out_rows = 2, b.kv_len = 128, b.slots = 2, b.world = 1;
  return b;
}

inline tenon_attn some_layer(const tenon_chain& none) {
  auto layer = sdk::abi_struct<tenon_attn>();
  layer.q_heads = 4, layer.kv_heads = 2, layer.k_dim = layer.v_dim = 64, layer.scale = 0.125F;
  layer.q_format = TENON_F32, layer.pro = layer.epi = &none;
  return layer;
}

inline tenon_linear some_site(const tenon_chain& none, const int64_t& rows, const tenon_format& source) {
  auto site = sdk::abi_struct<tenon_linear>();
  site.path = "check", site.role = "o", site.n_mats = 1, site.x_format = site.y_format = TENON_F32;
  site.out_dim = &rows, site.source = &source, site.in_dim = 256;
  site.shard_world = 1, site.product_wanted = 1, site.pro = site.epi = &none;
  return site;
}

inline tenon_kv_geometry some_geometry(uint32_t layer) {
  auto geometry = sdk::abi_struct<tenon_kv_geometry>();
  geometry.layer = layer, geometry.heads = 2, geometry.k_dim = geometry.v_dim = 64;
  return geometry;
}

}  // namespace tenon
