#include "product_links.h"

#include <set>

#include "recorded_step.h"

namespace tenon {

std::map<SiteId, SiteId> product_links(const Model& model, const Declared& declared) {
  const auto site_of = [&](const RecordedModule& m) {
    return m.kind == RecordedModule::kLinear ? declared.site_of(m.number) : declared.site_of_joined(m.number);
  };
  std::map<SiteId, SiteId> links;
  std::set<SiteId> unlinked;
  for (const RecordedTensor& t : recorded_step(model)) {
    if (!t.maker.product() || !t.maker.plain) continue;
    const SiteId site = site_of(t.maker);
    const bool linked = !t.read_otherwise && t.takers.size() == 1 && t.takers.front().plain;
    if (!linked || links.contains(site)) {
      unlinked.insert(site);
    } else {
      links[site] = site_of(t.takers.front());
    }
  }
  for (const SiteId site : unlinked) links.erase(site);
  return links;
}

}  // namespace tenon
