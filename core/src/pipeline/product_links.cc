// The model is recorded by a builder that makes nothing: tensors are numbers, and what is kept of each is who made it and
// who reads it.
#include "product_links.h"

#include <optional>
#include <set>

namespace tenon {
namespace {

class LinkFinder : public StepBuilder {
 public:
  explicit LinkFinder(const Declared& declared) : declared_(declared) {}

  tenon_tid embed(LinearId) override { return add(); }
  tenon_tid tokens() override { return add(); }
  tenon_tid linear(LinearId id, tenon_tid x, const std::vector<tenon_tid>& rows, tenon_tid expert) override {
    return product(declared_.site_of(id), x, rows, expert);
  }
  tenon_tid joined(JoinedId id, tenon_tid x, const std::vector<tenon_tid>& rows, tenon_tid expert) override {
    return product(declared_.site_of_joined(id), x, rows, expert);
  }
  tenon_tid row_ops(RowOpsId, tenon_tid x, const std::vector<tenon_tid>& rows) override {
    read(x);
    for (const tenon_tid row : rows) read(row);
    return add();
  }
  tenon_tid repeat_rows(const RepeatedRows&, tenon_tid x) override { return read(x), add(); }
  void end_repeat() override {}
  tenon_tid as_rows(tenon_tid x) override { return read(x), add(); }
  tenon_tid experts_of(tenon_tid x) override { return read(x), add(); }
  tenon_tid attention(LayerId, tenon_tid x) override { return read(x), add(); }
  // What follows runs over other rows.
  tenon_tid out_rows(tenon_tid x) override {
    all_rows_ = false;
    return read(x), add();
  }

  std::map<SiteId, SiteId> links(tenon_tid logits) {
    read(logits);
    std::map<SiteId, SiteId> found;
    std::set<SiteId> not_one;
    for (const auto& [tid, result] : results_) {
      if (result.reads != 1 || !result.reader || found.contains(result.site)) {
        not_one.insert(result.site);
      } else {
        found[result.site] = *result.reader;
      }
    }
    for (const SiteId site : not_one) found.erase(site);
    return found;
  }

 private:
  struct Result {
    SiteId site;
    uint32_t reads = 0;
    std::optional<SiteId> reader;  // of the last one: a product, whose x it is
  };

  tenon_tid add() { return ++last_; }
  void read(tenon_tid tid, std::optional<SiteId> reader = {}) {
    const auto at = results_.find(tid);
    if (at == results_.end()) return;
    ++at->second.reads;
    at->second.reader = reader;
  }
  tenon_tid product(SiteId site, tenon_tid x, const std::vector<tenon_tid>& rows, tenon_tid expert) {
    const bool plain = all_rows_ && expert == 0;  // rows with experts of their own stay in f32
    read(x, plain ? std::optional(site) : std::nullopt);
    for (const tenon_tid row : rows) read(row);
    read(expert);
    const tenon_tid y = add();
    if (plain) results_[y] = {site, 0, {}};
    return y;
  }

  const Declared& declared_;
  tenon_tid last_ = 0;
  bool all_rows_ = true;
  std::map<tenon_tid, Result> results_;
};

}  // namespace

std::map<SiteId, SiteId> product_links(const Model& model, const Declared& declared) {
  LinkFinder finder(declared);
  const tenon_tid logits = model.record(finder);
  return finder.links(logits);
}

}  // namespace tenon
