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
#include "tenon/sdk/recorder.h"

namespace tenon {

void ModelBuilder::commit() {
  const CacheStores s = enter_cache("kv_cache", -1);
  Call commit(components_.kv_cache, "record commit");
  commit.check(instance_.cache().record_commit(components_.kv_cache.self(), &s.stores, rec_.recorder(), commit.why()));
}

tenon_tid ModelBuilder::attend(LayerId id, tenon_tid x, bool only_out_rows) {
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
  // A cache that goes by softmax weights wants those of all rows.
  only_out_rows = only_out_rows && layer.cache.weight_rows == 0;
  return record_attention(layer, {y, append_view, ChainView(ops.data() + done, ops.size() - done), only_out_rows});
}

// The pick is part of the attention: whoever looks at what that leaves sees the rows that it has to leave.
tenon_tid ModelBuilder::attention_of_out_rows(LayerId id, tenon_tid x) {
  const tenon_tid attended = attend(id, x, true);
  if (logits_ == Logits::kUnwanted) return 0;
  const AttentionDecl& d = declared_.layers[id].decl;
  pick_layer_ = d.layer;
  enter(d.path, components_.attention.id(), d.layer);
  return pick_rows(attended);
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
  return as_read_by(d, view);
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

tenon_tid ModelBuilder::record_attention(AttentionLayer& layer, Attended of) {
  const AttentionDecl& d = layer.decl;
  const Instance& attention = components_.attention;
  const auto& table = attention.table<tenon_attention>();
  if (layer.dequant) of.view = record_cache_copy(layer);
  enter(d.path, attention.id(), d.layer);
  read_heads_.push_back({&layer, of.heads});
  const tenon_format out_format = of.only_out_rows ? tenon_format{TENON_F32} : format_of(layer.out_formats, shape_);
  const tenon_attn a = attention_of(d, of.pro, out_format);
  auto call = sdk::abi_struct<tenon_attn_call>();
  const int64_t columns = int64_t{d.q_heads} * d.v_dim;
  call.q = columns_of(of.heads, 0, int64_t{d.q_heads} * d.k_dim);
  // Nobody may look at rows that hold anything.
  call.out = of.only_out_rows ? rec_.temp(sdk::tensor(TENON_F32, {static_cast<int64_t>(rows_), columns}), d.path)
                              : new_rows(columns, d.path, out_format);
  call.kv = &of.view;
  call.pro = of.pro.get();
  call.claim = &layer.claims[shape_];
  call.only_out_rows = of.only_out_rows ? 1 : 0;
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
  return as_read_by(d, view);
}

}  // namespace tenon
