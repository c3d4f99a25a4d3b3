// This builds and loads one model, in the steps that the header names, and passes calls on to its cache by slot.
// Invariants: a declaration is complete before anybody is asked about it, and every answer is there before a store is
// sized; a handle that bind() gave goes back to its scheme when the instance ends; storages of a second model have its
// name in front. What the cache answers is compared with what it promised (adopted tokens, exported bytes), since it
// may come from a plugin.
#include "model_instance.h"

#include <fnmatch.h>

#include <algorithm>

#include "../../model/weights/metadata_ledger.h"
#include "tenon/core/error.h"
#include "tenon/sdk/error.h"

namespace tenon {

ModelInstance::ModelInstance(const ModelSource& source, Context& context, StorageTable& storages)
    : components(source.config, context),
      config_(source.config),
      range_(source.range),
      strict_(source.strict),
      kind_(source.kind),
      view_(kind_->view ? kind_->view(source.weights) : nullptr),
      weights_(view_ ? *view_ : source.weights),
      storages_(storages),
      name_(source.name),
      observation_(context) {}

ModelInstance::~ModelInstance() {
  if (declared == nullptr) return;
  for (Site& site : declared->sites) {
    for (SiteGroup& group : site.groups) {
      if (group.handle != nullptr) group.scheme->table().unbind(group.scheme->instance.self(), group.handle);
    }
  }
}

void ModelInstance::declare(uint32_t capacity) {
  const StorageTable::Prefix prefix(storages_, name_);
  declared = std::make_unique<Declared>(weights_, components, storages_, capacity,
                                        Declared::Wanted{config_.model.layers, range_});
  const weights::MetadataLedger ledger(weights_);
  model_ = kind_->build(ledger, *declared);
  const std::vector<std::string>& ignored = config_.model.ignore_unknown;
  for (Diagnostic& key : ledger.unknown_keys(kind_->harmless_keys, ignored)) declared->refuse(std::move(key));
  // A draft model may have the names from the model that it drafts for.
  if (name_.empty()) {
    for (Diagnostic& d : ledger.needlessly_ignored(kind_->harmless_keys, ignored)) declared->refuse(std::move(d));
  }
  declared->check(kind_->harmless_tensors);
  info_ = model_->info();
  declared->make_sites();
}

// An override that names no matrix is a mistake, unless it may be meant for layers that are left out here, or for the
// model that this one drafts for.
void ModelInstance::check_overrides() const {
  if (!name_.empty() || config_.model.layers != 0 || range_) return;
  std::vector<Diagnostic> wrong;
  std::string names;
  for (const Site& site : declared->sites) {
    if (site.decl.layer > 0) continue;
    for (const SiteMatrix& m : site.decl.mats) names += (names.empty() ? "" : ", ") + m.path;
  }
  for (const QuantizationOverride& o : config_.overrides) {
    const auto named = [&](const std::string& path) { return fnmatch(o.match.c_str(), path.c_str(), 0) == 0; };
    const bool used = std::any_of(declared->sites.begin(), declared->sites.end(), [&](const Site& site) {
      return named(site.decl.path) || std::any_of(site.decl.mats.begin(), site.decl.mats.end(),
                                                  [&](const SiteMatrix& m) { return named(m.path); });
    });
    if (used) continue;
    wrong.push_back(
        {o.scheme.where, "quantization.override: match = \"" + o.match +
                             "\" names no matrix of the model; those of its first layer and outside of layers "
                             "are " +
                             names});
  }
  if (!wrong.empty()) throw Error(ErrorCode::kConfig, std::move(wrong));
}

void ModelInstance::negotiate(const std::vector<tenon_bounds>& bounds, bool all_rows) {
  for (const tenon_bounds& b : bounds) shapes_.push_back({b});
  for (size_t i = 0; i < bounds.size(); ++i) {
    // Observers count on all rows.
    const bool early = !all_rows && !observation_.watches() && bounds[i].out_rows < bounds[i].rows;
    early_.push_back(early ? shapes_.size() : i);
    if (early) shapes_.push_back({bounds[i], true});
  }
  const StorageTable::Prefix prefix(storages_, name_);
  check_overrides();
  negotiation_ = std::make_unique<Negotiation>(strict_, name_, components, *declared, shapes_);
  for (const auto& [about, decision] : declared->notes()) negotiation_->note(about, decision);
  // A device that walks its ops computes in f32.
  const bool walks = (components.device().flags & TENON_DEVICE_WALKS) != 0;
  const auto links = [&](bool picks_early) {
    ProductLinks all = product_links(*model_, *declared, picks_early);
    return walks ? ProductLinks{.plain = {}, .normed = {}, .attended = {}, .picked = std::move(all.picked)} : all;
  };
  negotiation_->run([this](const Site& site) { return observation_.ask(site, declared->description(), storages_); },
                    {.late = links(false), .early = links(true)});
  declared->add_vectors();
}

void ModelInstance::add_stores() {
  const StorageTable::Prefix prefix(storages_, name_);
  loader_ = std::make_unique<WeightLoader>(weights_, *declared, storages_, components);
  loader_->add_stores();
  plan_cache();
  if (!range_ || range_->embeds) return;
  const uint64_t floats = uint64_t{largest_bounds(shapes_).rows} * info_.width;
  handed_in_ = storages_.add("step/handed_in", MemoryKind::kState, floats * sizeof(float));
}

void ModelInstance::plan_cache() {
  std::vector<tenon_kv_geometry> layers;
  for (const AttentionLayer& layer : declared->layers) {
    if (!layer.decl.cache_of) layers.push_back(kv_geometry_of(layer.decl));
  }
  std::vector<const tenon_kv_geometry*> pointers;
  for (const tenon_kv_geometry& g : layers) pointers.push_back(&g);
  const tenon_bounds largest = largest_bounds(shapes_);
  auto footprint = sdk::abi_struct<tenon_footprint>();
  Call call(components.kv_cache, "plan");
  call.check(cache().plan(components.kv_cache.self(), pointers.data(), static_cast<uint32_t>(pointers.size()), &largest,
                          &footprint, call.why()));
  endless_ = (footprint.flags & TENON_FOOTPRINT_ENDLESS) != 0;
  if (footprint.n_stores > TENON_MAX_STORES) {
    throw Error(ErrorCode::kPlugin, components.kv_cache.id() + " states more stores than there may be");
  }
  for (uint32_t i = 0; i < footprint.n_stores; ++i) {
    kv_stores_.push_back(
        storages_.add("kv_cache#" + std::to_string(i), MemoryKind::kKvCache, footprint.store_bytes[i]));
  }
}

// Gives addresses to the stores that are used where the file's mapping has them.
void ModelInstance::map_weights() {
  for (const Site& site : declared->sites) {
    for (const SiteGroup& group : site.groups) {
      for (size_t i = 0; i < group.stores.size(); ++i) {
        Storage& s = storages_[group.stores[i]];
        if (s.kind != MemoryKind::kMapped) continue;
        const std::byte* bytes = weights_.mapped(*plain_tensor(site.decl.mats[group.mats[i]].sets.front()));
        s.address = const_cast<std::byte*>(bytes);  // it is recorded for reading only
      }
    }
  }
}

void ModelInstance::attach() {
  std::vector<void*> stores;
  for (const uint32_t s : kv_stores_) stores.push_back(storages_[s].address);
  Call call(components.kv_cache, "attach");
  call.check(cache().attach(components.kv_cache.self(), stores.data(), components.queue(), call.why()));
}

uint32_t ModelInstance::row_invariant_max() const {
  uint32_t rows = components.attention.table<tenon_attention>().row_invariant_max;
  for (const Site& site : declared->sites) {
    for (const SiteGroup& group : site.groups) rows = std::min(rows, group.scheme->table().row_invariant_max);
  }
  return rows;
}

uint64_t ModelInstance::site_bytes(const Site& site) const {
  uint64_t sum = 0;
  for (const SiteGroup& group : site.groups) {
    for (const uint32_t s : group.stores) sum += storages_[s].bytes;
  }
  return sum;
}

uint64_t ModelInstance::weight_bytes() const {
  uint64_t sum = 0;
  for (const Site& site : declared->sites) sum += site_bytes(site);
  return sum;
}

uint64_t ModelInstance::step_weight_bytes(uint32_t rows) const {
  uint64_t sum = 0;
  for (const Site& site : declared->sites) {
    if (!site.decl.product) continue;
    const uint64_t chosen = uint64_t{rows} * site.decl.chosen, experts = site.decl.experts;
    const bool some = chosen < experts;
    sum += some ? site_bytes(site) / experts * chosen : site_bytes(site);
  }
  return sum;
}

Status ModelInstance::reserve(uint32_t slot, uint32_t kv_len) const {
  Call call(components.kv_cache, "reserve");
  const tenon_status status = cache().reserve(components.kv_cache.self(), slot, kv_len, call.why());
  if (status == TENON_OK) return {};
  return Status::error(status == TENON_NO_SPACE ? ErrorCode::kMemory : ErrorCode::kPlugin,
                       components.kv_cache.id() + ": " + call.text());
}

void ModelInstance::truncate(uint32_t slot, uint32_t kv_len) const {
  Call call(components.kv_cache, "truncate");
  call.check(cache().truncate(components.kv_cache.self(), slot, kv_len, call.why()));
}

Status ModelInstance::publish() const {
  Call call(components.kv_cache, "publish");
  if (cache().publish(components.kv_cache.self(), components.queue(), call.why()) == TENON_OK) return {};
  return Status::error(ErrorCode::kPlugin, components.kv_cache.id() + ": " + call.text());
}

uint32_t ModelInstance::free_pages(uint32_t& page_tokens) const {
  page_tokens = 0;
  return cache().free_pages == nullptr ? 0 : cache().free_pages(components.kv_cache.self(), &page_tokens);
}

bool ModelInstance::finds() const {
  return cache().find != nullptr && cache().adopt != nullptr && cache().share != nullptr;
}

uint32_t ModelInstance::find(std::span<const int32_t> tokens, uint32_t& held) const {
  held = 0;
  const Call call(components.kv_cache, "find");
  const auto n = static_cast<uint32_t>(tokens.size());
  return std::min(n, cache().find(components.kv_cache.self(), tokens.data(), n, &held));
}

uint32_t ModelInstance::adopt(uint32_t slot, std::span<const int32_t> tokens) const {
  uint32_t kv_len = 0;
  Call call(components.kv_cache, "adopt");
  call.check(cache().adopt(components.kv_cache.self(), slot, tokens.data(), static_cast<uint32_t>(tokens.size()),
                           &kv_len, call.why()));
  if (kv_len > tokens.size()) {
    throw Error(ErrorCode::kPlugin, components.kv_cache.id() + ": adopts " + std::to_string(kv_len) + " tokens of " +
                                        std::to_string(tokens.size()));
  }
  return kv_len;
}

void ModelInstance::share(uint32_t slot, std::span<const int32_t> tokens) const {
  Call call(components.kv_cache, "share");
  call.check(
      cache().share(components.kv_cache.self(), slot, tokens.data(), static_cast<uint32_t>(tokens.size()), call.why()));
}

void ModelInstance::export_sequence(uint32_t slot, uint32_t kv_len, std::vector<std::byte>& to) const {
  uint64_t bytes = 0;
  Call call(components.kv_cache, "export_sequence");
  const auto do_export = [&](std::byte* dst) {
    call.check(
        cache().export_sequence(components.kv_cache.self(), slot, kv_len, components.queue(), dst, &bytes, call.why()));
  };
  do_export(nullptr);
  const uint64_t room = bytes, before = to.size();
  to.resize(before + room);
  do_export(to.data() + before);
  components.context.wait();
  if (bytes != room) {
    throw Error(ErrorCode::kPlugin, components.kv_cache.id() + ": exports " + std::to_string(bytes) +
                                        " bytes, after it asked for room for " + std::to_string(room));
  }
}

void ModelInstance::import_sequence(uint32_t slot, uint32_t kv_len, std::span<const std::byte> cells) const {
  Call call(components.kv_cache, "import_sequence");
  const tenon_status status = cache().import_sequence(components.kv_cache.self(), slot, kv_len, components.queue(),
                                                      cells.data(), cells.size(), call.why());
  if (status == TENON_REFUSED) {
    throw Error(ErrorCode::kRequest, components.kv_cache.id() + " does not take the cells: " + call.text());
  }
  call.check(status);
  components.context.wait();
}

uint64_t ModelInstance::kv_used_bytes(uint32_t kv_len) const {
  return cache().used_bytes(components.kv_cache.self(), kv_len);
}

uint64_t ModelInstance::kv_used_blocks(uint32_t kv_len) const {
  uint64_t blocks = 0;
  for (const auto& [group, table] : declared->kv_tables) {
    if (table.page_cells == 0) continue;
    blocks += std::min<uint64_t>(table.columns, (uint64_t{kv_len} + table.page_cells - 1) / table.page_cells);
  }
  return blocks;
}

}  // namespace tenon
