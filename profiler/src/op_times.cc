// kernels_by_op() learns from one step with tags which kernels each op launches; place_kernels() then tells the ops of
// steps without tags by the order and the names of their kernels, and refuses a recording in which these do not match.
// since_last_end() makes means of the ends, in which overlap counts once.
#include "tenon/profiler/op_times.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <tuple>

#include "tenon/core/error.h"

namespace tenon::profiler {
namespace {

Error failure(const std::string& what) {
  return {ErrorCode::kInternal, what};
}

void check_whole(const KernelRecording& recording) {
  if (recording.dropped > 0) {
    throw failure("CUPTI lost " + std::to_string(recording.dropped) + " records, so kernels cannot be told apart");
  }
  if (recording.untimed > 0) {
    throw failure("CUPTI could not time " + std::to_string(recording.untimed) + " of " +
                  std::to_string(recording.untimed + recording.kernels.size()) + " kernels");
  }
  if (recording.kernels.empty()) throw failure("CUPTI recorded no kernel");
}

using Pointers = std::vector<const KernelRecord*>;

template <class Key>
Pointers sorted(const KernelRecording& recording, Key key) {
  Pointers kernels;
  for (const KernelRecord& k : recording.kernels) kernels.push_back(&k);
  std::stable_sort(kernels.begin(), kernels.end(), [&](auto* a, auto* b) { return key(*a) < key(*b); });
  return kernels;
}

std::vector<const std::string*> flat(const KernelNames& names) {
  std::vector<const std::string*> list;
  for (const auto& op : names) {
    for (const std::string& name : op) list.push_back(&name);
  }
  return list;
}

// Returns the index of the first kernel that is not the one it should be, or kernels.size() if all are.
size_t first_stranger(const Pointers& kernels, const std::vector<const std::string*>& names) {
  for (size_t i = 0; i < kernels.size(); ++i) {
    if (kernels[i]->name != *names[i % names.size()]) return i;
  }
  return kernels.size();
}

// Makes "layers.*.mlp.gate_up" of "layers.3.mlp.gate_up".
std::string without_numbers(const std::string& path) {
  std::string out;
  for (size_t at = 0; at <= path.size();) {
    const size_t dot = std::min(path.find('.', at), path.size());
    const std::string part = path.substr(at, dot - at);
    const bool number =
        !part.empty() && std::all_of(part.begin(), part.end(), [](unsigned char c) { return std::isdigit(c); });
    if (at > 0) out += '.';
    out += number ? "*" : part;
    at = dot + 1;
  }
  return out;
}

}  // namespace

KernelNames kernels_by_op(const KernelRecording& step, size_t ops) {
  check_whole(step);
  KernelNames names(ops);
  for (const KernelRecord* k : sorted(step, [](const KernelRecord& r) { return std::tuple(r.correlation, r.start); })) {
    if (k->tag == 0 || k->tag > ops) {
      throw failure("kernel " + k->name + " was recorded under tag " + std::to_string(k->tag) +
                    "; the step's ops have tags 1 to " + std::to_string(ops));
    }
    names[k->tag - 1].push_back(k->name);
  }
  return names;
}

std::vector<StepEnds> place_kernels(const KernelRecording& steps, const KernelNames& names) {
  check_whole(steps);
  const std::vector<const std::string*> expected = flat(names);
  const size_t a_step = expected.size();
  if (a_step == 0 || steps.kernels.size() % a_step != 0) {
    throw failure("CUPTI recorded " + std::to_string(steps.kernels.size()) + " kernels, which are no whole steps of " +
                  std::to_string(a_step));
  }
  Pointers kernels = sorted(steps, [](const KernelRecord& k) { return std::tuple(k.start, k.end); });
  const size_t stranger = first_stranger(kernels, expected);
  if (stranger < kernels.size()) {
    // Starts that overlap may be out of order within a step; nodes are numbered as they were captured.
    for (size_t at = 0; at < kernels.size(); at += a_step) {
      std::sort(kernels.begin() + at, kernels.begin() + at + a_step,
                [](auto* a, auto* b) { return a->graph_node < b->graph_node; });
    }
  }
  if (first_stranger(kernels, expected) < kernels.size()) {
    const Pointers by_start = sorted(steps, [](const KernelRecord& k) { return std::tuple(k.start, k.end); });
    throw failure("the kernels of a step are not those that its ops launch: kernel " +
                  std::to_string(stranger % a_step + 1) + " of step " + std::to_string(stranger / a_step + 1) + " is " +
                  by_start[stranger]->name + ", where " + *expected[stranger % a_step] + " was launched");
  }
  std::vector<StepEnds> out(kernels.size() / a_step);
  auto next = kernels.begin();
  for (StepEnds& step : out) {
    step.begin = (*next)->start;
    uint64_t end = step.begin;
    for (const auto& op : names) {
      for (size_t i = 0; i < op.size(); ++i) end = std::max(end, (*next++)->end);
      step.ends.push_back(end);
    }
  }
  return out;
}

OpTimes since_last_end(std::span<const StepEnds> steps, size_t skip) {
  skip = std::max<size_t>(skip, 1);
  if (steps.size() <= skip) {
    throw failure(std::to_string(steps.size()) + " steps were recorded; expected more than " + std::to_string(skip));
  }
  OpTimes times{.op_us = std::vector<double>(steps.front().ends.size()),
                .steps = static_cast<uint32_t>(steps.size() - skip)};
  const double scale = 1e-3 / times.steps;
  uint64_t last = 0;
  for (const uint64_t end : steps[skip - 1].ends) last = std::max(last, end);
  for (const StepEnds& step : steps.subspan(skip)) {
    const auto until = [&](uint64_t moment) {
      const uint64_t from = last;
      last = std::max(last, moment);
      times.step_us += static_cast<double>(last - from) * scale;
      return static_cast<double>(last - from) * scale;
    };
    times.between_us += until(step.begin);
    for (size_t i = 0; i < step.ends.size(); ++i) times.op_us[i] += until(step.ends[i]);
  }
  return times;
}

std::vector<OpGroup> group_ops(std::span<const ProgramOp> ops, const OpTimes& times, double rows, double context) {
  const auto at = [&](const double(&c)[3]) { return c[0] + c[1] * rows + c[2] * context; };
  std::vector<OpGroup> groups;
  std::map<std::tuple<std::string, std::string, std::string>, size_t> known;
  for (size_t i = 0; i < ops.size(); ++i) {
    const ProgramOp& op = ops[i];
    const std::string path = without_numbers(op.path);
    const auto [it, is_new] = known.try_emplace({path, op.component, op.name}, groups.size());
    if (is_new) groups.push_back({.path = path, .component = op.component, .op = op.name});
    OpGroup& group = groups[it->second];
    ++group.calls;
    group.us += times.op_us[i];
    group.bytes += at(op.cost.read) + at(op.cost.written);
  }
  std::stable_sort(groups.begin(), groups.end(), [](const OpGroup& a, const OpGroup& b) { return a.us > b.us; });
  return groups;
}

}  // namespace tenon::profiler
