// This records attention layers, and what the cache does around them: its beginning of a step, the append of keys and
// values, and the copy for an attention that cannot read it.
//
// A layer becomes: its Q, K and V products; the ops over their heads that nobody claimed, the append among them,
// where the chain has it; what the cache chooses by the queries, if it does; the copy of the cache, if one is
// needed; the attention, with the ops at the chain's end that it claimed. The rules are those of
// tenon/abi/kv_cache.h and tenon/abi/attention.h.
#include "model_builder.h"
#include "tenon/core/error.h"
#include "tenon/sdk/error.h"

namespace tenon {

void ModelBuilder::commit() {
  const CacheStores s = enter_cache("kv_cache", -1);
  Call commit(components_.kv_cache, "record commit");
  commit.check(instance_.cache().record_commit(components_.kv_cache.self(), &s.stores, rec_.recorder(), commit.why()));
}

tenon_tid ModelBuilder::attention(LayerId id, tenon_tid x) {
  AttentionLayer& layer = declared_.layers[id];
  const AttentionDecl& d = layer.decl;
  Site& qkv = declared_.sites[layer.qkv];
  const tenon_kv_view append_view = cache_view(d);
  tenon_tid y = record_products(qkv, {x, 0}, {});
  const std::vector<tenon_fop> ops = with_tensors(qkv.after, {});
  const size_t claimed = layer.claims[shape_].pro;
  size_t done = qkv.done_after(qkv.groups.front().claims[shape_]);
  for (; done + claimed < ops.size(); ++done) {
    if (ops[done].id == TENON_F_KV_APPEND) {
      record_append(d, y);
    } else {
      y = record_unclaimed({d.path, d.layer}, qkv.after[done], ops[done], y, true);
    }
  }
  if (layer.chooses()) record_choice(d, y);
  return record_attention(layer, y, append_view, ChainView(ops.data() + done, ops.size() - done));
}

ModelBuilder::CacheStores ModelBuilder::enter_cache(const std::string& path, int32_t layer) {
  CacheStores s{.ids = {}, .stores = sdk::abi_struct<tenon_kv_stores>()};
  for (const uint32_t storage : instance_.kv_stores()) s.ids.push_back(store_tensor(storage));
  s.stores.store = s.ids.data();
  enter(path, components_.kv_cache.id(), layer);
  return s;
}

tenon_kv_view ModelBuilder::cache_view(const AttentionDecl& d) {
  const Instance& cache = components_.kv_cache;
  const CacheStores s = enter_cache(d.path, d.layer);
  auto view = sdk::abi_struct<tenon_kv_view>();
  Call call(cache, "view");
  call.check(instance_.cache().view(cache.self(), d.cache_layer, &s.stores, rec_.recorder(), &view, call.why()));
  declared_.kv_tables[view.group] = {view.page_cells, view.columns};
  return view;
}

void ModelBuilder::record_append(const AttentionDecl& d, tenon_tid y) {
  const Instance& cache = components_.kv_cache;
  const CacheStores s = enter_cache(d.path, d.layer);
  const int64_t q_columns = int64_t{d.q_heads} * d.k_dim, k_columns = int64_t{d.kv_heads} * d.k_dim;
  const tenon_tid k = columns_of(y, q_columns, k_columns);
  const tenon_tid v = columns_of(y, q_columns + k_columns, int64_t{d.kv_heads} * d.v_dim);
  Call call(cache, "record append");
  call.check(
      instance_.cache().record_append(cache.self(), d.cache_layer, &s.stores, k, v, rec_.recorder(), call.why()));
}

void ModelBuilder::record_choice(const AttentionDecl& d, tenon_tid y) {
  const Instance& cache = components_.kv_cache;
  const CacheStores s = enter_cache(d.path, d.layer);
  const tenon_tid q = columns_of(y, 0, int64_t{d.q_heads} * d.k_dim);
  Call call(cache, "record choice");
  call.check(instance_.cache().record_choice(cache.self(), d.cache_layer, &s.stores, q, rec_.recorder(), call.why()));
}

tenon_tid ModelBuilder::record_attention(AttentionLayer& layer, tenon_tid y, tenon_kv_view view, const ChainView& pro) {
  const AttentionDecl& d = layer.decl;
  const Instance& attention = components_.attention;
  const auto& table = attention.table<tenon_attention>();
  if (layer.dequant) view = record_cache_copy(layer);
  enter(d.path, attention.id(), d.layer);
  read_heads_.push_back({&layer, y});
  const tenon_format out_format = format_of(layer.out_formats, shape_);
  const tenon_attn a = attention_of(d, pro, out_format);
  auto call = sdk::abi_struct<tenon_attn_call>();
  call.q = columns_of(y, 0, int64_t{d.q_heads} * d.k_dim);
  call.out = new_rows(int64_t{d.q_heads} * d.v_dim, d.path, out_format);
  call.kv = &view;
  call.pro = pro.get();
  call.claim = &layer.claims[shape_];
  Call record(attention, "record " + d.path);
  record.check(table.record(attention.self(), &a, &call, rec_.recorder(), record.why()));
  return call.out;
}

tenon_kv_view ModelBuilder::record_cache_copy(const AttentionLayer& layer) {
  const AttentionDecl& d = layer.decl;
  const Instance& cache = components_.kv_cache;
  const Instance& attention = components_.attention;
  auto want = sdk::abi_struct<tenon_kv_format>();
  Call ask(attention, "preferred format");
  ask.check(attention.table<tenon_attention>().preferred_format(attention.self(), &want, ask.why()));
  want.rotated = layer.cache.format->rotated;
  const CacheStores s = enter_cache(d.path, d.layer);
  auto view = sdk::abi_struct<tenon_kv_view>();
  Call call(cache, "record dequant");
  call.check(instance_.cache().record_dequant(cache.self(), d.cache_layer, &s.stores, &want, rec_.recorder(), &view,
                                              call.why()));
  return view;
}

}  // namespace tenon
