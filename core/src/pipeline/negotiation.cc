// A negotiation asks about caches, then sites with their schemes, then the formats between sites, then attentions and
// the formats that they leave.
//
// The order follows from what each answer depends on. The cache's view says whether keys are kept before or after rope,
// and so whether the append stands before the ROPE in the chain of Q, K and V; schemes are offered that chain;
// attention is offered what they left of it.
//
// Invariants:
//  - A group that is not refused has a claim for every shape, a handle and a footprint; a layer has a claim for every
//    shape. Claims for different shapes may differ.
//  - A claim never goes beyond the ops that were offered.
//  - A scheme is asked about activations other than f32 with the claim that it has made for f32, and keeps to it.
//  - All refusals of a phase are collected before one error is thrown, so that a user sees them at once.
#include "negotiation.h"

#include <algorithm>

#include "tenon/sdk/attention_sinks.h"
#include "tenon/sdk/error.h"
#include "tenon/sdk/fop.h"
#include "tenon/sdk/kv_codec.h"
#include "tenon/sdk/linked_rows.h"

namespace tenon {
namespace {

// Returns "bf16", or "weight i8, weight_scale f32" for a matrix that is not plain.
std::string stored_as(const Matrix& m) {
  if (const WeightTensor* plain = plain_tensor(m)) return tenon_format_name(plain->format);
  std::string text;
  for (const WeightTensor* t : m.tensors) {
    text += (text.empty() ? "" : ", ") + t->name.substr(m.name.size() + 1) + " " + tenon_format_name(t->format);
  }
  return text;
}

// Returns the formats of the group's matrices in the file, each once: "q4_0+q6_k".
std::string formats_of(const Site& site, const SiteGroup& group) {
  std::string formats;
  for (const size_t m : group.mats) {
    const std::string f = stored_as(site.decl.mats[m].sets.front());
    if (formats.find(f) == std::string::npos) formats += (formats.empty() ? "" : "+") + f;
  }
  return formats;
}

std::string joined(std::string a, const std::string& b) {
  return a + (a.empty() || b.empty() ? "" : ", ") + b;
}

// These ask a component what it claims. Nothing means that it refuses, for the reason in `why`; other failures are
// thrown.
std::optional<tenon_claim> claim_unless_refused(Call& call, tenon_status status, const tenon_claim& claim,
                                                std::string& why) {
  if (status != TENON_REFUSED) {
    call.check(status);
    return claim;
  }
  why = call.text();
  return {};
}
std::optional<tenon_claim> ask_attention(const Instance& attention, const tenon_attn& a, const tenon_kv_view& kv,
                                         const tenon_bounds& bounds, std::string& why) {
  auto claim = sdk::abi_struct<tenon_claim>();
  Call call(attention, "claim");
  const tenon_status status =
      attention.table<tenon_attention>().claim(attention.self(), &a, &kv, &bounds, &claim, call.why());
  return claim_unless_refused(call, status, claim, why);
}
std::optional<tenon_claim> ask_scheme(const Scheme& scheme, const tenon_linear& linear, const tenon_bounds& bounds,
                                      std::string& why) {
  auto claim = sdk::abi_struct<tenon_claim>();
  Call call(scheme.instance, "claim");
  const tenon_status status = scheme.table().claim(scheme.instance.self(), &linear, &bounds, &claim, call.why());
  return claim_unless_refused(call, status, claim, why);
}

}  // namespace

tenon_bounds largest_bounds(const std::vector<ProgramShape>& shapes) {
  tenon_bounds all = shapes.front().bounds;
  for (const ProgramShape& shape : shapes) {
    const tenon_bounds& b = shape.bounds;
    all.rows = std::max(all.rows, b.rows);
    all.seqs = std::max(all.seqs, b.seqs);
    all.rows_per_seq = std::max(all.rows_per_seq, b.rows_per_seq);
    all.out_rows = std::max(all.out_rows, b.out_rows);
    all.kv_len = std::max(all.kv_len, b.kv_len);
    all.steps_ahead = std::max(all.steps_ahead, b.steps_ahead);
    all.trees = std::max(all.trees, b.trees);
  }
  return all;
}

void Negotiation::run(const Observed& observed, LinksOfShapes links) {
  links_ = std::move(links);
  negotiate_caches();
  negotiate_sites(observed);
  negotiate_formats();
  negotiate_attentions();
}

tenon_bounds Negotiation::bounds_of(const Site& site, size_t shape) const {
  tenon_bounds bounds = shapes_[shape].bounds;
  const auto id = static_cast<SiteId>(&site - declared_.sites.data());
  if (!shapes_[shape].picks_early || !links_.early.picked.contains(id)) return bounds;
  bounds.rows = bounds.out_rows;
  bounds.seqs = std::min(bounds.seqs, bounds.rows);
  bounds.rows_per_seq = std::min(bounds.rows_per_seq, bounds.rows);
  return bounds;
}

void Negotiation::refuse(const std::string& path, const std::string& reason) {
  const std::string message = name_ + path + ": " + reason;
  const auto same = [&](const Diagnostic& d) { return d.message == message; };
  if (std::none_of(refusals_.begin(), refusals_.end(), same)) refusals_.emplace_back().message = message;
}

void Negotiation::throw_refusals() {
  if (!refusals_.empty()) throw Error(ErrorCode::kConfig, std::move(refusals_));
}

void Negotiation::negotiate_caches() {
  for (AttentionLayer& layer : declared_.layers) {
    if (layer.decl.cache_of) {
      layer.cache = as_read_by(layer.decl, declared_.layers[*layer.decl.cache_of].cache);
    } else {
      negotiate_cache(layer);
    }
    if (layer.cache.format != nullptr && layer.cache.format->rotated == 0) declared_.append_before_rope(layer);
    if (layer.decl.cache_of) check_shared_cache(layer, declared_.layers[*layer.decl.cache_of]);
  }
  throw_refusals();
}

void Negotiation::negotiate_cache(AttentionLayer& layer) {
  const Instance& cache = components_.kv_cache;
  const tenon_kv_geometry geometry = kv_geometry_of(layer.decl);
  const tenon_bounds largest = largest_bounds(shapes_);
  layer.cache = sdk::abi_struct<tenon_kv_view>();
  Call call(cache, "claim");
  const tenon_status status =
      cache.table<tenon_kv_cache>().claim(cache.self(), &geometry, &largest, &layer.cache, call.why());
  if (status == TENON_REFUSED) return refuse(without_layer(layer.decl.path), cache.id() + " refuses: " + call.text());
  call.check(status);
  if (layer.cache.format == nullptr) refuse(without_layer(layer.decl.path), cache.id() + " states no format");
  if (layer.chooses() && cache.table<tenon_kv_cache>().record_choice == nullptr) {
    refuse(without_layer(layer.decl.path), cache.id() + " has spans, but no record_choice that chooses them");
  }
}

void Negotiation::check_shared_cache(const AttentionLayer& layer, const AttentionLayer& own) {
  const std::string path = without_layer(layer.decl.path), id = components_.kv_cache.id();
  // An attention turns keys that are kept before rope as it turns its queries.
  const ChainOp *mine = declared_.sites[layer.qkv].rope_of_queries(),
                *theirs = declared_.sites[own.qkv].rope_of_queries();
  const auto alike = [](const ChainOp& a, const ChainOp& b) {
    const sdk::RopeOp x(a.fop), y(b.fop);
    return a.vectors == b.vectors && x.rotated == y.rotated && x.pairing == y.pairing;
  };
  if (mine == nullptr && theirs == nullptr) return;
  if (mine != nullptr && theirs != nullptr && alike(*mine, *theirs)) return;
  refuse(path,
         id + " keeps keys before rope, and this one's is not that of " + own.decl.path + ", whose keys it reads");
}

void Negotiation::negotiate_sites(const Observed& observed) {
  std::set<SiteId> attended;
  for (const AttentionLayer& layer : declared_.layers) attended.insert(layer.qkv);
  bool all_split = true;
  for (SiteId id = 0; id < declared_.sites.size(); ++id) {
    Site& site = declared_.sites[id];
    const std::vector<const Scheme*> schemes = schemes_of(site);
    if (schemes.empty()) {
      all_split = false;
      continue;
    }
    declared_.split(site, schemes);
    const bool seen = observed(site);
    if (seen) observed_.insert(&site);
    negotiate_site(site, seen);
    note_site(site, attended.contains(id));
  }
  // Attention can be asked about sites that were refused, but not about one without groups.
  if (!all_split) throw_refusals();
}

std::vector<const Scheme*> Negotiation::schemes_of(const Site& site) {
  std::vector<const Scheme*> all;
  for (size_t m = 0; m < site.decl.mats.size(); ++m) {
    const Scheme* scheme = &components_.scheme_for(site.decl.mats[m].path, site.decl.path);
    if (scheme->instance && scheme == &components_.schemes.front() && is_router(site.decl.mats[m].path)) {
      const LinearView view(site, {m}, {}, declared_.description());
      const Scheme* exact = schemes_.exact(*scheme, site, view);
      if (exact != nullptr && exact != scheme) {
        kept_.insert(&site);
        scheme = exact;
      }
    }
    if (!scheme->instance) {
      const LinearView view(site, {m}, {}, declared_.description());
      std::string why;
      scheme = schemes_.choose(site, view, why);
      if (scheme == nullptr) {
        refuse(without_layer(view.linear.path), why);
        return {};
      }
    }
    all.push_back(scheme);
  }
  return all;
}

void Negotiation::negotiate_site(Site& site, bool observed) {
  for (SiteGroup& group : site.groups) {
    const LinearView view(site, group.mats, group.offered, declared_.description());
    if (!claim_group(site, group, view, observed)) return;
    bind_group(site, group, view);
  }
}

void Negotiation::negotiate_formats() {
  const auto formats = [&](SiteId from, SiteId to, bool normed) {
    std::vector<tenon_format> of_shapes;
    for (size_t shape = 0; shape < shapes_.size(); ++shape) {
      const ProductLinks& links = links_of(shape);
      const bool linked = (normed ? links.normed : links.plain).contains(from);
      of_shapes.push_back(linked ? format_between(declared_.sites[from], declared_.sites[to], shape, normed)
                                 : tenon_format{TENON_F32});
    }
    return of_shapes;
  };
  // Programs that pick early link no sites but those that programs that pick late link, too.
  for (const auto& [from, to] : links_.late.plain) declared_.sites[from].y_formats = formats(from, to, false);
  for (const auto& [from, to] : links_.late.normed) {
    declared_.sites[from].normed_for = to;
    declared_.sites[from].normed_formats = formats(from, to, true);
  }
}

bool Negotiation::has_claims(const SiteGroup& group) const {
  return group.claims.size() == shapes_.size();
}

bool Negotiation::does_all_after(const Site& from, size_t shape) const {
  const SiteGroup& group = from.groups.front();
  return from.groups.size() == 1 && !group.apart && has_claims(group) &&
         group.claims[shape].epi == group.offered.size();
}

bool Negotiation::does_all_before(const Site& to, size_t shape, bool normed) const {
  const auto claimed = [&](const SiteGroup& group) { return has_claims(group); };
  if (observed_.contains(&to) || !std::ranges::all_of(to.groups, claimed)) return false;
  if (!normed) return to.before.empty();
  return to.before.size() == 1 && to.before.front().fop.id == TENON_F_RMSNORM &&
         std::ranges::all_of(to.groups, [&](const SiteGroup& group) { return group.claims[shape].pro == 1; });
}

tenon_format Negotiation::format_between(const Site& from, const Site& to, size_t shape, bool normed) {
  if (!does_all_after(from, shape)) return TENON_F32;
  return first_format(to, shape, normed,
                      [&](tenon_format format) { return takes_formats(from, shape, TENON_F32, format); });
}

tenon_format Negotiation::first_format(const Site& to, size_t shape, bool normed,
                                       const std::function<bool(tenon_format)>& leaves) {
  if (!does_all_before(to, shape, normed)) return TENON_F32;
  for (const tenon_format link : sdk::kLinkFormats) {
    if (normed && !sdk::is_tiled(link)) continue;
    const tenon_format format = link | (normed ? sdk::kNormed : 0);
    if (sdk::has_linked_rows(format, bounds_of(to, shape).rows, to.decl.columns) &&
        takes_formats(to, shape, format, TENON_F32) && leaves(format)) {
      return format;
    }
  }
  return TENON_F32;
}

bool Negotiation::takes_formats(const Site& site, size_t shape, tenon_format x, tenon_format y) {
  for (const SiteGroup& group : site.groups) {
    LinearView view(site, group.mats, group.offered, declared_.description());
    view.linear.x_format = x;
    view.linear.y_format = y;
    std::string why;
    const std::optional<tenon_claim> claim = ask_scheme(*group.scheme, view.linear, bounds_of(site, shape), why);
    const tenon_claim& made = group.claims[shape];
    if (!claim || claim->pro != made.pro || claim->epi != made.epi || claim->variant != made.variant) return false;
  }
  return true;
}

bool Negotiation::claim_group(const Site& site, SiteGroup& group, const LinearView& view, bool observed) {
  const Scheme& scheme = *group.scheme;
  for (size_t shape = 0; shape < shapes_.size(); ++shape) {
    std::string why;
    std::optional<tenon_claim> claim = ask_scheme(scheme, view.linear, bounds_of(site, shape), why);
    if (!claim) {
      refuse(without_layer(view.linear.path),
             scheme.instance.id() + " refuses: " + why + schemes_.advice(scheme, site, view));
      return false;
    }
    if (claim->pro > site.before.size() || claim->epi > group.offered.size()) {
      refuse(view.linear.path, scheme.instance.id() + " claims more ops than there are");
      return false;
    }
    if (observed) claim->pro = 0;
    group.claims.push_back(*claim);
  }
  if (!site.decl.lookup || scheme.table().record_rows != nullptr) return true;
  refuse(view.linear.path, scheme.instance.id() +
                               " cannot look up rows, so it cannot hold an embedding; name another scheme for it with "
                               "[[quantization.override]]");
  return false;
}

void Negotiation::bind_group(const Site& site, SiteGroup& group, const LinearView& view) {
  std::vector<const tenon_claim*> claims;
  for (const tenon_claim& c : group.claims) claims.push_back(&c);
  const Instance& instance = group.scheme->instance;
  const tenon_quantization& table = group.scheme->table();
  Call call(instance, std::string("bind ") + view.linear.path);
  const tenon_status status = table.bind(instance.self(), &view.linear, claims.data(),
                                         static_cast<uint32_t>(claims.size()), &group.handle, call.why());
  if (status == TENON_REFUSED) {
    return refuse(without_layer(view.linear.path), instance.id() + " refuses: " + call.text());
  }
  call.check(status);
  group.footprint = sdk::abi_struct<tenon_footprint>();
  call.check(table.footprint(instance.self(), group.handle, &group.footprint, call.why()));
  check_footprint(site, group, view);
}

void Negotiation::check_footprint(const Site& site, const SiteGroup& group, const LinearView& view) {
  const std::string id = group.scheme->instance.id();
  const bool in_place = (group.footprint.flags & TENON_FOOTPRINT_IN_PLACE) != 0;
  if (group.footprint.n_stores > TENON_MAX_STORES || (in_place && group.footprint.n_stores != group.mats.size())) {
    refuse(view.linear.path, id + " states a footprint of " + std::to_string(group.footprint.n_stores) +
                                 " stores for " + std::to_string(group.mats.size()) + " matrices");
  }
  if (!in_place) return;
  for (const size_t m : group.mats) {
    const SiteMatrix& matrix = site.decl.mats[m];
    if (site.decl.experts == 0 && plain_tensor(matrix.sets.front()) != nullptr) continue;
    refuse(matrix.path, id + " states that it works in place, and the matrix is not a plain one");
  }
}

void Negotiation::note_site(const Site& site, bool attends) {
  for (const SiteGroup& group : site.groups) {
    if (!group.claims.empty()) note_group(site, group, attends);
  }
  const bool whole = site.groups.size() == 1 && !site.groups.front().apart;
  if (!whole && !attends && !site.after.empty()) {
    note(site.decl.path, "ops of their own: " + names_of(site.after, 0, site.after.size()));
  }
}

void Negotiation::note_group(const Site& site, const SiteGroup& group, bool attends) {
  const tenon_claim& c = group.claims.front();
  const size_t first_claimed = site.before.size() - c.pro;
  const size_t end = attends ? std::max<size_t>(c.epi, group.after.size()) : group.offered.size();
  const std::string does =
      joined(names_of(site.before, first_claimed, site.before.size()), names_of(group.offered, 0, c.epi));
  std::string own = joined(names_of(site.before, 0, first_claimed), names_of(group.offered, c.epi, end));
  for (const size_t m : group.mats) {
    if (group.apart) own = joined(own, names_of(site.each[m], 0, site.each[m].size()));
  }
  const bool in_place = (group.footprint.flags & TENON_FOOTPRINT_IN_PLACE) != 0;
  std::string text = group.scheme->instance.id() + " from " + formats_of(site, group) + (in_place ? ", in place" : "");
  if (kept_.contains(&site)) text += ", a router, which stays as the file has it";
  if (!does.empty()) text += ", does " + does;
  if (!own.empty()) text += "; ops of their own: " + own;
  note(site.groups.size() == 1 ? site.decl.path : site.decl.mats[group.mats.front()].path, text);
}

void Negotiation::negotiate_attentions() {
  for (LayerId number = 0; number < declared_.layers.size(); ++number) negotiate_attention(number);
  throw_refusals();
}

void Negotiation::negotiate_attention(LayerId number) {
  AttentionLayer& layer = declared_.layers[number];
  const Site& qkv = declared_.sites[layer.qkv];
  const AttentionDecl& d = layer.decl;
  const std::string id = components_.attention.id();
  const OpChain& ops = qkv.after;
  for (size_t shape = 0; shape < shapes_.size(); ++shape) {
    const std::vector<tenon_claim>& claims = qkv.groups.front().claims;
    const size_t taken = shape < claims.size() ? qkv.done_after(claims[shape]) : 0;
    // A cache that chooses by the step's queries wants them turned, and its keys appended, before attention: what
    // is left to claim stands after the append. In a layer that appends nothing, ops before it see queries alone.
    const size_t offered = layer.chooses() || d.cache_of ? ops.size() - qkv.for_attention() : taken;
    const std::optional<tenon_claim> claim = claim_of_attention(layer, ChainView(ops, offered), shape);
    if (!claim) return;
    if (claim->pro > ops.size() - offered) return refuse(d.path, id + " claims more ops than there are");
    if (qkv.has_sinks() && claim->pro == 0) {
      return refuse(without_layer(d.path), id + " adds no learned sinks to its softmax, which the model has");
    }
    if (claim->pro < qkv.for_attention()) {
      return refuse(without_layer(d.path),
                    id + " does not turn queries itself, and " + components_.kv_cache.id() + " keeps keys before rope");
    }
    layer.claims.push_back(*claim);
    const auto to = links_of(shape).attended.find(number);
    layer.out_formats.push_back(to == links_of(shape).attended.end()
                                    ? tenon_format{TENON_F32}
                                    : format_left(layer, declared_.sites[to->second], ChainView(ops, offered), shape));
    if (shape == 0) note_attention(layer, ops, taken, claim->pro);
  }
}

std::optional<tenon_claim> Negotiation::claim_of_attention(AttentionLayer& layer, const ChainView& pro, size_t shape) {
  std::string why;
  const std::optional<tenon_claim> claim =
      ask_attention(components_.attention, attention_of(layer.decl, pro), layer.cache, shapes_[shape].bounds, why);
  return claim ? claim : claim_over_copy(layer, pro, shape, why);
}

tenon_format Negotiation::format_left(const AttentionLayer& layer, const Site& to, const ChainView& pro, size_t shape) {
  const Instance& attention = components_.attention;
  if (attention.table<tenon_attention>().leaves_links == 0 || layer.dequant) return TENON_F32;
  return first_format(to, shape, false, [&](tenon_format format) {
    std::string why;
    const std::optional<tenon_claim> claim =
        ask_attention(attention, attention_of(layer.decl, pro, format), layer.cache, shapes_[shape].bounds, why);
    const tenon_claim& made = layer.claims[shape];
    return claim && claim->pro == made.pro && claim->variant == made.variant;
  });
}

std::optional<tenon_claim> Negotiation::claim_over_copy(AttentionLayer& layer, const ChainView& pro, size_t shape,
                                                        const std::string& reason) {
  const Instance& attention = components_.attention;
  const std::string path = without_layer(layer.decl.path);
  // The copy holds the same cells in other codecs; keys stay before or after rope.
  auto want = sdk::abi_struct<tenon_kv_format>();
  Call call(attention, "claim of its preferred format");
  call.check(attention.table<tenon_attention>().preferred_format(attention.self(), &want, call.why()));
  want.rotated = layer.cache.format->rotated;
  tenon_kv_view copy = layer.cache, copy_of_tail{};
  copy.format = &want;
  copy.flags &= ~uint32_t{TENON_KV_CHANNEL_KEYS};
  copy.key_group = 0;
  if (copy.recent_view != nullptr) {
    copy_of_tail = *copy.recent_view;
    copy_of_tail.format = &want;
    copy.recent_view = &copy_of_tail;
  }

  // When the copy is made, the cache's append has been recorded. So nothing is left to claim, unless keys are kept
  // before rope: then the queries' ROPE is, which ends the chain. Sinks stand after either.
  const tenon_chain& chain = *pro.get();
  uint32_t n_left = sdk::has_sinks(&chain) ? 1 : 0;
  if (want.rotated == 0 && chain.n > n_left) ++n_left;
  std::vector<tenon_fop> ops_left;
  for (uint32_t i = chain.n - n_left; i < chain.n; ++i) ops_left.push_back(*chain.op[i]);
  const ChainView left(ops_left.data(), ops_left.size());
  std::string why;
  const std::optional<tenon_claim> claim =
      ask_attention(attention, attention_of(layer.decl, left), copy, shapes_[shape].bounds, why);
  if (!claim) {
    refuse(path, attention.id() + " refuses: " + reason);
    return {};
  }
  const std::string text = attention.id() + " cannot read the cache as it is (" + reason +
                           "): every step makes a copy of the layer's cache for it";
  if (strict_) {
    refuse(path, text + "; choose a cache format that it reads, or set pipeline.strict = false");
    return {};
  }
  layer.dequant = true;
  if (shape == 0) note(layer.decl.path, text);
  return claim;
}

void Negotiation::note_attention(const AttentionLayer& layer, const OpChain& ops, size_t taken, size_t claimed) {
  const size_t n = ops.size();
  std::string text = components_.attention.id() + " over " + components_.kv_cache.id() + " (" +
                     sdk::kv_codec_name(layer.cache.format->k.codec) + ")";
  if (layer.decl.cache_of) text += " of " + declared_.layers[*layer.decl.cache_of].decl.path;
  if (claimed > 0) text += ", does " + names_of(ops, n - claimed, n);
  if (claimed + taken < n) text += "; ops of their own: " + names_of(ops, taken, n - claimed);
  note(layer.decl.path, text);
}

}  // namespace tenon
