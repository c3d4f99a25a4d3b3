#include "model_builder.h"

#include <algorithm>

#include "tenon/core/error.h"
#include "tenon/sdk/error.h"
#include "tenon/sdk/recorder.h"

namespace tenon {

tenon_tid ModelBuilder::record() {
  if (instance_.cache().record_begin != nullptr) {
    const CacheStores s = enter_cache("kv_cache", -1);
    Call begin(parts_.kv_cache, "record begin");
    begin.check(instance_.cache().record_begin(parts_.kv_cache.self(), &s.stores, rec_.recorder(), begin.why()));
  }
  return instance_.model().record(*this);
}

void ModelBuilder::commit() {
  const CacheStores s = enter_cache("kv_cache", -1);
  Call commit(parts_.kv_cache, "record commit");
  commit.check(instance_.cache().record_commit(parts_.kv_cache.self(), &s.stores, rec_.recorder(), commit.why()));
}

tenon_tid ModelBuilder::embed(LinearId id) {
  const Site& site = declared_.sites[declared_.site_of(id)];
  const SiteGroup& group = site.groups.front();
  const Instance& scheme = group.scheme->instance;
  enter(site.decl.lookup && site.decl.product ? "embedding" : site.decl.path, scheme.id(), -1);
  const tenon_tid y = rows_of(site.decl.columns, "embedding");
  const std::vector<tenon_tid> stores = stores_of(group);
  Call call(scheme, "record rows");
  call.check(group.scheme->table().record_rows(scheme.self(), group.handle, stores.data(), rec_.step(TENON_STEP_TOKEN),
                                               y, rec_.recorder(), call.why()));
  return y;
}

tenon_tid ModelBuilder::linear(LinearId id, tenon_tid x, const std::vector<tenon_tid>& rows, tenon_tid expert) {
  if (x == 0) return 0;  // after out_rows() where nobody wants logits
  return product_and_rest(declared_.sites[declared_.site_of(id)], {x, expert}, rows);
}

tenon_tid ModelBuilder::joined(JoinedId id, tenon_tid x, const std::vector<tenon_tid>& rows, tenon_tid expert) {
  if (x == 0) return 0;
  return product_and_rest(declared_.sites[declared_.site_of_joined(id)], {x, expert}, rows);
}

tenon_tid ModelBuilder::attention(LayerId id, tenon_tid x) {
  AttentionLayer& layer = declared_.layers[id];
  const AttentionDecl& d = layer.decl;
  Site& qkv = declared_.sites[layer.qkv];
  const tenon_kv_view append_view = cache_view(d);
  tenon_tid y = product(qkv, {x, 0}, {});
  const std::vector<tenon_fop> ops = filled(qkv.behind, {});
  const size_t claimed = layer.claims[shape_].pro;
  size_t done = qkv.done_behind(qkv.groups.front().claims[shape_]);
  for (; done + claimed < ops.size(); ++done) {
    if (ops[done].id == TENON_F_KV_APPEND) {
      append(d, y);
    } else {
      y = visible(d.path, d.layer, qkv.behind[done], ops[done], y, true);
    }
  }
  return record_attention(layer, y, append_view, ChainView(ops.data() + done, ops.size() - done));
}

tenon_tid ModelBuilder::out_rows(tenon_tid x) {
  if (logits_ == Logits::kUnwanted) return 0;
  enter("out_rows", std::string("device.") + parts_.device().kind, -1);
  const int64_t columns = rec_.view(x).dim[1];
  rows_ = rec_.bounds().out_rows;
  live_word_ = 2;
  row_live_ = rec_.slice(rec_.step(TENON_STEP_LIVE), sdk::tensor(TENON_U32, {1}), 2 * sizeof(uint32_t));
  const tenon_tid y = rows_of(columns, "out_rows");
  auto op = sdk::abi_struct<tenon_fop>();
  op.id = TENON_F_GATHER_ROWS;
  record_step_op(op, x, y);
  return y;
}

void ModelBuilder::record_step_op(tenon_fop op, tenon_tid x, tenon_tid y) {
  op.live = row_live_;
  const tenon_device& device = parts_.device();
  char text[256] = "";
  tenon_reason why{text, sizeof(text)};
  if (device.record_step_op(device.self, &op, x, y, rec_.recorder(), &why) != TENON_OK) {
    throw Error(ErrorCode::kPlugin,
                std::string("device.") + device.kind + ": op " + std::to_string(op.id) + " of the step: " + text);
  }
}

tenon_tid ModelBuilder::state_records(uint32_t storage, uint64_t record_bytes) {
  const int64_t slots = rec_.bounds().slots;
  return rec_.storage(storage, sdk::tensor(TENON_U8, {slots, static_cast<int64_t>(record_bytes)}));
}

tenon_tid ModelBuilder::rows_of(int64_t columns, const std::string& name) {
  return rec_.temp(sdk::tensor(TENON_F32, {static_cast<int64_t>(rows_), columns}), name, live_word_);
}

tenon_tid ModelBuilder::bytes_of(uint32_t storage) {
  // A cache without layers has stores of no bytes; a tensor has one at least.
  const uint64_t bytes = std::max<uint64_t>(1, instance_.storages()[storage].bytes);
  return rec_.storage(storage, sdk::tensor(TENON_U8, {static_cast<int64_t>(bytes)}));
}

std::vector<tenon_tid> ModelBuilder::stores_of(const SiteGroup& group) {
  std::vector<tenon_tid> ids;
  for (const uint32_t s : group.stores) ids.push_back(bytes_of(s));
  return ids;
}

tenon_tid ModelBuilder::vector_of(VectorId id) {
  const Vector& v = declared_.vectors[id];
  return rec_.storage(*v.storage,
                      v.rows == 1 ? sdk::tensor(TENON_F32, {v.columns}) : sdk::tensor(TENON_F32, {v.rows, v.columns}));
}

std::vector<tenon_fop> ModelBuilder::filled(const OpChain& chain, const std::vector<tenon_tid>& rows) {
  std::vector<tenon_fop> ops;
  size_t next = 0;
  for (const ChainOp& c : chain) {
    tenon_fop op = c.fop;
    op.live = row_live_;
    for (size_t t = 0; t < c.vectors.size(); ++t) {
      if (c.vectors[t]) op.t[t] = vector_of(*c.vectors[t]);
      if (!c.rows[t]) continue;
      if (next == rows.size()) throw Error(ErrorCode::kInternal, "op." + c.name() + " lacks the rows that it takes");
      op.t[t] = rows[next++];
    }
    ops.push_back(op);
  }
  return ops;
}

tenon_tid ModelBuilder::visible(const std::string& path, int32_t layer, const ChainOp& op, const tenon_fop& with,
                                tenon_tid x, bool ours) {
  const Instance& instance = op.op->instance;
  enter(path, instance.id(), layer);
  const bool in_place = ours && op.in_place();
  const tenon_tid y = in_place ? x : rows_of(op.columns(path, rec_.view(x).dim[1]), path + "." + op.name());
  Call call(instance, "record " + path);
  call.check(op.op->table().record(instance.self(), &with, x, y, rec_.recorder(), call.why()));
  return y;
}

tenon_tid ModelBuilder::product_and_rest(Site& site, const Input& input, const std::vector<tenon_tid>& rows) {
  tenon_tid y = product(site, input, rows);
  const std::vector<tenon_fop> ops = filled(site.behind, rows);
  for (size_t i = site.done_behind(site.groups.front().claims[shape_]); i < ops.size(); ++i) {
    y = visible(site.decl.path, site.decl.layer, site.behind[i], ops[i], y, true);
  }
  return y;
}

void ModelBuilder::observe(const Site& site, const Input& input) {
  auto call = sdk::abi_struct<tenon_observe_call>();
  call.x = input.x, call.expert = input.expert, call.row_live = row_live_;
  instance_.observation().record(site, call, rec_);
}

tenon_tid ModelBuilder::product(Site& site, Input input, const std::vector<tenon_tid>& rows) {
  if ((site.decl.experts != 0) != (input.expert != 0)) {
    throw Error(ErrorCode::kModel,
                site.decl.path + ": a routed product takes the experts of its rows, and no other does");
  }
  const std::vector<tenon_fop> before = filled(site.before, {});
  size_t claimed = before.size();
  for (const SiteGroup& group : site.groups) claimed = std::min<size_t>(claimed, group.claims[shape_].pro);
  size_t own = 0;
  for (; own + claimed < before.size(); ++own) {
    input.x = visible(site.decl.path, site.decl.layer, site.before[own], before[own], input.x, own > 0);
  }
  observe(site, input);
  const bool whole = site.groups.size() == 1;
  const size_t done = whole ? site.groups.front().claims[shape_].epi : 0;
  const tenon_tid y =
      rows_of(columns_after(site.decl.path, site.groups.front().offered, done, site.total_rows()), site.decl.path);
  const ChainView before_view(before.data() + own, claimed);
  int64_t column = 0;
  for (SiteGroup& group : site.groups) {
    const std::string& path = whole ? site.decl.path : site.decl.mats[group.mats.front()].path;
    multiply(site, group, path, input, whole ? y : columns_of(y, column, group.rows(site)), before_view, rows);
    ops_behind_each(site, group, path, y, column);
    column += group.rows(site);
  }
  return y;
}

void ModelBuilder::multiply(const Site& site, SiteGroup& group, const std::string& path, const Input& input,
                            tenon_tid y, const ChainView& before, const std::vector<tenon_tid>& rows) {
  const Instance& scheme = group.scheme->instance;
  enter(path, scheme.id(), site.decl.layer);
  tenon_claim claim = group.claims[shape_];
  claim.pro = before.get()->n;
  const std::vector<tenon_fop> behind = filled(group.offered, rows);
  const ChainView behind_view(behind.data(), claim.epi);
  const std::vector<tenon_tid> stores = stores_of(group);
  auto call = sdk::abi_struct<tenon_linear_call>();
  call.x = input.x, call.y = y, call.expert = input.expert;
  call.store = stores.data();
  call.row_live = row_live_;
  call.pro = before.get(), call.epi = behind_view.get(), call.claim = &claim;
  Call record(scheme, "record " + path);
  record.check(group.scheme->table().record(scheme.self(), group.handle, &call, rec_.recorder(), record.why()));
}

void ModelBuilder::ops_behind_each(const Site& site, const SiteGroup& group, const std::string& path, tenon_tid y,
                                   int64_t column) {
  const auto on = [&](const OpChain& chain, size_t first, int64_t at, int64_t n) {
    const std::vector<tenon_fop> ops = filled(chain, {});
    if (first >= ops.size()) return;
    const tenon_tid columns = columns_of(y, at, n);
    for (; first < ops.size(); ++first) visible(path, site.decl.layer, chain[first], ops[first], columns, true);
  };
  on(group.behind, group.claims[shape_].epi, column, group.rows(site));
  if (!group.apart) return;
  for (const size_t m : group.mats) {
    on(site.each[m], 0, column, site.decl.mats[m].rows);
    column += site.decl.mats[m].rows;
  }
}

tenon_tid ModelBuilder::columns_of(tenon_tid y, int64_t first, int64_t n) {
  tenon_tensor part = rec_.view(y);
  if (first == 0 && part.dim[1] == n) return y;
  part.dim[1] = n;
  return rec_.slice(y, part, static_cast<uint64_t>(first) * sizeof(float));
}

ModelBuilder::CacheStores ModelBuilder::enter_cache(const std::string& path, int32_t layer) {
  CacheStores s{.ids = {}, .stores = sdk::abi_struct<tenon_kv_stores>()};
  for (const uint32_t storage : instance_.kv_stores()) s.ids.push_back(bytes_of(storage));
  s.stores.store = s.ids.data();
  enter(path, parts_.kv_cache.id(), layer);
  return s;
}

tenon_kv_view ModelBuilder::cache_view(const AttentionDecl& d) {
  const Instance& cache = parts_.kv_cache;
  const CacheStores s = enter_cache(d.path, d.layer);
  auto view = sdk::abi_struct<tenon_kv_view>();
  Call call(cache, "view");
  call.check(instance_.cache().view(cache.self(), static_cast<uint32_t>(d.layer), &s.stores, rec_.recorder(), &view,
                                    call.why()));
  declared_.kv_tables[view.group] = {view.page_cells, view.columns};
  return view;
}

void ModelBuilder::append(const AttentionDecl& d, tenon_tid y) {
  const Instance& cache = parts_.kv_cache;
  const CacheStores s = enter_cache(d.path, d.layer);
  const int64_t q_columns = int64_t{d.q_heads} * d.k_dim, k_columns = int64_t{d.kv_heads} * d.k_dim;
  const tenon_tid k = columns_of(y, q_columns, k_columns);
  const tenon_tid v = columns_of(y, q_columns + k_columns, int64_t{d.kv_heads} * d.v_dim);
  Call call(cache, "record append");
  call.check(instance_.cache().record_append(cache.self(), static_cast<uint32_t>(d.layer), &s.stores, k, v,
                                             rec_.recorder(), call.why()));
}

tenon_tid ModelBuilder::record_attention(AttentionLayer& layer, tenon_tid y, tenon_kv_view view, const ChainView& pro) {
  const AttentionDecl& d = layer.decl;
  const Instance& attention = parts_.attention;
  const auto& table = attention.table<tenon_attention>();
  if (layer.dequant) view = dequantized(layer);
  enter(d.path, attention.id(), d.layer);
  read_heads_.push_back({&layer, y});
  const tenon_attn a = attention_of(d, pro);
  auto call = sdk::abi_struct<tenon_attn_call>();
  call.q = columns_of(y, 0, int64_t{d.q_heads} * d.k_dim);
  call.out = rows_of(int64_t{d.q_heads} * d.v_dim, d.path);
  call.kv = &view;
  call.pro = pro.get(), call.claim = &layer.claims[shape_];
  Call record(attention, "record " + d.path);
  record.check(table.record(attention.self(), &a, &call, rec_.recorder(), record.why()));
  return call.out;
}

tenon_kv_view ModelBuilder::dequantized(const AttentionLayer& layer) {
  const AttentionDecl& d = layer.decl;
  const Instance& cache = parts_.kv_cache;
  const Instance& attention = parts_.attention;
  auto want = sdk::abi_struct<tenon_kv_format>();
  Call ask(attention, "preferred format");
  ask.check(attention.table<tenon_attention>().preferred_format(attention.self(), &want, ask.why()));
  want.rotated = layer.cache.format->rotated;
  const CacheStores s = enter_cache(d.path, d.layer);
  auto view = sdk::abi_struct<tenon_kv_view>();
  Call call(cache, "record dequant");
  call.check(instance_.cache().record_dequant(cache.self(), static_cast<uint32_t>(d.layer), &s.stores, &want,
                                              rec_.recorder(), &view, call.why()));
  return view;
}

}  // namespace tenon
