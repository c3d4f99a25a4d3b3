#include "observation.h"

#include <algorithm>
#include <numeric>

#include "linear_view.h"
#include "tenon/core/error.h"
#include "tenon/sdk/error.h"

namespace tenon {
namespace {

// These are all matrices of a site, as one that observes sees them.
class WholeSite {
 public:
  WholeSite(const Site& site, const std::string& description) : view_(site, all_of(site), nothing_, description) {}
  const tenon_linear* linear() const { return &view_.linear; }

 private:
  static std::vector<size_t> all_of(const Site& site) {
    std::vector<size_t> mats(site.decl.mats.size());
    std::iota(mats.begin(), mats.end(), size_t{0});
    return mats;
  }

  const OpChain nothing_;
  LinearView view_;
};

bool has(const Site& site, const std::vector<std::string>& matrices) {
  return std::any_of(site.decl.mats.begin(), site.decl.mats.end(), [&](const SiteMatrix& m) {
    return std::find(matrices.begin(), matrices.end(), m.path) != matrices.end();
  });
}

}  // namespace

void Observation::watch(const std::vector<Observer>& observers) {
  for (const Observer& o : observers) {
    watchers_.push_back(std::make_unique<Watcher>(Watcher{context_.create(o.scheme), o.matrices}));
    const Watcher& w = *watchers_.back();
    if (w.table().observe != nullptr && w.table().observed_bytes != nullptr) continue;
    throw Error(ErrorCode::kPlugin, w.scheme.id() + " has no observe() on device." + context_.device().kind);
  }
}

bool Observation::ask(const Site& site, const std::string& description, StorageTable& storages) {
  bool watched = false;
  for (const auto& watcher : watchers_) {
    if (!site.decl.product || !has(site, watcher->matrices)) continue;
    const WholeSite whole(site, description);
    const uint64_t bytes = watcher->table().observed_bytes(watcher->scheme.self(), whole.linear());
    if (bytes == 0) continue;
    const std::string name = site.decl.path + "/observed#" + std::to_string(states_.size());
    states_.push_back(
        {watcher.get(), &site, description, storages.add(name, MemoryKind::kState, bytes * site.decl.sets()), bytes});
    watched = true;
  }
  return watched;
}

void Observation::record(const Site& site, const tenon_observe_call& rows, ProgramRecording& recording) const {
  for (const State& state : states_) {
    if (state.site != &site) continue;
    const Instance& scheme = state.watcher->scheme;
    const WholeSite whole(site, state.description);
    recording.scope(site.decl.path + ".observe", scheme.id(), site.decl.layer);
    tenon_observe_call call = rows;
    call.state =
        recording.storage(state.storage, sdk::tensor(TENON_U8, {static_cast<int64_t>(state.bytes * site.decl.sets())}));
    Call observe(scheme, "observe " + site.decl.path);
    observe.check(
        state.watcher->table().observe(scheme.self(), whole.linear(), &call, recording.recorder(), observe.why()));
  }
}

std::vector<std::byte> Observation::read(const std::string& matrix, uint32_t expert,
                                         const StorageTable& storages) const {
  for (const State& state : states_) {
    const std::vector<std::string>& watched = state.watcher->matrices;
    if (std::find(watched.begin(), watched.end(), matrix) == watched.end() || !has(*state.site, {matrix})) continue;
    std::vector<std::byte> bytes(state.bytes);
    const auto* states = static_cast<const std::byte*>(storages[state.storage].address);
    context_.copy_now(bytes.data(), states + expert * state.bytes, state.bytes);
    return bytes;
  }
  return {};
}

}  // namespace tenon
