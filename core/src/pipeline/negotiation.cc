#include "negotiation.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "tenon/sdk/error.h"

namespace tenon {
namespace {

// "layers.12.mlp" -> "layers.*.mlp"
std::string without_layer(const std::string& path) {
  std::string out;
  for (size_t i = 0; i < path.size(); ++i) {
    const bool number = std::isdigit(static_cast<unsigned char>(path[i])) != 0 && i > 0 && path[i - 1] == '.';
    if (!number) {
      out += path[i];
      continue;
    }
    out += '*';
    while (i + 1 < path.size() && std::isdigit(static_cast<unsigned char>(path[i + 1])) != 0) ++i;
  }
  return out;
}

// "layers.12.mlp" -> 12; -1 for what is in no layer.
int layer_of(const std::string& path) {
  const size_t at = without_layer(path).find('*');
  return at == std::string::npos ? -1 : std::stoi(path.substr(at));
}

// {0, 1, 2, 5} -> "0-2,5".
std::string ranges_of(std::vector<int> layers) {
  std::sort(layers.begin(), layers.end());
  std::string text;
  for (size_t i = 0, end = 0; i < layers.size(); i = end) {
    for (end = i + 1; end < layers.size() && layers[end] <= layers[end - 1] + 1;) ++end;
    text += (text.empty() ? "" : ",") + std::to_string(layers[i]);
    if (layers[end - 1] > layers[i]) text += "-" + std::to_string(layers[end - 1]);
  }
  return text;
}

// "bf16"; of a matrix that is not plain "weight i8, weight_scale f32".
std::string stored_as(const Matrix& m) {
  if (const WeightTensor* plain = plain_tensor(m)) return tenon_format_name(plain->format);
  std::string text;
  for (const WeightTensor* t : m.tensors) {
    text += (text.empty() ? "" : ", ") + t->name.substr(m.name.size() + 1) + " " + tenon_format_name(t->format);
  }
  return text;
}

}  // namespace

LinearView::LinearView(const Site& site, const std::vector<size_t>& mats, const OpChain& offered,
                       const std::string& description)
    : linear(sdk::abi_struct<tenon_linear>()), pro_(site.before), epi_(offered) {
  for (const size_t m : mats) rows_.push_back(site.decl.mats[m].rows);
  for (size_t set = 0; set < site.decl.sets(); ++set) {
    for (const size_t m : mats) {
      const Matrix& matrix = site.decl.mats[m].sets[set];
      std::vector<tenon_stored>& tensors = tensors_.emplace_back();
      for (const WeightTensor* t : matrix.tensors) {
        tenon_stored& stored = tensors.emplace_back();
        stored.name = t->name.c_str() + matrix.name.size() + 1;
        stored.format = t->format, stored.rank = static_cast<uint32_t>(t->shape.size());
        std::copy(t->shape.begin(), t->shape.end(), stored.dim);
      }
      matrices_.push_back({matrix.name.c_str(), static_cast<uint32_t>(tensors.size()), 0, tensors.data()});
    }
  }
  const bool whole = mats.size() == site.decl.mats.size();
  linear.path = whole ? site.decl.path.c_str() : site.decl.mats[mats.front()].path.c_str();
  linear.n_mats = static_cast<uint32_t>(mats.size());
  linear.x_format = linear.y_format = TENON_F32;
  linear.experts = site.decl.experts;
  linear.out_dim = rows_.data();
  linear.matrix = matrices_.data();
  linear.description = description.c_str();
  linear.in_dim = site.decl.columns;
  linear.rows_wanted = site.decl.lookup ? 1 : 0;
  linear.product_wanted = site.decl.product ? 1 : 0;
  linear.pro = pro_.get();
  linear.epi = epi_.get();
}

void Negotiation::refuse(const std::string& path, const std::string& reason) {
  const std::string message = name_ + path + ": " + reason;
  const auto same = [&](const Diagnostic& d) { return d.message == message; };
  if (std::none_of(refusals_.begin(), refusals_.end(), same)) refusals_.emplace_back().message = message;
}

void Negotiation::note(const std::string& path, const std::string& text) {
  const std::string gathered = name_ + without_layer(path);
  auto known = std::find_if(noted_.begin(), noted_.end(),
                            [&](const Noted& n) { return n.decision.path == gathered && n.decision.text == text; });
  if (known == noted_.end()) known = noted_.insert(known, Noted{.decision = {gathered, text, 0}, .layers = {}});
  ++known->decision.count;
  if (const int layer = layer_of(path); layer >= 0) known->layers.push_back(layer);
}

std::vector<Decision> Negotiation::decisions() const {
  std::vector<Decision> all;
  for (const Noted& noted : noted_) {
    const auto rival = [&](const Noted& n) {
      return n.decision.path == noted.decision.path && n.layers != noted.layers;
    };
    Decision& d = all.emplace_back(noted.decision);
    if (noted.layers.empty() || std::none_of(noted_.begin(), noted_.end(), rival)) continue;
    d.path.replace(d.path.find('*', name_.size()), 1, ranges_of(noted.layers));
  }
  return all;
}

std::optional<Negotiation::Offer> Negotiation::offer_of(const Scheme& scheme, const Site& site, const LinearView& view,
                                                        std::string& why) const {
  const tenon_quantization& table = scheme.table();
  void* const self = scheme.instance.self();
  Call call(scheme.instance, "ask");
  std::vector<tenon_claim> claims(shapes_.size(), sdk::abi_struct<tenon_claim>());
  std::vector<const tenon_claim*> pointers;
  bool taken = true;
  for (size_t i = 0; taken && i < claims.size(); ++i) {
    taken = table.claim(self, &view.linear, &shapes_[i], &claims[i], call.why()) == TENON_OK;
    pointers.push_back(&claims[i]);
  }
  void* handle = nullptr;
  taken = taken && table.bind(self, &view.linear, pointers.data(), static_cast<uint32_t>(pointers.size()), &handle,
                              call.why()) == TENON_OK;
  if (!taken) {
    why = call.text();
    return {};
  }
  auto footprint = sdk::abi_struct<tenon_footprint>();
  const bool stated = table.footprint(self, handle, &footprint, call.why()) == TENON_OK;
  table.unbind(self, handle);
  if (!stated || (site.decl.lookup && table.record_rows == nullptr)) {
    why = stated ? "cannot look up rows" : call.text();
    return {};
  }
  Offer offer{&scheme, (footprint.flags & TENON_FOOTPRINT_EXACT) != 0, 0};
  for (uint32_t i = 0; i < std::min<uint32_t>(footprint.n_stores, TENON_MAX_STORES); ++i) {
    offer.bytes += footprint.store_bytes[i];
  }
  return offer;
}

// See kQuantizationDoc of the configuration for the order.
const Scheme* Negotiation::choose(const Site& site, size_t mat) {
  const LinearView view(site, {mat}, {}, declared_.description());
  std::vector<Offer> offers;
  std::string refused, names;
  for (const Scheme& scheme : parts_.installed_schemes()) {
    std::string why;
    if (const auto offer = offer_of(scheme, site, view, why)) {
      offers.push_back(*offer);
      names += (names.empty() ? "" : ", ") + scheme.instance.component().info.name;
    } else {
      refused += "\n  " + scheme.instance.id() + ": " + why;
    }
  }
  const std::string path = without_layer(view.linear.path);
  if (offers.empty()) {
    refuse(path, "quantization.use = \"auto\" finds no installed scheme that reads the matrix:" + refused);
    return nullptr;
  }
  std::stable_sort(offers.begin(), offers.end(),
                   [](const Offer& a, const Offer& b) { return a.exact != b.exact ? a.exact : a.bytes < b.bytes; });
  if (offers.front().exact || offers.size() == 1) return offers.front().scheme;
  refuse(path,
         "quantization.use = \"auto\" finds no scheme that keeps the file's values, but some that would round them "
         "anew; name one of " +
             names);
  return nullptr;
}

std::vector<const Scheme*> Negotiation::schemes_of(const Site& site) {
  std::vector<const Scheme*> all;
  for (size_t m = 0; m < site.decl.mats.size(); ++m) {
    const Scheme& stated = parts_.scheme_for(site.decl.mats[m].path, site.decl.path);
    const Scheme* scheme = stated.instance ? &stated : choose(site, m);
    if (scheme == nullptr) return {};
    all.push_back(scheme);
  }
  return all;
}

std::string Negotiation::advice(const Scheme& refusing, const Site& site, const LinearView& view) {
  std::string exact, others;
  for (const Scheme& scheme : parts_.installed_schemes()) {
    const std::string& name = scheme.instance.component().info.name;
    if (name == refusing.instance.component().info.name) continue;
    std::string why;
    const auto offer = offer_of(scheme, site, view, why);
    if (!offer) continue;
    std::string& list = offer->exact ? exact : others;
    list += (list.empty() ? "\"" : ", \"") + name + "\"";
  }
  if (exact.empty() && others.empty()) return "; no installed scheme reads it";
  return "; quantization.use = " + (exact.empty() ? others + " would convert it" : exact + " holds it as it is stored");
}

void Negotiation::claim(Site& site, bool observed) {
  for (SiteGroup& group : site.groups) {
    const LinearView view(site, group.mats, group.offered, declared_.description());
    const Scheme& scheme = *group.scheme;
    for (const tenon_bounds& bounds : shapes_) {
      auto claim = sdk::abi_struct<tenon_claim>();
      Call call(scheme.instance, "claim");
      const tenon_status status =
          scheme.table().claim(scheme.instance.self(), &view.linear, &bounds, &claim, call.why());
      if (status == TENON_REFUSED) {
        refuse(without_layer(view.linear.path),
               scheme.instance.id() + " refuses: " + call.text() + advice(scheme, site, view));
        return;
      }
      call.check(status);
      if (claim.pro > site.before.size() || claim.epi > group.offered.size()) {
        refuse(view.linear.path, scheme.instance.id() + " claims more ops than there are");
        return;
      }
      if (observed) claim.pro = 0;
      group.claims.push_back(claim);
    }
    if (site.decl.lookup && scheme.table().record_rows == nullptr) {
      refuse(view.linear.path, scheme.instance.id() +
                                   " cannot look up rows, so it cannot hold an embedding; name another "
                                   "scheme for it with [[quantization.override]]");
      return;
    }
    bind(site, group, view);
  }
}

void Negotiation::bind(const Site& site, SiteGroup& group, const LinearView& view) {
  std::vector<const tenon_claim*> claims;
  for (const tenon_claim& c : group.claims) claims.push_back(&c);
  const Instance& instance = group.scheme->instance;
  const tenon_quantization& table = group.scheme->table();
  Call call(instance, std::string("bind ") + view.linear.path);
  const tenon_status status = table.bind(instance.self(), &view.linear, claims.data(),
                                         static_cast<uint32_t>(claims.size()), &group.handle, call.why());
  if (status == TENON_REFUSED)
    return refuse(without_layer(view.linear.path), instance.id() + " refuses: " + call.text());
  call.check(status);
  group.footprint = sdk::abi_struct<tenon_footprint>();
  call.check(table.footprint(instance.self(), group.handle, &group.footprint, call.why()));
  const bool in_place = (group.footprint.flags & TENON_FOOTPRINT_IN_PLACE) != 0;
  if (group.footprint.n_stores > TENON_MAX_STORES || (in_place && group.footprint.n_stores != group.mats.size())) {
    refuse(view.linear.path, instance.id() + " states a footprint of " + std::to_string(group.footprint.n_stores) +
                                 " stores for " + std::to_string(group.mats.size()) + " matrices");
  }
  for (const size_t m : group.mats) {
    const SiteMatrix& matrix = site.decl.mats[m];
    if (!in_place || (site.decl.experts == 0 && plain_tensor(matrix.sets.front()) != nullptr)) continue;
    refuse(matrix.path, instance.id() + " states that it works in place, and the matrix is not a plain one");
  }
}

tenon_bounds largest_bounds(const std::vector<tenon_bounds>& shapes) {
  tenon_bounds all = shapes.front();
  for (const tenon_bounds& b : shapes) {
    all.rows = std::max(all.rows, b.rows), all.seqs = std::max(all.seqs, b.seqs);
    all.rows_per_seq = std::max(all.rows_per_seq, b.rows_per_seq), all.out_rows = std::max(all.out_rows, b.out_rows);
    all.kv_len = std::max(all.kv_len, b.kv_len), all.steps_ahead = std::max(all.steps_ahead, b.steps_ahead);
    all.trees = std::max(all.trees, b.trees);
  }
  return all;
}

// The prototype of the layer's view, which decides about the order of its chain and what attention is asked.
void Negotiation::ask_cache(AttentionLayer& layer) {
  const Instance& cache = parts_.kv_cache;
  const tenon_kv_geometry geometry = kv_geometry_of(layer.decl);
  const tenon_bounds largest = largest_bounds(shapes_);
  layer.cache = sdk::abi_struct<tenon_kv_view>();
  Call call(cache, "claim");
  const tenon_status status =
      cache.table<tenon_kv_cache>().claim(cache.self(), &geometry, &largest, &layer.cache, call.why());
  if (status == TENON_REFUSED) return refuse(without_layer(layer.decl.path), cache.id() + " refuses: " + call.text());
  call.check(status);
  if (layer.cache.format == nullptr) refuse(without_layer(layer.decl.path), cache.id() + " states no format");
}

bool Negotiation::ask_attention(AttentionLayer& layer, tenon_attn& a, size_t shape, tenon_claim& claim) {
  const Instance& attention = parts_.attention;
  const auto& table = attention.table<tenon_attention>();
  const std::string path = without_layer(layer.decl.path);
  Call call(attention, "claim");
  tenon_status status = table.claim(attention.self(), &a, &layer.cache, &shapes_[shape], &claim, call.why());
  if (status == TENON_OK) return true;
  if (status != TENON_REFUSED) call.check(status);
  const std::string reason = call.text();
  // The copy holds the same cells in other codecs; keys stay before or after rope.
  auto want = sdk::abi_struct<tenon_kv_format>();
  Call again(attention, "claim of its preferred format");
  again.check(table.preferred_format(attention.self(), &want, again.why()));
  want.rotated = layer.cache.format->rotated;
  tenon_kv_view copy = layer.cache;
  copy.format = &want;
  const bool appended = want.rotated != 0;  // by then, so that nothing is left to claim; else the queries' ROPE
  const ChainView none(nullptr, 0), rope(a.pro->n > 0 ? a.pro->op[a.pro->n - 1] : nullptr, a.pro->n > 0 ? 1 : 0);
  a.pro = appended ? none.get() : rope.get();
  status = table.claim(attention.self(), &a, &copy, &shapes_[shape], &claim, again.why());
  if (status == TENON_REFUSED) {
    refuse(path, attention.id() + " refuses: " + reason);
    return false;
  }
  again.check(status);
  const std::string text = attention.id() + " cannot read the cache as it is (" + reason +
                           "): every step makes a copy of the layer's cache for it";
  if (strict_) {
    refuse(path, text + "; choose a cache format that it reads, or set pipeline.strict = false");
    return false;
  }
  layer.dequant = true;
  if (shape == 0) note(layer.decl.path, text);
  return true;
}

void Negotiation::attend(AttentionLayer& layer, const Site& qkv) {
  const AttentionDecl& d = layer.decl;
  const std::string id = parts_.attention.id();
  const OpChain& epi = qkv.behind;
  const size_t n = epi.size();
  const ChainView none(nullptr, 0);
  for (size_t s = 0; s < shapes_.size(); ++s) {
    const size_t taken = s < qkv.groups[0].claims.size() ? qkv.done_behind(qkv.groups[0].claims[s]) : 0;
    const ChainView pro(epi, taken);
    tenon_attn a = attention_of(d, pro);
    auto claim = sdk::abi_struct<tenon_claim>();
    if (!ask_attention(layer, a, s, claim)) return;
    if (claim.pro > n - taken) return refuse(d.path, id + " claims more ops than there are");
    if (qkv.queries_turn_last() && claim.pro == 0) {
      return refuse(without_layer(d.path),
                    id + " does not turn queries itself, and " + parts_.kv_cache.id() + " keeps keys before rope");
    }
    layer.claims.push_back(claim);
    if (s > 0) continue;
    note(d.path, id + " over " + parts_.kv_cache.id() + " (" + tenon_format_name(layer.cache.format->k.codec) + ")" +
                     (claim.pro > 0 ? ", does " + names_of(epi, n - claim.pro, n) : "") +
                     (claim.pro + taken < n ? "; ops of their own: " + names_of(epi, taken, n - claim.pro) : ""));
  }
}

// attends: what is behind the site is reported with its attention, unless a scheme takes it.
void Negotiation::report(const Site& site, bool attends) {
  for (const SiteGroup& group : site.groups) {
    if (group.claims.empty()) continue;
    std::string formats;
    for (const size_t m : group.mats) {
      const std::string f = stored_as(site.decl.mats[m].sets.front());
      if (formats.find(f) == std::string::npos) formats += (formats.empty() ? "" : "+") + f;
    }
    const bool in_place = (group.footprint.flags & TENON_FOOTPRINT_IN_PLACE) != 0;
    std::string text = group.scheme->instance.id() + " from " + formats + (in_place ? ", in place" : "");
    const tenon_claim& c = group.claims.front();
    const auto joined = [](std::string a, const std::string& b) {
      return a + (a.empty() || b.empty() ? "" : ", ") + b;
    };
    const size_t first_claimed = site.before.size() - c.pro;
    const size_t end = attends ? std::max<size_t>(c.epi, group.behind.size()) : group.offered.size();
    const std::string does =
        joined(names_of(site.before, first_claimed, site.before.size()), names_of(group.offered, 0, c.epi));
    std::string own = joined(names_of(site.before, 0, first_claimed), names_of(group.offered, c.epi, end));
    for (const size_t m : group.mats) {
      if (group.apart) own = joined(own, names_of(site.each[m], 0, site.each[m].size()));
    }
    if (!does.empty()) text += ", does " + does;
    if (!own.empty()) text += "; ops of their own: " + own;
    note(site.groups.size() == 1 ? site.decl.path : site.decl.mats[group.mats.front()].path, text);
  }
  const bool whole = site.groups.size() == 1 && !site.groups.front().apart;
  if (!whole && !attends && !site.behind.empty()) {
    note(site.decl.path, "ops of their own: " + names_of(site.behind, 0, site.behind.size()));
  }
}

void Negotiation::run(const Observed& observed) {
  std::set<SiteId> attended;
  for (AttentionLayer& layer : declared_.layers) {
    ask_cache(layer);
    attended.insert(layer.qkv);
    if (layer.cache.format != nullptr && layer.cache.format->rotated == 0) declared_.append_before_rope(layer);
  }
  if (!refusals_.empty()) throw Error(ErrorCode::kConfig, std::move(refusals_));
  bool all_split = true;
  for (SiteId id = 0; id < declared_.sites.size(); ++id) {
    Site& site = declared_.sites[id];
    const std::vector<const Scheme*> schemes = schemes_of(site);
    if (schemes.empty()) {
      all_split = false;
      continue;
    }
    declared_.split(site, schemes);
    claim(site, observed(site));
    report(site, attended.contains(id));
  }
  if (!all_split) throw Error(ErrorCode::kConfig, std::move(refusals_));
  for (AttentionLayer& layer : declared_.layers) attend(layer, declared_.sites[layer.qkv]);
  if (!refusals_.empty()) throw Error(ErrorCode::kConfig, std::move(refusals_));
}

}  // namespace tenon
