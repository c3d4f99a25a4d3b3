#include "negotiation.h"

#include <algorithm>
#include <cctype>

#include "tenon/sdk/error.h"
#include "tenon/sdk/quantized_rows.h"

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

std::string names_of(const std::vector<tenon_fop>& ops, size_t begin, size_t end) {
  std::string text;
  for (size_t i = begin; i < end; ++i) text += (text.empty() ? "" : ", ") + std::string(fop_name(ops[i].id));
  return text;
}

}  // namespace

LinearView::LinearView(const Site& site, const SiteGroup& group, const Chain& pro, const Chain& epi)
    : linear(sdk::abi_struct<tenon_linear>()),
      pro_(pro.ops.data(), pro.ops.size()),
      epi_(epi.ops.data(), epi.ops.size()) {
  for (const size_t m : group.mats) {
    rows_.push_back(site.rows[m]);
    formats_.push_back(site.formats[m]);
  }
  const bool whole = group.mats.size() == site.decl.mats.size();
  linear.path = whole ? site.decl.path.c_str() : site.decl.mats[group.mats.front()].path.c_str();
  linear.role = site.decl.role.c_str();
  linear.n_mats = static_cast<uint32_t>(group.mats.size());
  linear.x_format = linear.y_format = TENON_F32;
  linear.out_dim = rows_.data();
  linear.source = formats_.data();
  linear.in_dim = site.decl.columns;
  linear.shard_world = 1;
  linear.rows_wanted = site.decl.lookup ? 1 : 0;
  linear.product_wanted = site.decl.product ? 1 : 0;
  linear.pro = pro_.get();
  linear.epi = epi_.get();
}

void Negotiation::refuse(const std::string& path, const std::string& reason) {
  const std::string message = path + ": " + reason;
  const auto same = [&](const Diagnostic& d) { return d.message == message; };
  if (std::none_of(refusals_.begin(), refusals_.end(), same)) refusals_.emplace_back().message = message;
}

void Negotiation::note(const std::string& path, const std::string& text) {
  const std::string gathered = without_layer(path);
  for (Decision& d : decisions_) {
    if (d.path == gathered && d.text == text) {
      ++d.count;
      return;
    }
  }
  decisions_.push_back({gathered, text, 1});
}

std::vector<Decision> Negotiation::decisions() const {
  return decisions_;
}

// Matrices side by side that the same scheme holds stay one product; an override in the middle cuts the site.
void Negotiation::split(Site& site) {
  for (size_t m = 0; m < site.decl.mats.size(); ++m) {
    const Scheme& scheme = parts_.scheme_for(site.decl.mats[m].path, site.decl.path);
    if (site.groups.empty() || site.groups.back().scheme != &scheme) {
      site.groups.emplace_back();
      site.groups.back().scheme = &scheme;
    }
    site.groups.back().mats.push_back(m);
  }
}

void Negotiation::claim(Site& site, const AttentionDecl* attention) {
  // Parts of a cut site see only their own columns, so nothing behind the product can be theirs.
  const bool whole = site.groups.size() == 1;
  const Chain pro = prologue_of(site), epi = whole ? epilogue_of(site, attention) : Chain{};
  for (SiteGroup& group : site.groups) {
    const LinearView view(site, group, pro, epi);
    const Scheme& scheme = *group.scheme;
    for (const tenon_bounds& bounds : shapes_) {
      auto claim = sdk::abi_struct<tenon_claim>();
      Call call(scheme.instance, "claim");
      const tenon_status status =
          scheme.table().claim(scheme.instance.self(), &view.linear, &bounds, &claim, call.why());
      if (status == TENON_REFUSED) {
        refuse(without_layer(view.linear.path), scheme.instance.id() + " refuses: " + call.text());
        return;
      }
      call.check(status);
      if (claim.pro > pro.ops.size() || claim.epi > epi.ops.size()) {
        refuse(view.linear.path, scheme.instance.id() + " claims more ops than there are");
        return;
      }
      group.claims.push_back(claim);
    }
    if (site.decl.lookup && scheme.table().record_rows == nullptr) {
      refuse(view.linear.path, scheme.instance.id() +
                                   " cannot look up rows, so it cannot hold an embedding; name another "
                                   "scheme for it with [[quantization.override]]");
      return;
    }
    bind(group, view);
  }
}

void Negotiation::bind(SiteGroup& group, const LinearView& view) {
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
}

void Negotiation::attend(AttentionLayer& layer, const Site& qkv) {
  const AttentionDecl& d = layer.decl;
  const auto& cache = parts_.kv_cache.table<tenon_kv_cache>();
  const auto& attention = parts_.attention.table<tenon_attention>();
  auto geometry = sdk::abi_struct<tenon_kv_geometry>();
  geometry.layer = static_cast<uint32_t>(d.layer);
  geometry.heads = d.kv_heads, geometry.k_dim = geometry.v_dim = d.head_dim, geometry.window = d.window;
  const Chain epi = epilogue_of(qkv, &d);
  for (size_t s = 0; s < shapes_.size(); ++s) {
    auto unused = sdk::abi_struct<tenon_claim>();
    Call fits(parts_.kv_cache, "claim");
    tenon_status status = cache.claim(parts_.kv_cache.self(), &geometry, &shapes_[s], &unused, fits.why());
    if (status == TENON_REFUSED)
      return refuse(without_layer(d.path), parts_.kv_cache.id() + " refuses: " + fits.text());
    fits.check(status);

    const size_t taken = qkv.groups.size() == 1 && s < qkv.groups[0].claims.size() ? qkv.groups[0].claims[s].epi : 0;
    const ChainView pro(epi.ops.data() + taken, epi.ops.size() - taken), none(nullptr, 0);
    auto a = sdk::abi_struct<tenon_attn>();
    a.layer = geometry.layer, a.q_heads = d.q_heads, a.kv_heads = d.kv_heads, a.k_dim = a.v_dim = d.head_dim;
    a.window = d.window, a.q_format = TENON_F32, a.scale = d.scale, a.softcap = d.softcap;
    a.pro = pro.get(), a.epi = none.get();
    const tenon_kv_format* format = cache.format(parts_.kv_cache.self());
    if (format == nullptr) return refuse(d.path, parts_.kv_cache.id() + " states no format");
    auto claim = sdk::abi_struct<tenon_claim>();
    Call call(parts_.attention, "claim");
    status = attention.claim(parts_.attention.self(), &a, format, &shapes_[s], &claim, call.why());
    if (status == TENON_REFUSED) {
      const std::string reason = call.text();
      auto want = sdk::abi_struct<tenon_kv_format>();
      Call again(parts_.attention, "claim of its preferred format");
      again.check(attention.preferred_format(parts_.attention.self(), &want, again.why()));
      a.pro = none.get();  // the copy is made of what was appended, so nothing is left to claim
      status = attention.claim(parts_.attention.self(), &a, &want, &shapes_[s], &claim, again.why());
      if (status == TENON_REFUSED) return refuse(without_layer(d.path), parts_.attention.id() + " refuses: " + reason);
      again.check(status);
      const std::string text = parts_.attention.id() + " cannot read the cache as it is (" + reason +
                               "): every step makes a copy of the layer's cache for it";
      if (config_.strict) {
        return refuse(without_layer(d.path),
                      text + "; choose a cache format that it reads, or set pipeline.strict = false");
      }
      layer.dequant = true;
      if (s == 0) note(d.path, text);
    } else {
      call.check(status);
    }
    if (claim.pro > epi.ops.size() - taken)
      return refuse(d.path, parts_.attention.id() + " claims more ops than there are");
    layer.claims.push_back(claim);
    if (s == 0) {
      note(d.path,
           parts_.attention.id() + " over " + parts_.kv_cache.id() + " (" + tenon_format_name(format->k.codec) + ")" +
               (claim.pro > 0 ? ", does " + names_of(epi.ops, epi.ops.size() - claim.pro, epi.ops.size()) : "") +
               (claim.pro + taken < epi.ops.size()
                    ? "; ops of their own: " + names_of(epi.ops, taken, epi.ops.size() - claim.pro)
                    : ""));
    }
  }
}

void Negotiation::report(const Site& site) {
  const Chain pro = prologue_of(site);
  Chain epi = epilogue_of(site, nullptr);
  for (const SiteGroup& group : site.groups) {
    if (group.claims.empty()) continue;
    std::string formats;
    for (const size_t m : group.mats) {
      const std::string f = sdk::format_name(site.formats[m]);
      if (formats.find(f) == std::string::npos) formats += (formats.empty() ? "" : "+") + f;
    }
    const bool in_place = (group.footprint.flags & TENON_FOOTPRINT_IN_PLACE) != 0;
    std::string text = group.scheme->instance.id() + " from " + formats + (in_place ? ", in place" : "");
    const tenon_claim& c = group.claims.front();
    const size_t taken = std::min<size_t>(c.epi, epi.ops.size());
    std::string does = names_of(pro.ops, pro.ops.size() - c.pro, pro.ops.size());
    const std::string behind = names_of(epi.ops, 0, taken);
    if (!behind.empty()) does += (does.empty() ? "" : ", ") + behind;
    std::string own = names_of(pro.ops, 0, pro.ops.size() - c.pro);
    const std::string left = names_of(epi.ops, taken, epi.ops.size());
    if (!left.empty()) own += (own.empty() ? "" : ", ") + left;
    if (!does.empty()) text += ", does " + does;
    if (!own.empty()) text += "; ops of their own: " + own;
    note(site.groups.size() == 1 ? site.decl.path : site.decl.mats[group.mats.front()].path, text);
  }
}

void Negotiation::run() {
  std::map<SiteId, const AttentionLayer*> attention_of;
  for (const AttentionLayer& layer : declared_.layers) attention_of[layer.decl.qkv] = &layer;
  for (SiteId id = 0; id < declared_.sites.size(); ++id) {
    Site& site = declared_.sites[id];
    split(site);
    const auto layer = attention_of.find(id);
    claim(site, layer == attention_of.end() ? nullptr : &layer->second->decl);
    report(site);
  }
  for (AttentionLayer& layer : declared_.layers) attend(layer, declared_.sites[layer.decl.qkv]);
  if (!refusals_.empty()) throw Error(ErrorCode::kConfig, std::move(refusals_));
}

}  // namespace tenon
