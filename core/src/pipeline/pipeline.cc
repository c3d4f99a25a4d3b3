#include "tenon/core/pipeline.h"

#include <algorithm>

#include "pipeline_impl.h"
#include "tenon/core/error.h"

namespace tenon {

void StepBatch::clear() {
  for (auto* v : {&token, &position, &slot, &parent, &seq_slot, &seq_row, &out_row}) v->clear();
  prompts = prompt_rows = drafted = 0;
}

Pipeline::Pipeline() = default;

Pipeline::~Pipeline() = default;

Pipeline::Impl::~Impl() {
  parts.enter();
  runner.reset();
  programs.clear();
  for (Site& site : declared ? declared->sites : std::vector<Site>{}) {
    for (SiteGroup& group : site.groups) {
      if (group.handle != nullptr) group.scheme->table().unbind(group.scheme->instance.self(), group.handle);
    }
  }
}

const ModelInfo& Pipeline::model() const {
  return impl_->info;
}
const MemoryPlan& Pipeline::plan() const {
  return impl_->plan;
}
const std::vector<Decision>& Pipeline::decisions() const {
  return impl_->decisions;
}
uint32_t Pipeline::capacity() const {
  return impl_->capacity;
}
uint32_t Pipeline::sequences() const {
  return impl_->shapes.front().seqs;
}
uint32_t Pipeline::draft_tokens() const {
  return impl_->draft_tokens;
}
uint32_t Pipeline::row_invariant_max() const {
  return impl_->row_invariant_max;
}
uint32_t Pipeline::threads() const {
  return impl_->parts.device().units;
}
const tenon_device& Pipeline::device() const {
  return impl_->parts.device();
}
uint64_t Pipeline::allocated() const {
  return impl_->parts.memory->used();
}
uint64_t Pipeline::high_water() const {
  return impl_->parts.memory->high_water();
}
void Pipeline::load(const LoadProgress& progress) {
  impl_->load(progress);
}

std::vector<const Program*> Pipeline::programs() const {
  std::vector<const Program*> list;
  for (const StepProgram& p : impl_->programs) list.push_back(p.program.get());
  return list;
}

uint32_t Pipeline::max_rows() const {
  uint32_t rows = 0;
  for (const tenon_bounds& b : impl_->shapes) rows = std::max(rows, b.rows);
  return rows;
}

uint32_t Pipeline::max_out_rows(bool sample) const {
  uint32_t rows = 0;
  for (size_t i = 0; i < impl_->shapes.size(); ++i) {
    if (impl_->shape_samples[i] == sample) rows = std::max(rows, impl_->shapes[i].out_rows);
  }
  return rows;
}

uint64_t Pipeline::weight_bytes() const {
  uint64_t sum = 0;
  for (const Site& site : impl_->declared->sites) {
    for (const SiteGroup& group : site.groups) {
      for (const uint32_t s : group.stores) sum += impl_->storages[s].bytes;
    }
  }
  return sum;
}

uint64_t Pipeline::step_weight_bytes() const {
  uint64_t sum = 0;
  for (const Site& site : impl_->declared->sites) {
    for (const SiteGroup& group : site.groups) {
      for (const uint32_t s : group.stores) sum += site.decl.product ? impl_->storages[s].bytes : 0;
    }
  }
  return sum;
}

std::optional<Pipeline::ReadRate> Pipeline::read_rate() const {
  const tenon_device& device = impl_->parts.device();
  if (device.read_rate == nullptr) return {};
  ReadRate rate;
  char text[256] = "";
  tenon_reason why{text, sizeof(text)};
  if (device.read_rate(device.self, impl_->parts.queue(), &rate.bytes, &rate.bytes_per_second, &why) != TENON_OK) {
    throw Error(ErrorCode::kPlugin, std::string("device.") + device.kind + ": measuring reads: " + text);
  }
  return rate;
}

Status Pipeline::reserve(uint32_t slot, uint32_t kv_len) {
  const Instance& cache = impl_->parts.kv_cache;
  Call call(cache, "reserve");
  const tenon_status status = cache.table<tenon_kv_cache>().reserve(cache.self(), slot, kv_len, call.why());
  if (status == TENON_OK) return {};
  return Status::error(status == TENON_NO_SPACE ? ErrorCode::kMemory : ErrorCode::kPlugin,
                       cache.id() + ": " + call.text());
}

void Pipeline::truncate(uint32_t slot, uint32_t kv_len) {
  const Instance& cache = impl_->parts.kv_cache;
  Call call(cache, "truncate");
  call.check(cache.table<tenon_kv_cache>().truncate(cache.self(), slot, kv_len, call.why()));
}

uint64_t Pipeline::kv_used_bytes(uint32_t kv_len) const {
  const Instance& cache = impl_->parts.kv_cache;
  return cache.table<tenon_kv_cache>().used_bytes(cache.self(), kv_len);
}

uint64_t Pipeline::kv_used_blocks(uint32_t kv_len) const {
  uint64_t blocks = 0;
  for (const auto& [group, table] : impl_->declared->kv_tables) {
    if (table.page_tokens == 0) continue;
    blocks += std::min<uint64_t>(table.columns, (uint64_t{kv_len} + table.page_tokens - 1) / table.page_tokens);
  }
  return blocks;
}

uint32_t Pipeline::propose(uint32_t slot, std::span<const int32_t> tokens, std::span<int32_t> out) {
  const Instance& draft = impl_->parts.draft;
  if (!draft || out.empty()) return 0;
  uint32_t count = 0;
  Call call(draft, "propose");
  call.check(draft.table<tenon_draft>().propose(draft.self(), slot, tokens.data(), static_cast<uint32_t>(tokens.size()),
                                                out.data(), static_cast<uint32_t>(out.size()), &count, call.why()));
  return std::min<uint32_t>(count, static_cast<uint32_t>(out.size()));
}

void Pipeline::watch(OpWatch watch) {
  if (!impl_->runner) throw Error(ErrorCode::kInternal, "ops can be watched once the pipeline is loaded");
  const Status status = impl_->runner->watch(std::move(watch));
  if (!status.ok()) throw Error(status.code(), status.message());
}

trace::Track& Pipeline::track() {
  return impl_->runner ? impl_->runner->track() : impl_->no_track;
}

}  // namespace tenon
