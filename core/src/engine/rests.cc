#include "rests.h"

#include <algorithm>
#include <tuple>

namespace tenon {
namespace {

// Resting has to bring so much more, which is about what it costs that the device waits at each change of who rests.
constexpr double kGain = 0.01;
// It takes this many steps to tell a program's time: the first of them load kernels and capture a graph.
constexpr uint64_t kEnough = 4;
// A time that is older by so many steps is measured anew, since contexts have grown meanwhile, or others have come.
constexpr uint64_t kOld = 1024;

}  // namespace

Rests::Rests(std::vector<uint32_t> programs, uint32_t steps) : steps_(steps) {
  for (const uint32_t rows : programs) programs_.push_back({.rows = rows});
}

size_t Rests::program_for(uint32_t rows) const {
  const auto fits = [&](const Program& p) { return p.rows >= rows; };
  return static_cast<size_t>(std::find_if(programs_.begin(), programs_.end(), fits) - programs_.begin());
}

bool Rests::is_measured(const Program& program) const {
  return program.steps >= kEnough && step_ - program.newest <= kOld;
}

void Rests::took(uint32_t rows, double seconds) {
  ++step_;
  if (left_ > 0) --left_;
  const size_t number = program_for(rows);
  if (number == programs_.size()) return;
  Program& p = programs_[number];
  if (step_ - p.newest > kOld) p.steps = 0;
  p.newest = step_;
  p.seconds[p.steps++ % kSamples] = seconds;
  std::array<double, kSamples> sorted = p.seconds;
  const auto end = sorted.begin() + static_cast<std::ptrdiff_t>(std::min<uint64_t>(p.steps, kSamples));
  const auto middle = sorted.begin() + (end - sorted.begin() - 1) / 2;
  std::nth_element(sorted.begin(), middle, end);
  p.median = *middle;
}

bool Rests::tries(uint32_t members) const {
  const size_t number = program_for(members);
  return number > 0 && number < programs_.size() && is_measured(programs_[number]) &&
         !is_measured(programs_[number - 1]);
}

uint32_t Rests::rows_for(uint32_t members) const {
  const size_t number = program_for(members);
  if (number == 0 || number == programs_.size() || !is_measured(programs_[number])) return members;
  const Program &all = programs_[number], &fewer = programs_[number - 1];
  if (tries(members)) return fewer.rows;
  return fewer.rows * all.median > (1 + kGain) * members * fewer.median ? fewer.rows : members;
}

bool Rests::go_on(uint32_t members) const {
  return !are_on() || left_ > 1 || (!somebody_rests_ && rows_for(members) == members);
}

void Rests::choose(std::span<Member> members) {
  const auto count = static_cast<uint32_t>(members.size());
  // The last one of those that come together is the first of them to rest.
  for (size_t i = members.size(); i-- > 0;) {
    if (members[i].rest->number == 0) members[i].rest->number = ++last_;
  }
  const auto resting = std::count_if(members.begin(), members.end(), [](const Member& m) { return m.rest->rests; });
  const size_t number = program_for(count);
  if (left_ > 0 && somebody_rests_ && number > 0 && count - resting == programs_[number - 1].rows) return;
  const uint32_t rest = count - rows_for(count);
  somebody_rests_ = rest > 0;
  left_ = !somebody_rests_ ? 0 : tries(count) ? std::min<uint32_t>(steps_, kEnough) : steps_;
  if (rest == 0 && resting == 0) return;
  std::sort(members.begin(), members.end(), [](const Member& a, const Member& b) {
    return std::tie(a.rest->rests, a.priority, a.rest->number) < std::tie(b.rest->rests, b.priority, b.rest->number);
  });
  for (uint32_t i = 0; i < count; ++i) {
    members[i].rest->rests = i < rest;
    if (i < rest) members[i].rest->number = ++last_;
  }
}

}  // namespace tenon
