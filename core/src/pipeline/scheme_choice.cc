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

std::vector<SchemeChoice::Offer> SchemeChoice::offers(const Site& site, const LinearView& view,
                                                      std::string& refused) const {
  std::vector<Offer> all;
  for (const Scheme& scheme : components_.installed_schemes()) {
    std::string reason;
    if (const auto offer = offer_of(scheme, site, view, reason)) {
      all.push_back(*offer);
    } else {
      refused += "\n  " + scheme.instance.id() + ": " + reason;
    }
  }
  return all;
}

const SchemeChoice::Offer* SchemeChoice::best(std::span<const Offer> offers) {
  const auto better = [](const Offer& a, const Offer& b) { return a.exact != b.exact ? a.exact : a.bytes < b.bytes; };
  const auto found = std::min_element(offers.begin(), offers.end(), better);
  return found == offers.end() ? nullptr : &*found;
}

const std::string& SchemeChoice::name_of(const Offer& offer) {
  return offer.scheme->instance.component().info.name;
}

const Scheme* SchemeChoice::exact(const Scheme& named, const Site& site, const LinearView& view) const {
  std::string why;
  const auto own = offer_of(named, site, view, why);
  if (own && own->exact) return &named;
  const std::vector<Offer> all = offers(site, view, why);
  const Offer* const first = best(all);
  return first != nullptr && first->exact ? first->scheme : nullptr;
}

const Scheme* SchemeChoice::choose(const Site& site, const LinearView& view, std::string& why) const {
  std::string refused, names;
  const std::vector<Offer> all = offers(site, view, refused);
  const Offer* const first = best(all);
  if (first == nullptr) {
    why = "quantization.use = \"auto\" finds no installed scheme that reads the matrix:" + refused;
    return nullptr;
  }
  if (first->exact || all.size() == 1) return first->scheme;
  for (const Offer& offer : all) names += (names.empty() ? "" : ", ") + name_of(offer);
  why =
      "quantization.use = \"auto\" finds no scheme that keeps the file's values, but some that would round them "
      "anew; name one of " +
      names;
  return nullptr;
}

std::string SchemeChoice::advice(const Scheme& refusing, const Site& site, const LinearView& view) const {
  std::string exact, others, refused;
  for (const Offer& offer : offers(site, view, refused)) {
    if (name_of(offer) == refusing.instance.component().info.name) continue;
    std::string& list = offer.exact ? exact : others;
    list += (list.empty() ? "\"" : ", \"") + name_of(offer) + "\"";
  }
  if (exact.empty() && others.empty()) return "; no installed scheme reads it";
  return "; quantization.use = " + (exact.empty() ? others + " would convert it" : exact + " holds it as it is stored");
}

}  // namespace tenon
