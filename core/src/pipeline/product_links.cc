#include "product_links.h"

#include <optional>
#include <set>

#include "recorded_step.h"

namespace tenon {
namespace {

// Notes links by their first site. A site of which several results would be linked, or one is not, has none.
class LinksFound {
 public:
  explicit LinksFound(std::map<SiteId, SiteId>& links) : links_(links) {}
  void add(SiteId from, std::optional<SiteId> to) {
    if (!to || !links_.emplace(from, *to).second) unlinked_.insert(from);
  }
  void finish() {
    for (const SiteId site : unlinked_) links_.erase(site);
  }

 private:
  std::map<SiteId, SiteId>& links_;
  std::set<SiteId> unlinked_;
};

}  // namespace

ProductLinks product_links(const Model& model, const Declared& declared, bool picks_early) {
  const auto site_of = [&](const RecordedModule& m) {
    if (m.kind == RecordedModule::kAttention) return declared.layers[m.number].qkv;
    return m.kind == RecordedModule::kLinear ? declared.site_of(m.number) : declared.site_of_joined(m.number);
  };
  ProductLinks links;
  LinksFound plain(links.plain), normed(links.normed);
  for (const RecordedTensor& t : recorded_step(model, picks_early)) {
    if (t.maker.picked) links.picked.insert(site_of(t.maker));
    const bool attended = t.maker.kind == RecordedModule::kAttention;
    if (!attended && !t.maker.plain) continue;
    std::optional<SiteId> to, through_norm;
    if (t.takers.size() == 1) {
      const RecordedModule& taker = t.takers.front();
      if (taker.plain && !t.read_otherwise) to = site_of(taker);
      if (taker.plain || taker.kind == RecordedModule::kAttention) {
        if (!declared.sites[site_of(taker)].before.empty()) through_norm = site_of(taker);
      }
    }
    if (attended) {
      if (to) links.attended[t.maker.number] = *to;
      continue;
    }
    plain.add(site_of(t.maker), to);
    normed.add(site_of(t.maker), through_norm);
  }
  plain.finish();
  normed.finish();
  return links;
}

}  // namespace tenon
