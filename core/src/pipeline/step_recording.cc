#include "step_recording.h"

#include <algorithm>

#include "sampler_check.h"
#include "tenon/core/error.h"
#include "tenon/sdk/error.h"
#include "tenon/sdk/recorder.h"

namespace tenon {
namespace {

class Builder : public StepBuilder {
 public:
  enum class Logits { kWanted, kUnwanted };
  // Records with the bounds and the step state that the recording has entered.
  Builder(ModelInstance& instance, StorageTable& storages, ProgramRecording& recording, size_t shape,
          Logits logits = Logits::kWanted)
      : instance_(instance),
        parts_(instance.parts),
        declared_(*instance.declared),
        prefix_(storages, instance.name()),
        shape_(shape),
        logits_(logits),
        rec_(recording),
        rows_(recording.bounds().rows) {}

  ProgramRecording& recording() { return rec_; }

  tenon_tid embed(LinearId id) override {
    const Site& site = declared_.sites[declared_.site_of(id)];
    const SiteGroup& group = site.groups.front();
    const Instance& scheme = group.scheme->instance;
    enter(site.decl.lookup && site.decl.product ? "embedding" : site.decl.path, scheme.id(), -1);
    const tenon_tid y = rows_of(site.decl.columns, "embedding");
    const std::vector<tenon_tid> stores = stores_of(group);
    Call call(scheme, "record rows");
    call.check(group.scheme->table().record_rows(scheme.self(), group.handle, stores.data(),
                                                 rec_.step(TENON_STEP_TOKEN), y, rec_.recorder(), call.why()));
    return y;
  }

  tenon_tid tokens() override { return rec_.step(TENON_STEP_TOKEN); }

  tenon_tid linear(LinearId id, tenon_tid x, const std::vector<tenon_tid>& rows, tenon_tid expert) override {
    if (x == 0) return 0;  // after out_rows() where nobody wants logits
    return product_and_rest(declared_.sites[declared_.site_of(id)], {x, expert}, rows);
  }
  tenon_tid joined(JoinedId id, tenon_tid x, const std::vector<tenon_tid>& rows, tenon_tid expert) override {
    if (x == 0) return 0;
    return product_and_rest(declared_.sites[declared_.site_of_joined(id)], {x, expert}, rows);
  }

  tenon_tid attention(LayerId id, tenon_tid x) override {
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
    return softmax(layer, y, append_view, ChainView(ops.data() + done, ops.size() - done));
  }

  tenon_tid out_rows(tenon_tid x) override {
    if (logits_ == Logits::kUnwanted) return 0;
    enter("out_rows", std::string("device.") + parts_.device().kind, -1);
    const int64_t columns = rec_.view(x).dim[1];
    rows_ = rec_.bounds().out_rows;
    row_live_ = rec_.slice(rec_.step(TENON_STEP_LIVE), sdk::tensor(TENON_U32, {1}), 2 * sizeof(uint32_t));
    const tenon_tid y = rows_of(columns, "out_rows");
    auto op = sdk::abi_struct<tenon_fop>();
    op.id = TENON_F_GATHER_ROWS;
    record_step_op(op, x, y);
    return y;
  }

  void record_step_op(tenon_fop op, tenon_tid x, tenon_tid y) {
    op.live = row_live_;
    const tenon_device& device = parts_.device();
    char text[256] = "";
    tenon_reason why{text, sizeof(text)};
    if (device.record_step_op(device.self, &op, x, y, rec_.recorder(), &why) != TENON_OK) {
      throw Error(ErrorCode::kPlugin,
                  std::string("device.") + device.kind + ": op " + std::to_string(op.id) + " of the step: " + text);
    }
  }

  void enter(const std::string& path, const std::string& component, int32_t layer) {
    rec_.scope(instance_.name() + path, component, layer);
  }

  tenon_tid state_records(uint32_t storage, uint64_t record_bytes) {
    const int64_t slots = rec_.bounds().slots;
    return rec_.storage(storage, sdk::tensor(TENON_U8, {slots, static_cast<int64_t>(record_bytes)}));
  }

  std::vector<tenon_tid> cache_stores() {
    std::vector<tenon_tid> ids;
    for (const uint32_t s : instance_.kv_stores()) ids.push_back(bytes_of(s));
    return ids;
  }

 private:
  tenon_tid rows_of(int64_t columns, const std::string& name) {
    return rec_.temp(sdk::tensor(TENON_F32, {static_cast<int64_t>(rows_), columns}), name);
  }
  tenon_tid bytes_of(uint32_t storage) {
    // A cache without layers has stores of no bytes; a tensor has one at least.
    const uint64_t bytes = std::max<uint64_t>(1, instance_.storages()[storage].bytes);
    return rec_.storage(storage, sdk::tensor(TENON_U8, {static_cast<int64_t>(bytes)}));
  }
  std::vector<tenon_tid> stores_of(const SiteGroup& group) {
    std::vector<tenon_tid> ids;
    for (const uint32_t s : group.stores) ids.push_back(bytes_of(s));
    return ids;
  }
  tenon_tid vector_of(VectorId id) {
    const Vector& v = declared_.vectors[id];
    return rec_.storage(
        *v.storage, v.rows == 1 ? sdk::tensor(TENON_F32, {v.columns}) : sdk::tensor(TENON_F32, {v.rows, v.columns}));
  }

  // The ops with their tensors. rows: those that record() named, in order.
  std::vector<tenon_fop> filled(const OpChain& chain, const std::vector<tenon_tid>& rows) {
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

  // An op that nobody claimed. ours: x is read by nothing else, so that y may be x.
  tenon_tid visible(const std::string& path, int32_t layer, const ChainOp& op, const tenon_fop& with, tenon_tid x,
                    bool ours) {
    const Instance& instance = op.op->instance;
    enter(path, instance.id(), layer);
    const bool in_place = ours && op.in_place();
    const tenon_tid y = in_place ? x : rows_of(op.columns(path, rec_.view(x).dim[1]), path + "." + op.name());
    Call call(instance, "record " + path);
    call.check(op.op->table().record(instance.self(), &with, x, y, rec_.recorder(), call.why()));
    return y;
  }

  // What is multiplied: rows and, if the product is routed, the expert of each.
  struct Input {
    tenon_tid x, expert;
  };

  tenon_tid product_and_rest(Site& site, const Input& input, const std::vector<tenon_tid>& rows) {
    tenon_tid y = product(site, input, rows);
    const std::vector<tenon_fop> ops = filled(site.behind, rows);
    for (size_t i = site.done_behind(site.groups.front().claims[shape_]); i < ops.size(); ++i) {
      y = visible(site.decl.path, site.decl.layer, site.behind[i], ops[i], y, true);
    }
    return y;
  }

  void observe(const Site& site, const Input& input) {
    auto call = sdk::abi_struct<tenon_observe_call>();
    call.x = input.x, call.expert = input.expert, call.row_live = row_live_;
    instance_.observation().record(site, call, rec_);
  }

  // The products of a site with what is behind each of them, and what their schemes claimed of what is behind the site.
  tenon_tid product(Site& site, Input input, const std::vector<tenon_tid>& rows) {
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
    const tenon_tid y = rows_of(columns_after(site.decl.path, site.groups.front().offered, done, site.total_rows()),
                                site.decl.path);
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

  void multiply(const Site& site, SiteGroup& group, const std::string& path, const Input& input, tenon_tid y,
                const ChainView& before, const std::vector<tenon_tid>& rows) {
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

  // What a group's scheme has left of the ops behind each of its matrices, on their columns of y, in place.
  void ops_behind_each(const Site& site, const SiteGroup& group, const std::string& path, tenon_tid y, int64_t column) {
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

  // Columns [first, first + n) of y.
  tenon_tid columns_of(tenon_tid y, int64_t first, int64_t n) {
    tenon_tensor part = rec_.view(y);
    if (first == 0 && part.dim[1] == n) return y;
    part.dim[1] = n;
    return rec_.slice(y, part, static_cast<uint64_t>(first) * sizeof(float));
  }

  tenon_kv_stores kv_stores(const std::vector<tenon_tid>& ids) {
    auto s = sdk::abi_struct<tenon_kv_stores>();
    s.store = ids.data();
    return s;
  }

  tenon_kv_view cache_view(const AttentionDecl& d) {
    const Instance& cache = parts_.kv_cache;
    const std::vector<tenon_tid> ids = cache_stores();
    const tenon_kv_stores stores = kv_stores(ids);
    auto view = sdk::abi_struct<tenon_kv_view>();
    enter(d.path, cache.id(), d.layer);
    Call call(cache, "view");
    call.check(cache.table<tenon_kv_cache>().view(cache.self(), static_cast<uint32_t>(d.layer), &stores,
                                                  rec_.recorder(), &view, call.why()));
    declared_.kv_tables[view.group] = {view.page_cells, view.columns};
    return view;
  }

  void append(const AttentionDecl& d, tenon_tid y) {
    const Instance& cache = parts_.kv_cache;
    const std::vector<tenon_tid> ids = cache_stores();
    const tenon_kv_stores stores = kv_stores(ids);
    enter(d.path, cache.id(), d.layer);
    const int64_t q_columns = int64_t{d.q_heads} * d.k_dim, k_columns = int64_t{d.kv_heads} * d.k_dim;
    const tenon_tid k = columns_of(y, q_columns, k_columns);
    const tenon_tid v = columns_of(y, q_columns + k_columns, int64_t{d.kv_heads} * d.v_dim);
    Call call(cache, "record append");
    call.check(cache.table<tenon_kv_cache>().record_append(cache.self(), static_cast<uint32_t>(d.layer), &stores, k, v,
                                                           rec_.recorder(), call.why()));
  }

  tenon_tid softmax(AttentionLayer& layer, tenon_tid y, tenon_kv_view view, const ChainView& pro) {
    const AttentionDecl& d = layer.decl;
    const Instance& attention = parts_.attention;
    const auto& table = attention.table<tenon_attention>();
    if (layer.dequant) view = dequantized(layer);
    enter(d.path, attention.id(), d.layer);
    auto a = sdk::abi_struct<tenon_attn>();
    a.q_heads = d.q_heads, a.kv_heads = d.kv_heads;
    a.k_dim = d.k_dim, a.v_dim = d.v_dim, a.window = d.window;
    a.scale = d.scale, a.softcap = d.softcap, a.pro = pro.get();
    auto call = sdk::abi_struct<tenon_attn_call>();
    call.q = columns_of(y, 0, int64_t{d.q_heads} * d.k_dim);
    call.out = rows_of(int64_t{d.q_heads} * d.v_dim, d.path);
    call.kv = &view;
    call.pro = pro.get(), call.claim = &layer.claims[shape_];
    Call record(attention, "record " + d.path);
    record.check(table.record(attention.self(), &a, &call, rec_.recorder(), record.why()));
    return call.out;
  }

  tenon_kv_view dequantized(const AttentionLayer& layer) {
    const AttentionDecl& d = layer.decl;
    const Instance& cache = parts_.kv_cache;
    const Instance& attention = parts_.attention;
    auto want = sdk::abi_struct<tenon_kv_format>();
    Call ask(attention, "preferred format");
    ask.check(attention.table<tenon_attention>().preferred_format(attention.self(), &want, ask.why()));
    want.rotated = layer.cache.format->rotated;
    const std::vector<tenon_tid> ids = cache_stores();
    const tenon_kv_stores stores = kv_stores(ids);
    auto view = sdk::abi_struct<tenon_kv_view>();
    enter(d.path, cache.id(), d.layer);
    Call call(cache, "record dequant");
    call.check(cache.table<tenon_kv_cache>().record_dequant(cache.self(), static_cast<uint32_t>(d.layer), &stores,
                                                            &want, rec_.recorder(), &view, call.why()));
    return view;
  }

  ModelInstance& instance_;
  Components& parts_;
  Declared& declared_;
  StorageTable::Prefix prefix_;
  size_t shape_;
  Logits logits_;
  ProgramRecording& rec_;
  uint32_t rows_;           // of what is recorded next
  tenon_tid row_live_ = 0;  // how many of them are live; 0 = the step's rows
};

tenon_sampling sampling_of(const ChainLink& link, Builder& builder, tenon_tid next) {
  auto s = sdk::abi_struct<tenon_sampling>();
  s.params = builder.state_records(link.param_storage, link.table().param_bytes);
  s.state = link.state_bytes == 0 ? 0 : builder.state_records(link.state_storage, link.state_bytes);
  s.next = next;
  return s;
}

// One link of the chain over *c, which a processor rewrites. Throws Error(kPlugin) for what it leaves.
void record_link(const ChainLink& link, Builder& builder, tenon_tid next, tenon_candidates& c) {
  ProgramRecording& rec = builder.recording();
  const tenon_sampler& table = link.table();
  builder.enter("sampler", link.instance.id(), -1);
  if ((table.in_forms & c.form) == 0) {
    throw Error(ErrorCode::kConfig, link.instance.id() + " cannot work on what the sampler before it leaves");
  }
  const bool selects = table.is_selector != 0;
  const tenon_sampling s = sampling_of(link, builder, selects ? next : 0);
  const tenon_candidates given = c;
  const size_t first_op = rec.op_count();
  Call call(link.instance, "record");
  call.check(selects ? table.record_select(link.instance.self(), &s, &c, rec.recorder(), call.why())
                     : table.record_apply(link.instance.self(), &s, &c, rec.recorder(), call.why()));
  if (!rec.error().empty()) return;  // that says more
  const std::string problem =
      selects ? selection_problem(rec, first_op, next) : candidates_problem(rec, first_op, given, c);
  if (!problem.empty()) throw Error(ErrorCode::kPlugin, link.instance.id() + ": " + problem);
}

// The chain of samplers over the logits; the chosen tokens are NEXT. Gives what each of them was given.
std::vector<tenon_candidates> record_choice(const ProgramContext& context, Builder& builder, tenon_tid logits,
                                            uint32_t vocab) {
  ProgramRecording& rec = builder.recording();
  auto candidates = sdk::abi_struct<tenon_candidates>();
  candidates.form = TENON_DENSE, candidates.cap = candidates.vocab = vocab;
  candidates.logits = logits;
  const tenon_tid next = rec.step(TENON_STEP_NEXT);
  std::vector<tenon_candidates> given;
  for (const ChainLink& link : context.samplers) {
    given.push_back(candidates);
    record_link(link, builder, next, candidates);
  }
  return given;
}

// Which rows survive, and what the samplers remember of them. given: to each sampler.
void record_verification(const ProgramContext& context, Builder& builder, const std::vector<tenon_candidates>& given) {
  ProgramRecording& rec = builder.recording();
  builder.enter("verify", std::string("device.") + context.device.device().kind, -1);
  auto verify = sdk::abi_struct<tenon_fop>();
  verify.id = TENON_F_VERIFY;
  const tenon_tid next = rec.step(TENON_STEP_NEXT);
  builder.record_step_op(verify, next, rec.step(TENON_STEP_ACCEPTED));
  for (size_t i = 0; i < given.size(); ++i) {
    const ChainLink& link = context.samplers[i];
    if (link.state_bytes == 0 || link.table().record_accept == nullptr) continue;
    builder.enter("sampler", link.instance.id(), -1);
    const tenon_sampling s = sampling_of(link, builder, next);
    Call call(link.instance, "record accept");
    call.check(link.table().record_accept(link.instance.self(), &s, &given[i], rec.recorder(), call.why()));
  }
}

// A model's ops; before them, what its cache records first.
tenon_tid record_model(ModelInstance& instance, Builder& builder) {
  if (instance.cache().record_begin != nullptr) {
    builder.enter("kv_cache", instance.parts.kv_cache.id(), -1);
    const std::vector<tenon_tid> ids = builder.cache_stores();
    auto stores = sdk::abi_struct<tenon_kv_stores>();
    stores.store = ids.data();
    Call begin(instance.parts.kv_cache, "record begin");
    begin.check(instance.cache().record_begin(instance.parts.kv_cache.self(), &stores, builder.recording().recorder(),
                                              begin.why()));
  }
  return instance.model().record(builder);
}

void record_commit(ModelInstance& instance, Builder& builder) {
  builder.enter("kv_cache", instance.parts.kv_cache.id(), -1);
  const std::vector<tenon_tid> ids = builder.cache_stores();
  auto stores = sdk::abi_struct<tenon_kv_stores>();
  stores.store = ids.data();
  Call commit(instance.parts.kv_cache, "record commit");
  commit.check(instance.cache().record_commit(instance.parts.kv_cache.self(), &stores,
                                              builder.recording().recorder(), commit.why()));
}

// The op that ends a sampling step on a device with queues: the rows move on, and the host hears what was chosen.
void record_advance(const ProgramContext& context, Builder& builder, bool moves_on) {
  ProgramRecording& rec = builder.recording();
  const StepState& state = context.state;
  builder.enter("advance", std::string("device.") + context.device.device().kind, -1);
  auto op = sdk::abi_struct<tenon_fop>();
  op.id = TENON_F_ADVANCE;
  op.t[0] = rec.storage(state.count(), sdk::tensor(TENON_U32, {1}));
  op.i[0] = static_cast<int32_t>(state.entries()), op.i[1] = static_cast<int32_t>(state.entry_words());
  op.i[2] = moves_on ? 1 : 0;
  op.i[3] = rec.bounds().trees != 0 ? static_cast<int32_t>(state.first_survivor()) : 0;
  tenon_tensor outbox = sdk::tensor(TENON_U32, {state.entries(), state.entry_words()});
  outbox.space = TENON_SPACE_HOST;
  builder.record_step_op(op, rec.step(TENON_STEP_NEXT), rec.storage(state.outbox(), outbox));
}

// What ends every program: the choice of tokens and its verification, the caches' commit, the rows that move on.
void record_end(const ProgramContext& context, Builder& builder, StepProgram& step) {
  if (step.sample) {
    record_verification(context, builder, record_choice(context, builder, step.logits, context.target.info().vocab));
  }
  // Of chains the survivors lie in place already.
  if (step.sample && builder.recording().bounds().trees != 0) {
    record_commit(context.target, builder);
    if (context.draft != nullptr) {
      Builder draft(*context.draft, context.storages, builder.recording(), 0);
      record_commit(*context.draft, draft);
    }
  }
  if (step.sample && context.device.queues()) record_advance(context, builder, step.moves_on);
  const tenon_tid outputs[] = {step.logits};
  step.program = builder.recording().finish(outputs);
}

// The op before a pass: it takes what the pass before has chosen, and gives the pass its rows.
void record_pass_state(const ProgramContext& context, ProgramRecording& rec, uint32_t pass, uint32_t rows_per_seq) {
  const tenon_device& device = context.device.device();
  rec.scope(context.draft->name() + "rows", std::string("device.") + device.kind, -1);
  const auto tensor = [&](std::span<const uint32_t> state, uint32_t role) {
    const uint32_t storage = state[role];
    const tenon_format format = role == TENON_STEP_LIVE ? TENON_U32 : TENON_I32;
    return rec.storage(storage, sdk::tensor(format, {static_cast<int64_t>(context.storages[storage].bytes / 4)}));
  };
  const auto in_pass = [&](uint32_t role) { return tensor(context.draft_state.pass(), role); };
  const auto in_choice = [&](uint32_t role) { return tensor(context.draft_state.choice(), role); };
  auto to = sdk::abi_struct<tenon_draft_pass>();
  to.pass = pass, to.rows_per_seq = rows_per_seq, to.next = in_choice(TENON_STEP_NEXT);
  to.live = in_pass(TENON_STEP_LIVE), to.token = in_pass(TENON_STEP_TOKEN), to.pos = in_pass(TENON_STEP_POS);
  to.slot = in_pass(TENON_STEP_SLOT), to.parent = in_pass(TENON_STEP_PARENT);
  to.seq_row = in_pass(TENON_STEP_SEQ_ROW), to.kv_len = in_pass(TENON_STEP_KV_LEN);
  to.out_row = in_pass(TENON_STEP_OUT_ROW);
  to.choice_live = in_choice(TENON_STEP_LIVE), to.choice_row = in_choice(TENON_STEP_OUT_ROW);
  char text[256] = "";
  tenon_reason why{text, sizeof(text)};
  if (device.record_draft_pass(device.self, &to, rec.recorder(), &why) == TENON_OK) return;
  throw Error(ErrorCode::kPlugin, std::string("device.") + device.kind + ": record a draft's pass: " + text);
}

// The draft model runs over the target's rows for its cache alone.
void record_one(const ProgramContext& context, Builder& builder, size_t shape, StepProgram& step) {
  step.logits = record_model(context.target, builder);
  if (context.draft != nullptr && step.sample) {
    Builder draft(*context.draft, context.storages, builder.recording(), shape, Builder::Logits::kUnwanted);
    record_model(*context.draft, draft);
  }
  record_end(context, builder, step);
}

void record_passes(const ProgramContext& context, Builder& builder, size_t shape, StepProgram& step) {
  ProgramRecording& rec = builder.recording();
  const DraftState& state = context.draft_state;
  const tenon_bounds bounds = rec.bounds();
  for (uint32_t pass = 0; pass < bounds.rows_per_seq; ++pass) {
    rec.enter(bounds, context.state.storages());
    record_pass_state(context, rec, pass, bounds.rows_per_seq);
    rec.enter(state.pass_bounds(), state.pass());
    const bool last = pass + 1 == bounds.rows_per_seq;
    Builder draft(*context.draft, context.storages, rec, shape,
                  last ? Builder::Logits::kUnwanted : Builder::Logits::kWanted);
    const tenon_tid logits = record_model(*context.draft, draft);
    if (last) break;
    rec.enter(state.choice_bounds(), state.choice());
    record_choice(context, draft, logits, context.draft->info().vocab);
  }
  rec.enter(bounds, context.state.storages());
  step.logits = record_model(context.target, builder);
  record_end(context, builder, step);
}

using Record = void (*)(const ProgramContext&, Builder&, size_t, StepProgram&);
StepProgram record_with(Record record, const ProgramContext& context, const tenon_bounds& bounds, size_t shape,
                        StepProgram step) {
  ProgramRecording recording(bounds, context.storages, context.state.storages(), &context.largest);
  Builder builder(context.target, context.storages, recording, shape);
  try {
    record(context, builder, shape, step);
    return step;
  } catch (const Error&) {
    // A component that the recorder refused something just returns: the recorder knows why.
    if (recording.error().empty()) throw;
    throw Error(ErrorCode::kPlugin, recording.error());
  }
}

}  // namespace

StepProgram record_step(const ProgramContext& context, const tenon_bounds& bounds, size_t shape, bool sample) {
  const bool moves_on = sample && bounds.rows_per_seq == 1;
  return record_with(&record_one, context, bounds, shape, {.program = nullptr, .sample = sample, .moves_on = moves_on});
}

StepProgram record_round(const ProgramContext& context, const tenon_bounds& bounds, size_t shape) {
  return record_with(&record_passes, context, bounds, shape,
                     {.program = nullptr, .sample = true, .moves_on = true, .round = true});
}

}  // namespace tenon
