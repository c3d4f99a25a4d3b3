#include "tenon/profiler/traced_runs.h"

#include <iterator>

namespace tenon::profiler {

uint32_t TracedRuns::begin(std::span<const ProgramOp> ops, const StepLoad& load) {
  const std::lock_guard lock(mutex_);
  runs_.try_emplace(next_, Held{.run = {.ops = ops, .load = load}, .written = !kept_});
  if (!kept_) ++written_;
  return next_++;
}

void TracedRuns::one_by_one(uint32_t run) {
  const std::lock_guard lock(mutex_);
  const auto found = runs_.find(run);
  if (found != runs_.end()) found->second.run.one_by_one = true;
}

void TracedRuns::decide(uint64_t step, bool written) {
  const std::lock_guard lock(mutex_);
  for (auto at = runs_.lower_bound(undecided_); at != runs_.end() && at->second.run.load.step <= step;) {
    undecided_ = at->first + 1;
    const uint64_t ops = at->second.run.ops.size();
    const bool room = ops_ + ops <= kMaxOps;
    if (written) ++written_;
    if (written && !room) ++refused_;
    if (!written || !room) {
      at = forget(at);
      continue;
    }
    ops_ += ops;
    at->second.written = true;
    ++at;
  }
}

TracedRuns::Runs::iterator TracedRuns::forget(Runs::iterator run) {
  ProgramRun& forgotten = run->second.run;
  if (!forgotten.one_by_one) return runs_.erase(run);
  forgotten.only_to_learn = true;
  const auto [older, first] = lessons_.try_emplace(forgotten.ops.data(), run->first);
  if (!first) runs_.erase(std::exchange(older->second, run->first));
  return std::next(run);
}

bool TracedRuns::wanted(uint64_t tag) const {
  const std::lock_guard lock(mutex_);
  return tag >> 32U != 0 && runs_.contains(static_cast<uint32_t>((tag >> 32U) - 1));
}

size_t TracedRuns::size() const {
  const std::lock_guard lock(mutex_);
  return runs_.size();
}

uint64_t TracedRuns::written() const {
  const std::lock_guard lock(mutex_);
  return written_;
}

uint64_t TracedRuns::refused() const {
  const std::lock_guard lock(mutex_);
  return refused_;
}

std::vector<ProgramRun> TracedRuns::take(KernelRecording& recording) {
  const std::lock_guard lock(mutex_);
  std::vector<ProgramRun> list;
  std::map<uint64_t, uint32_t> places;  // keyed by the upper half of a tag
  for (const auto& [number, held] : runs_) {
    if (!held.written && !held.run.only_to_learn) continue;
    places.emplace(uint64_t{number} + 1, static_cast<uint32_t>(list.size()));
    list.push_back(held.run);
  }
  if (!kept_) return list;
  const auto not_ours = [&](auto& record, bool lessons) {
    const auto place = places.find(record.tag >> 32U);
    if (place == places.end() || (!lessons && list[place->second].only_to_learn)) return true;
    record.tag = kernel_tag(place->second, static_cast<uint32_t>(record.tag));
    return false;
  };
  std::erase_if(recording.kernels, [&](KernelRecord& kernel) { return not_ours(kernel, true); });
  std::erase_if(recording.others, [&](GpuActivity& other) { return not_ours(other, false); });
  return list;
}

}  // namespace tenon::profiler
