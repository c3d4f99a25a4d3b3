// This records products and the ops around them; attention and the cache are in model_builder_attention.cc.
//
// A site becomes, in this order: the ops before it that not every group claims; what observers record; each group's
// product, with the ops that its scheme claimed, and after it the ops of its own columns that the scheme left; the ops
// after the site that nobody claimed. Invariants: the rows at hand are those of the step until out_rows(), and of the
// logits from there on; an op works in place only on a tensor that this site made.
#include "model_builder.h"

#include <algorithm>
#include <utility>

#include "tenon/core/error.h"
#include "tenon/sdk/error.h"
#include "tenon/sdk/linked_rows.h"
#include "tenon/sdk/recorder.h"

namespace tenon {

tenon_tid ModelBuilder::record() {
  if (instance_.cache().record_begin != nullptr) {
    const CacheStores s = enter_cache("kv_cache", -1);
    Call begin(components_.kv_cache, "record begin");
    begin.check(instance_.cache().record_begin(components_.kv_cache.self(), &s.stores, rec_.recorder(), begin.why()));
  }
  return instance_.model().record(*this);
}

tenon_tid ModelBuilder::embed(LinearId id) {
  const Site& site = declared_.sites[declared_.site_of(id)];
  const SiteGroup& group = site.groups.front();
  const Instance& scheme = group.scheme->instance;
  const std::string path = site.decl.lookup && site.decl.product ? "embedding" : site.decl.path;
  enter(path, scheme.id(), -1);
  tenon_tid y = new_rows(site.decl.columns, "embedding");
  const std::vector<tenon_tid> stores = stores_of(group);
  Call call(scheme, "record rows");
  call.check(group.scheme->table().record_rows(scheme.self(), group.handle, stores.data(), rec_.step(TENON_STEP_TOKEN),
                                               y, rec_.recorder(), call.why()));
  const std::vector<tenon_fop> ops = with_tensors(site.looked_up, {});
  for (size_t i = 0; i < ops.size(); ++i) y = record_unclaimed({path, -1}, site.looked_up[i], ops[i], y, true);
  return y;
}

tenon_tid ModelBuilder::handed_in(int64_t columns) {
  return rec_.storage(instance_.handed_in(), sdk::tensor(TENON_F32, {static_cast<int64_t>(rows_), columns}));
}

tenon_tid ModelBuilder::linear(LinearId id, tenon_tid x, const std::vector<tenon_tid>& rows, tenon_tid expert) {
  if (x == 0) return 0;  // out_rows() was called, and nobody wants logits
  Site& site = declared_.sites[declared_.site_of(id)];
  if (all_rows_ != 0) record_pool(site);
  return record_site(site, {x, expert}, rows);
}

tenon_tid ModelBuilder::joined(JoinedId id, tenon_tid x, const std::vector<tenon_tid>& rows, tenon_tid expert) {
  if (x == 0) return 0;
  return record_site(declared_.sites[declared_.site_of_joined(id)], {x, expert}, rows);
}

tenon_tid ModelBuilder::row_ops(RowOpsId id, tenon_tid x, const std::vector<tenon_tid>& rows) {
  const RowOps& r = declared_.ops_of_rows[id];
  const std::vector<tenon_fop> ops = with_tensors(r.ops, rows);
  for (size_t i = 0; i < ops.size(); ++i) {
    x = record_unclaimed({r.decl.path, r.decl.layer}, r.ops[i], ops[i], x, i > 0);
  }
  return x;
}

tenon_tid ModelBuilder::repeat_rows(const RepeatedRows& how, tenon_tid x) {
  if (times_ != 1) throw Error(ErrorCode::kInternal, "rows that are repeated are to be repeated");
  live_before_ = row_live_;
  if (how.times == 1) return x;
  const auto [live, is_new] = repeated_live_.try_emplace({row_live_, how.times});
  if (is_new) live->second = rec_.slice(row_ops(how.live_rows, x, {}), sdk::tensor(TENON_U32, {1}), 0);
  // If there is only one row, it need not be copied: the rows are the same one.
  const bool alone = rows_ == 1;
  if (!alone) x = row_ops(how.repeat, x, {});
  times_ = how.times;
  rows_ *= times_;
  row_live_ = live->second;
  rec_.repeat_rows(times_);
  if (!alone) return as_rows(x);
  tenon_tensor same = rec_.view(x);
  same.dim[0] = rows_;
  same.stride[0] = 0;
  return rec_.slice(x, same, 0);
}

void ModelBuilder::end_repeat() {
  rows_ /= std::exchange(times_, 1);
  row_live_ = std::exchange(live_before_, 0);
  rec_.repeat_rows(1);
}

tenon_tid ModelBuilder::as_rows(tenon_tid x) {
  const tenon_tensor& t = rec_.view(x);
  if (t.dim[0] == rows_) return x;
  return rec_.slice(x, sdk::tensor(t.format, {static_cast<int64_t>(rows_), t.dim[0] * t.dim[1] / rows_}), 0);
}

tenon_tid ModelBuilder::experts_of(tenon_tid x) {
  return rec_.slice(x, sdk::tensor(TENON_I32, {rec_.view(x).dim[0]}), 0);
}

void ModelBuilder::record_pool(const Site& head) {
  // The rows at hand are once more all of the step.
  const uint32_t rows = std::exchange(rows_, rec_.bounds().rows);
  const tenon_tid live = std::exchange(row_live_, 0);
  const int32_t word = std::exchange(live_word_, 0);
  tenon_tid x = std::exchange(all_rows_, 0);
  const std::vector<tenon_fop> ops = with_tensors(head.before, {});
  for (size_t i = 0; i < ops.size(); ++i) x = record_unclaimed({"pool", -1}, head.before[i], ops[i], x, i > 0);
  enter("pool", std::string("device.") + components_.device().kind, -1);
  auto op = sdk::abi_struct<tenon_fop>();
  op.id = TENON_F_POOL;
  const int64_t slots = rec_.bounds().slots, columns = rec_.view(x).dim[1];
  record_step_op(op, x, rec_.storage(*pooled_, sdk::tensor(TENON_F32, {slots, 2, columns})));
  rows_ = rows;
  row_live_ = live;
  live_word_ = word;
}

tenon_tid ModelBuilder::out_rows(tenon_tid x) {
  if (logits_ == Logits::kUnwanted) return 0;
  if (pooled_) all_rows_ = x;
  enter("out_rows", std::string("device.") + components_.device().kind, pick_layer_);
  return pick_rows(x);
}

tenon_tid ModelBuilder::pick_rows(tenon_tid x) {
  const int64_t columns = rec_.view(x).dim[1];
  if (live_word_ != sdk::kLiveOutRows) {
    rows_ = rec_.bounds().out_rows;
    live_word_ = sdk::kLiveOutRows;
    row_live_ =
        rec_.slice(rec_.step(TENON_STEP_LIVE), sdk::tensor(TENON_U32, {1}), sdk::kLiveOutRows * sizeof(uint32_t));
  }
  const tenon_tid y = new_rows(columns, "out_rows");
  auto op = sdk::abi_struct<tenon_fop>();
  op.id = TENON_F_GATHER_ROWS;
  record_step_op(op, x, y);
  return y;
}

void ModelBuilder::record_step_op(tenon_fop& op, tenon_tid x, tenon_tid y) {
  op.live = row_live_;
  const tenon_device& device = components_.device();
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

tenon_tid ModelBuilder::new_rows(int64_t columns, const std::string& name, tenon_format format) {
  if (format != TENON_F32) return rec_.temp(sdk::linked_rows(format, rows_, columns), name, live_word_);
  const tenon_tid rows =
      rec_.temp(sdk::tensor(format, {static_cast<int64_t>(rows_ / times_), columns * times_}), name, live_word_);
  return as_rows(rows);
}

tenon_tid ModelBuilder::store_tensor(uint32_t storage) {
  // A cache without layers has stores of no bytes; a tensor has one at least.
  const uint64_t bytes = std::max<uint64_t>(1, instance_.storages()[storage].bytes);
  return rec_.storage(storage, sdk::tensor(TENON_U8, {static_cast<int64_t>(bytes)}));
}

std::vector<tenon_tid> ModelBuilder::stores_of(const SiteGroup& group) {
  std::vector<tenon_tid> ids;
  for (const uint32_t s : group.stores) ids.push_back(store_tensor(s));
  return ids;
}

tenon_tid ModelBuilder::vector_tensor(VectorId id) {
  const Vector& v = declared_.vectors[id];
  return rec_.storage(*v.storage,
                      v.rows == 1 ? sdk::tensor(TENON_F32, {v.columns}) : sdk::tensor(TENON_F32, {v.rows, v.columns}));
}

std::vector<tenon_fop> ModelBuilder::with_tensors(const OpChain& chain, const std::vector<tenon_tid>& rows) {
  std::vector<tenon_fop> ops;
  size_t next = 0;
  for (const ChainOp& c : chain) {
    tenon_fop op = c.fop;
    op.live = row_live_;
    for (size_t t = 0; t < c.vectors.size(); ++t) {
      if (c.vectors[t]) op.t[t] = vector_tensor(*c.vectors[t]);
      if (!c.rows[t]) continue;
      if (next == rows.size()) throw Error(ErrorCode::kInternal, "op." + c.name() + " lacks the rows that it takes");
      op.t[t] = rows[next++];
    }
    ops.push_back(op);
  }
  return ops;
}

tenon_tid ModelBuilder::record_unclaimed(const OpPlace& place, const ChainOp& op, const tenon_fop& with, tenon_tid x,
                                         bool ours) {
  const Instance& instance = op.op->instance;
  enter(place.path, instance.id(), place.layer);
  const bool in_place = ours && op.in_place();
  const tenon_tid y =
      in_place ? x : new_rows(op.columns(place.path, rec_.view(x).dim[1]), place.path + "." + op.name());
  Call call(instance, "record " + place.path);
  call.check(op.op->table().record(instance.self(), &with, x, y, rec_.recorder(), call.why()));
  return y;
}

tenon_tid ModelBuilder::record_site(Site& site, const Input& input, const std::vector<tenon_tid>& rows) {
  tenon_tid y = record_products(site, input, rows);
  const std::vector<tenon_fop> ops = with_tensors(site.after, rows);
  for (size_t i = site.done_after(site.groups.front().claims[shape_]); i < ops.size(); ++i) {
    y = record_unclaimed({site.decl.path, site.decl.layer}, site.after[i], ops[i], y, true);
  }
  return y;
}

void ModelBuilder::record_observation(const Site& site, const Input& input) {
  auto call = sdk::abi_struct<tenon_observe_call>();
  call.x = input.x;
  call.expert = input.expert;
  call.row_live = row_live_;
  instance_.observation().record(site, call, rec_);
}

tenon_tid ModelBuilder::record_products(Site& site, Input input, const std::vector<tenon_tid>& rows) {
  if ((site.decl.experts != 0) != (input.expert != 0)) {
    throw Error(ErrorCode::kModel,
                site.decl.path + ": a routed product takes the experts of its rows, and no other does");
  }
  // These are the ops before the site that not every group claims.
  const std::vector<tenon_fop> before = with_tensors(site.before, {});
  size_t claimed = before.size();
  for (const SiteGroup& group : site.groups) claimed = std::min<size_t>(claimed, group.claims[shape_].pro);
  const size_t unclaimed = before.size() - claimed;
  for (size_t i = 0; i < unclaimed; ++i) {
    input.x = record_unclaimed({site.decl.path, site.decl.layer}, site.before[i], before[i], input.x, i > 0);
  }
  record_observation(site, input);

  // y has the groups' columns side by side.
  const SiteGroup& first = site.groups.front();
  const bool whole = site.groups.size() == 1;
  const size_t done = whole ? first.claims[shape_].epi : 0;
  const int64_t columns = columns_after(site.decl.path, first.offered, done, site.total_rows());
  const tenon_tid y = new_rows(columns, site.decl.path, format_of(site.y_formats, shape_));
  const ChainView claimed_before(before.data() + unclaimed, claimed);
  if (const auto left = normed_.find(input.x); left != normed_.end()) input.x = left->second;
  std::vector<tenon_fop> norm;
  tenon_tid normed = 0;
  if (const tenon_format format = format_of(site.normed_formats, shape_); format != TENON_F32) {
    norm = with_tensors(declared_.sites[site.normed_for].before, {});
    normed = new_rows(columns, site.decl.path + ".normed", format);
    normed_[y] = normed;
  }
  int64_t column = 0;
  for (SiteGroup& group : site.groups) {
    record_group(site, group, {input, claimed_before, rows, normed, normed != 0 ? norm.data() : nullptr},
                 whole ? y : columns_of(y, column, group.rows(site)));
    record_unclaimed_of_group(site, group, y, column);
    column += group.rows(site);
  }
  return y;
}

const std::string& ModelBuilder::path_of(const Site& site, const SiteGroup& group) {
  return site.groups.size() == 1 ? site.decl.path : site.decl.mats[group.mats.front()].path;
}

void ModelBuilder::record_group(const Site& site, SiteGroup& group, const SharedInput& shared, tenon_tid y) {
  const Instance& scheme = group.scheme->instance;
  const std::string& path = path_of(site, group);
  enter(path, scheme.id(), site.decl.layer);
  tenon_claim claim = group.claims[shape_];
  claim.pro = shared.before.get()->n;
  const std::vector<tenon_fop> after = with_tensors(group.offered, shared.rows);
  const ChainView claimed_after(after.data(), claim.epi);
  const std::vector<tenon_tid> stores = stores_of(group);
  auto call = sdk::abi_struct<tenon_linear_call>();
  call.x = shared.input.x;
  call.y = y;
  call.expert = shared.input.expert;
  call.store = stores.data();
  call.row_live = row_live_;
  call.pro = shared.before.get();
  call.epi = claimed_after.get();
  call.claim = &claim;
  call.normed = shared.normed;
  call.norm = shared.norm;
  Call record(scheme, "record " + path);
  record.check(group.scheme->table().record(scheme.self(), group.handle, &call, rec_.recorder(), record.why()));
}

void ModelBuilder::record_in_place(const OpPlace& place, const OpChain& chain, size_t first, const Columns& on) {
  const std::vector<tenon_fop> ops = with_tensors(chain, {});
  if (first >= ops.size()) return;
  const tenon_tid columns = columns_of(on.y, on.first, on.n);
  for (; first < ops.size(); ++first) record_unclaimed(place, chain[first], ops[first], columns, true);
}

void ModelBuilder::record_unclaimed_of_group(const Site& site, const SiteGroup& group, tenon_tid y, int64_t column) {
  const OpPlace place{path_of(site, group), site.decl.layer};
  record_in_place(place, group.after, group.claims[shape_].epi, {y, column, group.rows(site)});
  if (!group.apart) return;
  for (const size_t m : group.mats) {
    const int64_t rows = site.decl.mats[m].rows;
    record_in_place(place, site.each[m], 0, {y, column, rows});
    column += rows;
  }
}

tenon_tid ModelBuilder::columns_of(tenon_tid y, int64_t first, int64_t n) {
  tenon_tensor part = rec_.view(y);
  if (first == 0 && part.dim[1] == n) return y;
  part.dim[1] = n;
  return rec_.slice(y, part, static_cast<uint64_t>(first) * sizeof(float));
}

}  // namespace tenon
