#include "scheme_choice.h"

#include <algorithm>

#include "tenon/sdk/error.h"

namespace tenon {

std::optional<void*> SchemeChoice::bind_for_now(const Scheme& scheme, const LinearView& view, Call& call) const {
  const tenon_quantization& table = scheme.table();
  void* const self = scheme.instance.self();
  std::vector<tenon_claim> claims(shapes_.size(), sdk::abi_struct<tenon_claim>());
  std::vector<const tenon_claim*> pointers;
  for (size_t i = 0; i < claims.size(); ++i) {
    if (table.claim(self, &view.linear, &shapes_[i].bounds, &claims[i], call.why()) != TENON_OK) return {};
    pointers.push_back(&claims[i]);
  }
  void* handle = nullptr;
  const auto n = static_cast<uint32_t>(pointers.size());
  if (table.bind(self, &view.linear, pointers.data(), n, &handle, call.why()) != TENON_OK) return {};
  return handle;
}

std::optional<SchemeChoice::Offer> SchemeChoice::offer_of(const Scheme& scheme, const Site& site,
                                                          const LinearView& view, std::string& why) const {
  const tenon_quantization& table = scheme.table();
  Call call(scheme.instance, "ask");
  const std::optional<void*> handle = bind_for_now(scheme, view, call);
  if (!handle) {
    why = call.text();
    return {};
  }
  auto footprint = sdk::abi_struct<tenon_footprint>();
  const bool stated = table.footprint(scheme.instance.self(), *handle, &footprint, call.why()) == TENON_OK;
  table.unbind(scheme.instance.self(), *handle);
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

const Scheme* SchemeChoice::exact(const Scheme& named, const Site& site, const LinearView& view) const {
  std::string why;
  const auto own = offer_of(named, site, view, why);
  if (own && own->exact) return &named;
  const Scheme* best = nullptr;
  uint64_t bytes = 0;
  for (const Scheme& scheme : components_.installed_schemes()) {
    const auto offer = offer_of(scheme, site, view, why);
    if (!offer || !offer->exact || (best != nullptr && offer->bytes >= bytes)) continue;
    best = &scheme;
    bytes = offer->bytes;
  }
  return best;
}

const Scheme* SchemeChoice::choose(const Site& site, const LinearView& view, std::string& why) const {
  std::vector<Offer> offers;
  std::string refused, names;
  for (const Scheme& scheme : components_.installed_schemes()) {
    std::string reason;
    if (const auto offer = offer_of(scheme, site, view, reason)) {
      offers.push_back(*offer);
      names += (names.empty() ? "" : ", ") + scheme.instance.component().info.name;
    } else {
      refused += "\n  " + scheme.instance.id() + ": " + reason;
    }
  }
  if (offers.empty()) {
    why = "quantization.use = \"auto\" finds no installed scheme that reads the matrix:" + refused;
    return nullptr;
  }
  std::stable_sort(offers.begin(), offers.end(),
                   [](const Offer& a, const Offer& b) { return a.exact != b.exact ? a.exact : a.bytes < b.bytes; });
  if (offers.front().exact || offers.size() == 1) return offers.front().scheme;
  why =
      "quantization.use = \"auto\" finds no scheme that keeps the file's values, but some that would round them "
      "anew; name one of " +
      names;
  return nullptr;
}

std::string SchemeChoice::advice(const Scheme& refusing, const Site& site, const LinearView& view) const {
  std::string exact, others;
  for (const Scheme& scheme : components_.installed_schemes()) {
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

}  // namespace tenon
