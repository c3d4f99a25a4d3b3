#include "step_recording.h"

#include <algorithm>
#include <map>

#include "tenon/core/error.h"
#include "tenon/sdk/error.h"
#include "tenon/sdk/recorder.h"

namespace tenon {
namespace {

class Builder : public StepBuilder {
 public:
  Builder(const ProgramContext& context, const tenon_bounds& bounds, size_t shape)
      : context_(context),
        shape_(shape),
        rec_(bounds, context.storages, context.state.storages()),
        rows_(bounds.rows) {}

  ProgramRecording& recording() { return rec_; }

  tenon_tid embed(SiteId id) override {
    Site& site = context_.declared.sites[id];
    SiteGroup& group = site.groups.front();
    const Instance& scheme = group.scheme->instance;
    enter(site.decl.lookup && site.decl.product ? "embedding" : site.decl.path, scheme.id(), -1);
    const tenon_tid y = rows_of(site.decl.columns, "embedding");
    const std::vector<tenon_tid> stores = stores_of(group);
    Call call(scheme, "record rows");
    call.check(group.scheme->table().record_rows(scheme.self(), group.handle, stores.data(),
                                                 rec_.step(TENON_STEP_TOKEN), y, rec_.recorder(), call.why()));
    return y;
  }

  tenon_tid linear(SiteId id, tenon_tid x, tenon_tid residual) override {
    Site& site = context_.declared.sites[id];
    Chain epi = epilogue_of(site, nullptr);
    fill(site, epi, residual);
    size_t done = 0;
    tenon_tid y = product(site, x, epi, done);
    for (; done < epi.ops.size(); ++done) y = visible(site.decl.path, site.decl.layer, epi.ops[done], y);
    return y;
  }

  tenon_tid attention(LayerId id, tenon_tid x) override {
    AttentionLayer& layer = context_.declared.layers[id];
    const AttentionDecl& d = layer.decl;
    Site& qkv = context_.declared.sites[d.qkv];
    tenon_kv_view append_view = cache_view(d);
    Chain epi = epilogue_of(qkv, &d);
    fill(qkv, epi, 0);
    for (tenon_fop& op : epi.ops) {
      if (op.id == TENON_F_ROPE) op.t[0] = vector_of(d.rope);
      if (op.id == TENON_F_QK_NORM) op.t[0] = vector_of(d.q_norm->weight), op.t[1] = vector_of(d.k_norm->weight);
      if (op.id == TENON_F_KV_APPEND) op.ext = &append_view;
    }
    size_t done = 0;
    const tenon_tid y = product(qkv, x, epi, done);
    const size_t claimed = layer.claims[shape_].pro;
    for (; done + claimed < epi.ops.size(); ++done) {
      if (epi.ops[done].id == TENON_F_KV_APPEND) {
        append(d, y);
      } else {
        visible(d.path, d.layer, epi.ops[done], y, true);
      }
    }
    return softmax(layer, y, append_view, ChainView(epi.ops.data() + done, epi.ops.size() - done));
  }

  tenon_tid out_rows(tenon_tid x) override {
    enter("out_rows", std::string("device.") + context_.parts.device().kind, -1);
    const int64_t columns = rec_.view(x).dim[1];
    rows_ = rec_.bounds().out_rows;
    row_live_ = rec_.slice(rec_.step(TENON_STEP_LIVE), sdk::tensor(TENON_U32, {1}), 2 * sizeof(uint32_t));
    const tenon_tid y = rows_of(columns, "out_rows");
    auto op = sdk::abi_struct<tenon_fop>();
    op.id = TENON_F_GATHER_ROWS;
    record_fop(op, x, y);
    return y;
  }

  void record_fop(tenon_fop op, tenon_tid x, tenon_tid y) {
    op.t[3] = row_live_;
    const tenon_device& device = context_.parts.device();
    char text[256] = "";
    tenon_reason why{text, sizeof(text)};
    if (device.record_fop(device.self, &op, x, y, rec_.recorder(), &why) != TENON_OK) {
      throw Error(ErrorCode::kPlugin, std::string("device.") + device.kind + ": " + fop_name(op.id) + ": " + text);
    }
  }

  void enter(const std::string& path, const std::string& component, int32_t layer) {
    rec_.scope(path, component, layer);
  }

  tenon_tid state_records(uint32_t storage, uint64_t record_bytes) {
    const int64_t slots = rec_.bounds().slots;
    return rec_.storage(storage, sdk::tensor(TENON_U8, {slots, static_cast<int64_t>(record_bytes)}));
  }

  std::vector<tenon_tid> cache_stores() {
    std::vector<tenon_tid> ids;
    for (const uint32_t s : context_.kv_stores) ids.push_back(bytes_of(s));
    return ids;
  }

 private:
  tenon_tid rows_of(int64_t columns, const std::string& name) {
    return rec_.temp(sdk::tensor(TENON_F32, {static_cast<int64_t>(rows_), columns}), name);
  }
  tenon_tid bytes_of(uint32_t storage) {
    return rec_.storage(storage, sdk::tensor(TENON_U8, {static_cast<int64_t>(context_.storages[storage].bytes)}));
  }
  std::vector<tenon_tid> stores_of(const SiteGroup& group) {
    std::vector<tenon_tid> ids;
    for (const uint32_t s : group.stores) ids.push_back(bytes_of(s));
    return ids;
  }
  tenon_tid vector_of(VectorId id) {
    const Vector& v = context_.declared.vectors[id];
    return rec_.storage(
        v.storage, v.rows == 1 ? sdk::tensor(TENON_F32, {v.columns}) : sdk::tensor(TENON_F32, {v.rows, v.columns}));
  }

  void fill(const Site& site, Chain& chain, tenon_tid residual) {
    for (tenon_fop& op : chain.ops) {
      op.t[3] = row_live_;
      if (op.id == TENON_F_RMSNORM) op.t[0] = vector_of(site.decl.norm->weight);
      if (op.id == TENON_F_BIAS) op.t[0] = vector_of(*site.decl.bias);
      if (op.id == TENON_F_ADD) op.t[0] = residual;
    }
  }

  // An op of the chain that nobody claimed. In place unless it changes the shape.
  tenon_tid visible(const std::string& path, int32_t layer, const tenon_fop& op, tenon_tid x, bool in_place = false) {
    enter(path, std::string("device.") + context_.parts.device().kind, layer);
    tenon_tid y = x;
    if (!in_place) {
      const int64_t columns = rec_.view(x).dim[1];
      y = rows_of(op.id == TENON_F_SILU_MUL ? columns / 2 : columns, path + "." + fop_name(op.id));
    }
    record_fop(op, x, y);
    return y;
  }

  // The products of a site with what its schemes claimed; done = how many ops of epi that was.
  tenon_tid product(Site& site, tenon_tid x, const Chain& epi, size_t& done) {
    Chain pro = prologue_of(site);
    fill(site, pro, 0);
    size_t claimed_pro = pro.ops.size();
    for (const SiteGroup& group : site.groups) claimed_pro = std::min<size_t>(claimed_pro, group.claims[shape_].pro);
    size_t own = 0;
    for (; own + claimed_pro < pro.ops.size(); ++own) x = visible(site.decl.path, site.decl.layer, pro.ops[own], x);
    done = site.groups.size() == 1 ? site.groups[0].claims[shape_].epi : 0;
    int64_t columns = site.total_rows();
    for (size_t i = 0; i < done; ++i) columns = columns_after(epi.ops[i], columns);
    const tenon_tid y = rows_of(columns, site.decl.path);
    const ChainView pro_view(pro.ops.data() + own, pro.ops.size() - own), epi_view(epi.ops.data(), done);
    uint64_t offset = 0;
    for (SiteGroup& group : site.groups) {
      const Instance& scheme = group.scheme->instance;
      enter(site.groups.size() == 1 ? site.decl.path : site.decl.mats[group.mats.front()].path, scheme.id(),
            site.decl.layer);
      tenon_claim claim = group.claims[shape_];
      claim.pro = static_cast<uint32_t>(claimed_pro);
      const std::vector<tenon_tid> stores = stores_of(group);
      auto call = sdk::abi_struct<tenon_linear_call>();
      call.x = x;
      call.y = site.groups.size() == 1 ? y : columns_of(y, offset, group, site);
      call.store = stores.data();
      call.row_live = row_live_;
      call.pro = pro_view.get(), call.epi = epi_view.get(), call.claim = &claim;
      Call record(scheme, "record " + site.decl.path);
      record.check(group.scheme->table().record(scheme.self(), group.handle, &call, rec_.recorder(), record.why()));
    }
    return y;
  }

  static int64_t columns_after(const tenon_fop& op, int64_t columns) {
    if (op.id == TENON_F_SILU_MUL) return columns / 2;
    if (op.id == TENON_F_KV_APPEND) return columns / (op.i[2] + 2 * op.i[3]) * op.i[2];
    return columns;
  }

  tenon_tid columns_of(tenon_tid y, uint64_t& offset, const SiteGroup& group, const Site& site) {
    int64_t n = 0;
    for (const size_t m : group.mats) n += site.rows[m];
    tenon_tensor part = rec_.view(y);
    part.dim[1] = n;
    const tenon_tid id = rec_.slice(y, part, offset);
    offset += static_cast<uint64_t>(n) * sizeof(float);
    return id;
  }

  tenon_tid heads_of(tenon_tid y, const AttentionDecl& d, uint32_t first, uint32_t heads) {
    tenon_tensor part = rec_.view(y);
    part.dim[1] = int64_t{heads} * d.head_dim;
    return rec_.slice(y, part, uint64_t{first} * d.head_dim * sizeof(float));
  }

  tenon_kv_stores kv_stores(const std::vector<tenon_tid>& ids) {
    auto s = sdk::abi_struct<tenon_kv_stores>();
    s.store = ids.data();
    return s;
  }

  tenon_kv_view cache_view(const AttentionDecl& d) {
    const Instance& cache = context_.parts.kv_cache;
    const std::vector<tenon_tid> ids = cache_stores();
    const tenon_kv_stores stores = kv_stores(ids);
    auto view = sdk::abi_struct<tenon_kv_view>();
    enter(d.path, cache.id(), d.layer);
    Call call(cache, "view");
    call.check(cache.table<tenon_kv_cache>().view(cache.self(), static_cast<uint32_t>(d.layer), &stores,
                                                  rec_.recorder(), &view, call.why()));
    context_.declared.kv_tables[view.group] = {view.page_tokens, view.columns};
    return view;
  }

  void append(const AttentionDecl& d, tenon_tid y) {
    const Instance& cache = context_.parts.kv_cache;
    const std::vector<tenon_tid> ids = cache_stores();
    const tenon_kv_stores stores = kv_stores(ids);
    enter(d.path, cache.id(), d.layer);
    const tenon_tid k = heads_of(y, d, d.q_heads, d.kv_heads);
    const tenon_tid v = heads_of(y, d, d.q_heads + d.kv_heads, d.kv_heads);
    Call call(cache, "record append");
    call.check(cache.table<tenon_kv_cache>().record_append(cache.self(), static_cast<uint32_t>(d.layer), &stores, k, v,
                                                           rec_.recorder(), call.why()));
  }

  tenon_tid softmax(AttentionLayer& layer, tenon_tid y, tenon_kv_view view, const ChainView& pro) {
    const AttentionDecl& d = layer.decl;
    const Instance& attention = context_.parts.attention;
    const auto& table = attention.table<tenon_attention>();
    if (layer.dequant) view = dequantized(d);
    enter(d.path, attention.id(), d.layer);
    const ChainView none(nullptr, 0);
    auto a = sdk::abi_struct<tenon_attn>();
    a.layer = static_cast<uint32_t>(d.layer), a.q_heads = d.q_heads, a.kv_heads = d.kv_heads;
    a.k_dim = a.v_dim = d.head_dim, a.window = d.window, a.q_format = TENON_F32;
    a.scale = d.scale, a.softcap = d.softcap, a.pro = pro.get(), a.epi = none.get();
    auto call = sdk::abi_struct<tenon_attn_call>();
    call.q = heads_of(y, d, 0, d.q_heads);
    call.out = rows_of(int64_t{d.q_heads} * d.head_dim, d.path);
    call.kv = &view;
    call.pro = pro.get(), call.epi = none.get(), call.claim = &layer.claims[shape_];
    if (table.record_plan != nullptr) {
      const auto [it, inserted] = plans_.try_emplace(view.group, 0);
      if (inserted) {
        Call plan(attention, "record plan");
        plan.check(table.record_plan(attention.self(), &a, &view, rec_.recorder(), &it->second, plan.why()));
      }
      call.plan = it->second;
    }
    Call record(attention, "record " + d.path);
    record.check(table.record(attention.self(), &a, &call, rec_.recorder(), record.why()));
    return call.out;
  }

  tenon_kv_view dequantized(const AttentionDecl& d) {
    const Instance& cache = context_.parts.kv_cache;
    const Instance& attention = context_.parts.attention;
    auto want = sdk::abi_struct<tenon_kv_format>();
    Call ask(attention, "preferred format");
    ask.check(attention.table<tenon_attention>().preferred_format(attention.self(), &want, ask.why()));
    const std::vector<tenon_tid> ids = cache_stores();
    const tenon_kv_stores stores = kv_stores(ids);
    auto view = sdk::abi_struct<tenon_kv_view>();
    enter(d.path, cache.id(), d.layer);
    Call call(cache, "record dequant");
    call.check(cache.table<tenon_kv_cache>().record_dequant(cache.self(), static_cast<uint32_t>(d.layer), &stores,
                                                            &want, rec_.recorder(), &view, call.why()));
    return view;
  }

  const ProgramContext& context_;
  size_t shape_;
  ProgramRecording rec_;
  uint32_t rows_;           // of what is recorded next
  tenon_tid row_live_ = 0;  // how many of them are live; 0 = the step's rows
  std::map<tenon_id, tenon_tid> plans_;
};

// The chain of samplers over the logits, verification of drafts, and the states' and the cache's commit.
void record_sampling(const ProgramContext& context, Builder& builder, tenon_tid logits, uint32_t vocab) {
  ProgramRecording& rec = builder.recording();
  const ChainView none(nullptr, 0);
  auto candidates = sdk::abi_struct<tenon_candidates>();
  candidates.form = TENON_DENSE, candidates.cap = candidates.vocab = vocab;
  candidates.logits = logits;
  const tenon_tid next = rec.step(TENON_STEP_NEXT);
  for (const ChainLink& link : context.parts.samplers) {
    const tenon_sampler& table = link.table();
    builder.enter("sampler", link.instance.id(), -1);
    if ((table.in_forms & candidates.form) == 0) {
      throw Error(ErrorCode::kConfig, link.instance.id() + " cannot work on what the sampler before it leaves");
    }
    const tenon_tid params = builder.state_records(link.param_storage, table.param_bytes);
    const tenon_tid state = link.state_bytes == 0 ? 0 : builder.state_records(link.state_storage, link.state_bytes);
    Call call(link.instance, "record");
    call.check(table.is_selector != 0 ? table.record_select(link.instance.self(), &candidates, params, next, none.get(),
                                                            rec.recorder(), call.why())
                                      : table.record_apply(link.instance.self(), &candidates, params, state, none.get(),
                                                           rec.recorder(), call.why()));
  }
  builder.enter("verify", std::string("device.") + context.parts.device().kind, -1);
  auto verify = sdk::abi_struct<tenon_fop>();
  verify.id = TENON_F_VERIFY;
  builder.record_fop(verify, next, rec.step(TENON_STEP_ACCEPTED));
  for (const ChainLink& link : context.parts.samplers) {
    if (link.state_bytes == 0 || link.table().record_accept == nullptr) continue;
    builder.enter("sampler", link.instance.id(), -1);
    Call call(link.instance, "record accept");
    call.check(link.table().record_accept(
        link.instance.self(), builder.state_records(link.state_storage, link.state_bytes), rec.recorder(), call.why()));
  }
}

// The op that ends a sampling step on a device with queues: the rows move on, and the host hears what was chosen.
void record_advance(const ProgramContext& context, Builder& builder, bool moves_on) {
  ProgramRecording& rec = builder.recording();
  const StepState& state = context.state;
  builder.enter("advance", std::string("device.") + context.parts.device().kind, -1);
  auto op = sdk::abi_struct<tenon_fop>();
  op.id = TENON_F_ADVANCE;
  op.t[0] = rec.storage(state.count(), sdk::tensor(TENON_U32, {1}));
  op.i[0] = static_cast<int32_t>(state.entries()), op.i[1] = static_cast<int32_t>(state.entry_words());
  op.i[2] = moves_on ? 1 : 0;
  tenon_tensor outbox = sdk::tensor(TENON_U32, {state.entries(), state.entry_words()});
  outbox.space = TENON_SPACE_HOST;
  builder.record_fop(op, rec.step(TENON_STEP_NEXT), rec.storage(state.outbox(), outbox));
}

}  // namespace

StepProgram record_step(const ProgramContext& context, const Model& model, const tenon_bounds& bounds, size_t shape,
                        bool sample) {
  Builder builder(context, bounds, shape);
  StepProgram step{.program = nullptr, .logits = 0, .sample = sample, .moves_on = false};
  step.logits = model.record(builder);
  if (sample) record_sampling(context, builder, step.logits, model.info().vocab);
  const Instance& cache = context.parts.kv_cache;
  builder.enter("kv_cache", cache.id(), -1);
  const std::vector<tenon_tid> ids = builder.cache_stores();
  auto stores = sdk::abi_struct<tenon_kv_stores>();
  stores.store = ids.data();
  Call commit(cache, "record commit");
  commit.check(
      cache.table<tenon_kv_cache>().record_commit(cache.self(), &stores, builder.recording().recorder(), commit.why()));
  if (sample && context.parts.queues()) {
    step.moves_on = bounds.rows_per_seq == 1;
    record_advance(context, builder, step.moves_on);
  }
  const tenon_tid outputs[] = {step.logits};
  step.program = builder.recording().finish(outputs);
  return step;
}

}  // namespace tenon
