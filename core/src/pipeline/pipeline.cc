// These functions of the pipeline do little more than pass a call on; where there is a draft model, both caches are
// told the same of a sequence. build.cc, load.cc and step.cc have the rest.
#include "tenon/core/pipeline.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "../fault.h"
#include "pipeline_impl.h"
#include "tenon/core/error.h"

namespace tenon {

void StepBatch::clear() {
  for (auto* v : {&token, &position, &slot, &parent, &seq_slot, &seq_row, &out_row, &host_row, &mask, &from}) {
    v->clear();
  }
  prompts = prompt_rows = drafted = 0;
  round = pool = false;
}

Pipeline::Pipeline() = default;

Pipeline::~Pipeline() = default;

Pipeline::Impl::~Impl() {
  context.enter();
  runner.reset();
  programs.clear();
}

const ModelInfo& Pipeline::model() const {
  return impl_->target.info();
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
uint32_t Pipeline::longest_sequence() const {
  return impl_->target.endless() ? INT32_MAX : impl_->capacity;
}
uint32_t Pipeline::sequences() const {
  return impl_->shapes.front().slots;
}
uint32_t Pipeline::draft_tokens() const {
  return impl_->draft_tokens;
}
bool Pipeline::has_draft_model() const {
  return impl_->draft_model != nullptr;
}
uint32_t Pipeline::row_invariant_max() const {
  return impl_->target.row_invariant_max();
}
uint32_t Pipeline::threads() const {
  return impl_->context.device().units;
}
const tenon_device& Pipeline::device() const {
  return impl_->context.device();
}
uint64_t Pipeline::allocated() const {
  return impl_->context.memory().used();
}
uint64_t Pipeline::high_water() const {
  return impl_->context.memory().high_water();
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

std::vector<uint32_t> Pipeline::Impl::rows_of_programs(bool (*wanted)(const tenon_bounds& bounds)) const {
  std::vector<uint32_t> rows;
  for (size_t i = 0; i < shapes.size(); ++i) {
    if (shape_samples[i] && !is_round(i) && wanted(shapes[i])) rows.push_back(shapes[i].rows);
  }
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

std::vector<uint32_t> Pipeline::one_row_programs() const {
  return impl_->rows_of_programs([](const tenon_bounds& b) { return b.rows_per_seq == 1; });
}

std::vector<uint32_t> Pipeline::prompt_programs() const {
  if (!impl_->context.queues()) return {};
  return impl_->rows_of_programs([](const tenon_bounds& b) { return b.rows > 1 && b.rows_per_seq == b.rows; });
}

bool Pipeline::has_head() const {
  return impl_->target.has_head();
}

uint32_t Pipeline::out_columns() const {
  return impl_->target.out_columns();
}

uint64_t Pipeline::weight_bytes() const {
  return impl_->target.weight_bytes() + (impl_->draft_model ? impl_->draft_model->weight_bytes() : 0);
}

uint64_t Pipeline::step_weight_bytes(uint32_t rows) const {
  const uint64_t drafting =
      impl_->draft_model ? (1 + impl_->draft_tokens) * impl_->draft_model->step_weight_bytes(rows) : 0;
  return impl_->target.step_weight_bytes(rows) + drafting;
}

std::optional<Pipeline::ReadRate> Pipeline::read_rate() const {
  const tenon_device& device = impl_->context.device();
  if (device.read_rate == nullptr) return {};
  ReadRate rate;
  char text[256] = "";
  tenon_reason why{text, sizeof(text)};
  if (device.read_rate(device.self, impl_->context.queue(), &rate.bytes, &rate.bytes_per_second, &why) != TENON_OK) {
    throw Error(ErrorCode::kPlugin, std::string("device.") + device.kind + ": measuring reads: " + text);
  }
  return rate;
}

// The device may still run a step meanwhile. What is enqueued here comes after it; a slot's place in pinned memory may be
// written again before it was read, since what is read then is enqueued once more.
void Pipeline::Impl::start(uint32_t slot, uint64_t seed, std::span<const Override> overrides) {
  std::byte* own = staged ? static_cast<std::byte*>(storages[*staged].address) + slot * start_bytes() : nullptr;
  // Nobody wants the step that is ahead any more, least of all who gets the same rows. What is left of it comes before
  // the slot has a new key.
  ahead_token.clear();
  if (const Status status = complete_ahead(false); !status.ok()) throw Error(status.code(), status.message());
  const uint32_t key[4] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32U), 0, 0};
  state.set_key(slot, key, own);
  start_samplers(samplers, {slot, own == nullptr ? nullptr : own + kKeyBytes}, overrides, storages, context);
}

void Pipeline::start_sequence(uint32_t slot, uint64_t seed, std::span<const Override> overrides,
                              std::span<const int32_t> cached) {
  impl_->context.enter();
  impl_->start(slot, seed, overrides);
  const Status status = impl_->remember(slot, cached);
  if (!status.ok()) throw Error(status.code(), status.message());
}

void Pipeline::end_sequence(uint32_t slot) {
  truncate(slot, 0);
  const Instance& draft = impl_->draft;
  if (!draft || draft.table<tenon_draft>().forget == nullptr) return;
  const fault::InComponent in(draft.id().c_str(), "forget");
  draft.table<tenon_draft>().forget(draft.self(), slot);
}

uint32_t Pipeline::free_pages(uint32_t& page_tokens) const {
  return impl_->target.free_pages(page_tokens);
}

bool Pipeline::Impl::finds() const {
  return target.finds() && (!draft_model || draft_model->finds());
}

// Finds the longest beginning that the caches of both models have: what one of them finds can be longer than what the
// other does, and where layers keep a window, not every shorter beginning is found as well.
uint32_t Pipeline::Impl::find(std::span<const int32_t> tokens, uint32_t& held) const {
  uint32_t found = target.find(tokens, held);
  while (draft_model) {
    uint32_t held_by_draft = 0;
    const uint32_t both = draft_model->find(tokens.first(found), held_by_draft);
    if (both == found) break;
    found = target.find(tokens.first(both), held);
    if (found == both) break;
  }
  return found;
}

std::vector<const ModelInstance*> Pipeline::Impl::models() const {
  std::vector<const ModelInstance*> all = {&target};
  if (draft_model) all.push_back(draft_model.get());
  return all;
}

bool Pipeline::finds() const {
  return impl_->finds();
}

Pipeline::Found Pipeline::find(std::span<const int32_t> tokens) const {
  Found found;
  if (finds()) found.tokens = impl_->find(tokens, found.held);
  return found;
}

// Both models have the same tokens of a sequence.
uint32_t Pipeline::adopt(uint32_t slot, std::span<const int32_t> tokens) {
  if (!finds()) return 0;
  uint32_t held = 0;
  const std::span<const int32_t> both = tokens.first(impl_->find(tokens, held));
  for (const ModelInstance* model : impl_->models()) {
    if (const uint32_t kv_len = model->adopt(slot, both); kv_len != both.size()) {
      throw Error(ErrorCode::kPlugin, model->components.kv_cache.id() + ": finds " + std::to_string(both.size()) +
                                          " tokens and adopts " + std::to_string(kv_len));
    }
  }
  return static_cast<uint32_t>(both.size());
}

void Pipeline::share(uint32_t slot, std::span<const int32_t> tokens) {
  if (!finds()) return;
  impl_->target.share(slot, tokens);
  if (impl_->draft_model) impl_->draft_model->share(slot, tokens);
}

std::vector<float> Pipeline::pooled(uint32_t slot, Pooling pooling, uint32_t tokens) const {
  const uint32_t width = impl_->target.info().width;
  std::vector<float> vector(width);
  const auto* of_slot =
      static_cast<const float*>(impl_->storages[impl_->pooled.value()].address) + size_t{2} * slot * width;
  impl_->context.enter();
  impl_->context.copy_now(vector.data(), pooling == Pooling::kLast ? of_slot + width : of_slot, width * sizeof(float));
  if (pooling == Pooling::kMean) {
    for (float& x : vector) x /= static_cast<float>(tokens);
  }
  return vector;
}

Status Pipeline::reserve(uint32_t slot, uint32_t kv_len) {
  return impl_->reserve(slot, kv_len);
}

void Pipeline::truncate(uint32_t slot, uint32_t kv_len) {
  impl_->target.truncate(slot, kv_len);
  if (impl_->draft_model) impl_->draft_model->truncate(slot, kv_len);
}

const std::vector<SessionFact>& Pipeline::session_facts() const {
  return impl_->session_facts;
}

// The cells of each model come after their size.
std::vector<std::byte> Pipeline::export_sequence(uint32_t slot, uint32_t kv_len) {
  impl_->context.enter();
  std::vector<std::byte> cells;
  for (const ModelInstance* model : impl_->models()) {
    const size_t at = cells.size();
    cells.resize(at + sizeof(uint64_t));
    model->export_sequence(slot, kv_len, cells);
    const uint64_t bytes = cells.size() - at - sizeof(uint64_t);
    std::memcpy(cells.data() + at, &bytes, sizeof(bytes));
  }
  return cells;
}

void Pipeline::import_sequence(uint32_t slot, uint32_t kv_len, std::span<const std::byte> cells) {
  impl_->context.enter();
  for (const ModelInstance* model : impl_->models()) {
    uint64_t bytes = 0;
    if (cells.size() >= sizeof(bytes)) std::memcpy(&bytes, cells.data(), sizeof(bytes));
    if (cells.size() < sizeof(bytes) || bytes > cells.size() - sizeof(bytes)) {
      throw Error(ErrorCode::kRequest, "the cells of " + std::to_string(kv_len) + " tokens end after " +
                                           std::to_string(cells.size()) + " bytes; there should be " +
                                           std::to_string(bytes));
    }
    model->import_sequence(slot, kv_len, cells.subspan(sizeof(bytes), bytes));
    cells = cells.subspan(sizeof(bytes) + bytes);
  }
}

uint64_t Pipeline::kv_used_bytes(uint32_t kv_len) const {
  return impl_->target.kv_used_bytes(kv_len) + (impl_->draft_model ? impl_->draft_model->kv_used_bytes(kv_len) : 0);
}

uint64_t Pipeline::kv_used_blocks(uint32_t kv_len) const {
  return impl_->target.kv_used_blocks(kv_len);
}

uint32_t Pipeline::propose(uint32_t slot, std::span<const int32_t> tokens, std::span<int32_t> out,
                           std::span<int32_t> parent) {
  const Instance& draft = impl_->draft;
  if (!draft || out.empty()) return 0;
  std::iota(parent.begin(), parent.end(), -1);
  trace::Span span(impl_->origins ? track() : impl_->no_track, impl_->origins ? impl_->origins->propose : 0);
  uint32_t count = 0;
  Call call(draft, "propose");
  call.check(draft.table<tenon_draft>().propose(draft.self(), slot, tokens.data(), static_cast<uint32_t>(tokens.size()),
                                                out.data(), parent.data(), static_cast<uint32_t>(out.size()), &count,
                                                call.why()));
  if (count > out.size()) {
    throw Error(ErrorCode::kPlugin, draft.id() + ": proposes " + std::to_string(count) +
                                        " tokens; there was room for " + std::to_string(out.size()));
  }
  for (int32_t i = 0; i < static_cast<int32_t>(count); ++i) {
    const int32_t before = parent[static_cast<size_t>(i)];
    if (impl_->draft_trees ? before >= -1 && before < i : before == i - 1) continue;
    throw Error(ErrorCode::kPlugin, draft.id() + ": proposal " + std::to_string(i) + " follows proposal " +
                                        std::to_string(before) + ", which it must not");
  }
  for (const int32_t token : out.first(count)) {
    if (token < 0 || static_cast<uint32_t>(token) >= impl_->target.info().vocab) {
      throw Error(ErrorCode::kPlugin, draft.id() + ": proposes token " + std::to_string(token) +
                                          ", outside of the vocabulary of " +
                                          std::to_string(impl_->target.info().vocab));
    }
  }
  span.set({count});
  return count;
}

void Pipeline::hand_in(std::span<const float> rows) {
  impl_->context.enter();
  const Storage& to = impl_->storages[impl_->target.handed_in()];
  if (rows.size_bytes() > to.bytes) {
    throw Error(ErrorCode::kInternal, "rows of " + std::to_string(rows.size_bytes()) +
                                          " bytes are handed in, and there is room for " + std::to_string(to.bytes));
  }
  impl_->context.copy_now(to.address, rows.data(), rows.size_bytes());
}

std::vector<std::byte> Pipeline::observed(const std::string& matrix, uint32_t expert) const {
  impl_->context.enter();
  return impl_->target.observation().read(matrix, expert, impl_->storages);
}

void Pipeline::watch(OpWatch watch) {
  if (!impl_->runner) throw Error(ErrorCode::kInternal, "ops can be watched once the pipeline is loaded");
  const Status status = impl_->runner->watch(std::move(watch));
  if (!status.ok()) throw Error(status.code(), status.message());
}

trace::Track& Pipeline::track() {
  return impl_->runner ? impl_->runner->track() : impl_->no_track;
}

uint64_t Pipeline::this_step() const {
  return impl_->steps;
}

uint64_t Pipeline::last_step() const {
  return impl_->steps == 0 ? 0 : impl_->steps - 1;
}

}  // namespace tenon
