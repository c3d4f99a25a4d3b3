#include "observation.h"

#include <algorithm>
#include <numeric>

#include "negotiation.h"
#include "tenon/core/error.h"
#include "tenon/sdk/error.h"

namespace tenon {
namespace {

// All matrices of a site together, as one that observes sees them.
SiteGroup whole(const Site& site) {
  SiteGroup group;
  group.mats.resize(site.decl.mats.size());
  std::iota(group.mats.begin(), group.mats.end(), size_t{0});
  return group;
}

bool has(const Site& site, const std::vector<std::string>& matrices) {
  return std::any_of(site.decl.mats.begin(), site.decl.mats.end(), [&](const Matrix& m) {
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

bool Observation::ask(const Site& site, StorageTable& storages) {
  bool watched = false;
  for (const auto& watcher : watchers_) {
    if (!site.decl.product || !has(site, watcher->matrices)) continue;
    const SiteGroup group = whole(site);
    const LinearView view(site, group);
    const uint64_t bytes = watcher->table().observed_bytes(watcher->scheme.self(), &view.linear);
    if (bytes == 0) continue;
    const std::string name = site.decl.path + "/observed#" + std::to_string(states_.size());
    states_.push_back({watcher.get(), &site, storages.add(name, MemoryKind::kState, bytes), bytes});
    watched = true;
  }
  return watched;
}

void Observation::record(const Site& site, tenon_tid x, tenon_tid row_live, ProgramRecording& recording) const {
  for (const State& state : states_) {
    if (state.site != &site) continue;
    const Instance& scheme = state.watcher->scheme;
    const SiteGroup group = whole(site);
    const LinearView view(site, group);
    recording.scope(site.decl.path + ".observe", scheme.id(), site.decl.layer);
    auto call = sdk::abi_struct<tenon_observe_call>();
    call.x = x, call.row_live = row_live;
    call.state = recording.storage(state.storage, sdk::tensor(TENON_U8, {static_cast<int64_t>(state.bytes)}));
    Call observe(scheme, "observe " + site.decl.path);
    observe.check(
        state.watcher->table().observe(scheme.self(), &view.linear, &call, recording.recorder(), observe.why()));
  }
}

std::vector<std::byte> Observation::read(const std::string& matrix, const StorageTable& storages) const {
  for (const State& state : states_) {
    const std::vector<std::string>& watched = state.watcher->matrices;
    if (std::find(watched.begin(), watched.end(), matrix) == watched.end() || !has(*state.site, {matrix})) continue;
    std::vector<std::byte> bytes(state.bytes);
    context_.copy_now(bytes.data(), storages[state.storage].address, state.bytes);
    return bytes;
  }
  return {};
}

}  // namespace tenon
