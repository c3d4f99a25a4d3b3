// run() goes over the trace once for the steps (the spans "ProfilerStep#..." of the track with most of them), once for
// the source of operations (kernels, else operations of the CPU, else all slices), then assigns each operation to a
// step and adds up what it adds to it: its own time without that of operations within it, or on a GPU the time since
// the latest end before it.
#include "model/analysis.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <tuple>
#include <unordered_map>

#include "model/sum.h"

namespace tenon::view {
namespace {

constexpr std::string_view kStep = "ProfilerStep#";
constexpr size_t kMaxPaths = 10'000;  // further names become "(others)"

class Analyser {
 public:
  explicit Analyser(const TraceFile& file)
      : file_(file),
        component_(file.strings.find("component")),
        op_(file.strings.find("op")),
        layer_(file.strings.find("layer")),
        read_(file.strings.find("bytes_read")),
        written_(file.strings.find("bytes_written")),
        bytes_(file.strings.find("bytes")),
        step_(file.strings.find("step")) {}

  Analysis run();

 private:
  struct Place {
    uint32_t path;
    int32_t layer;
  };

  void find_steps();
  void find_source();
  void add_track(uint32_t track);
  void add_op(uint32_t slice, int64_t added_ns);
  const Place& place_of(const TraceSlice& slice);
  void time_kernels();
  void assign_to_steps();
  void sum_up();
  int64_t integer(const TraceSlice& slice, std::string_view key) const {
    return count_of(file_.number(slice, key).value_or(0));
  }

  const TraceFile& file_;
  Analysis out_;
  const uint32_t component_, op_, layer_, read_, written_, bytes_, step_;
  std::unordered_map<uint64_t, Place> places_;  // keyed by name and operation
  std::unordered_map<std::string, uint32_t> path_ids_;
  const Place others_{kMaxPaths, -1};
  std::vector<bool> is_source_;   // categories
  std::vector<int64_t> windows_;  // each step's duration begins there
};

Analysis Analyser::run() {
  find_steps();
  find_source();
  assign_to_steps();
  sum_up();
  if (const auto peak = file_.meta("read_bandwidth_gbps")) {
    const double value = std::strtod(std::string(*peak).c_str(), nullptr);
    if (value > 0 && value < 1e9) out_.peak_gbps = value;
  }
  return std::move(out_);
}

void Analyser::find_steps() {
  std::vector<bool> is_step(file_.strings.size());
  bool any = false;
  for (uint32_t id = 0; id < file_.strings.size(); ++id) any |= is_step[id] = file_.strings[id].starts_with(kStep);
  if (!any) return;
  // The steps are those of the track that has most of them: other writers repeat them on the GPU's.
  std::vector<size_t> per_track(file_.tracks.size());
  for (const TraceSlice& s : file_.slices) per_track[s.track] += is_step[s.name] ? 1 : 0;
  const auto track = static_cast<size_t>(std::ranges::max_element(per_track) - per_track.begin());
  for (uint32_t i = 0; i < file_.slices.size(); ++i) {
    const TraceSlice& s = file_.slices[i];
    if (s.track != track || !is_step[s.name]) continue;
    Step step{.slice = i, .begin_ns = s.begin_ns, .duration_ns = s.duration_ns};
    const std::string_view number = file_.name(s).substr(kStep.size());
    std::from_chars(number.data(), number.data() + number.size(), step.number);
    step.phase = file_.text(s, "phase").value_or("");
    step.tokens = file_.text(s, "tokens").value_or("");
    step.n_ctx_tok = integer(s, "n_ctx_tok");
    step.n_gen_tok = integer(s, "n_gen_tok");
    step.drafted = integer(s, "drafted");
    step.accepted = integer(s, "accepted");
    out_.has_tokens |= !step.tokens.empty();
    out_.steps.push_back(step);
  }
  std::ranges::sort(out_.steps, {}, &Step::begin_ns);
  // A generating sequence gives a token and those that were accepted; a prompt gives one when its last part is through.
  for (size_t i = 0; i < out_.steps.size(); ++i) {
    Step& step = out_.steps[i];
    const int64_t generating = integer(file_.slices[step.slice], "n_gen_req");
    if (step.n_gen_tok > 0) step.n_tokens = std::max<int64_t>(1, generating) + step.accepted;
    const bool last_part =
        out_.has_tokens ? !step.tokens.empty() : i + 1 < out_.steps.size() && out_.steps[i + 1].n_gen_tok > 0;
    if (step.n_ctx_tok > 0 && last_part) ++step.n_tokens;
  }
}

void Analyser::find_source() {
  is_source_.assign(file_.categories.size(), false);
  const auto use = [this](std::string_view category) {
    const uint32_t index = file_.category_index(category);
    if (index != kNoIndex) is_source_[index] = true;
    return index != kNoIndex;
  };
  if (use("kernel")) {
    out_.source = OpSource::kKernels;
    use("gpu_memcpy");
    use("gpu_memset");
  } else if (use("cpu_op")) {
    out_.source = OpSource::kCpuOps;
  } else {
    is_source_.assign(is_source_.size(), true);
  }
  std::vector<uint32_t> tracks;
  if (out_.source == OpSource::kCpuOps && !out_.steps.empty()) {
    tracks.push_back(file_.slices[out_.steps.front().slice].track);  // the other threads do the same operations
  } else {
    for (uint32_t track = 0; track < file_.tracks.size(); ++track) {
      if (file_.tracks[track].kind == profiler::TraceTrack::Kind::kThread) tracks.push_back(track);
    }
  }
  size_t n_ops = 0;
  for (const uint32_t track : tracks) {
    const std::vector<uint32_t>& lanes = file_.tracks[track].lanes;
    if (lanes.empty()) continue;
    n_ops +=
        static_cast<size_t>(std::count_if(file_.slices.begin() + lanes.front(), file_.slices.begin() + lanes.back(),
                                          [this](const TraceSlice& s) { return is_source_[s.category]; }));
  }
  out_.ops.reserve(n_ops);  // there are millions: grown, they would be there three times for a moment
  for (const uint32_t track : tracks) add_track(track);
}

void Analyser::add_track(uint32_t track) {
  const profiler::TraceTrack& t = file_.tracks[track];
  for (size_t depth = 0; depth < t.depth(); ++depth) {
    uint32_t child = depth + 1 < t.depth() ? t.lanes[depth + 1] : 0;
    const uint32_t last_child = depth + 1 < t.depth() ? t.lanes[depth + 2] : 0;
    for (uint32_t i = t.lanes[depth]; i < t.lanes[depth + 1]; ++i) {
      const TraceSlice& s = file_.slices[i];
      int64_t self = s.duration_ns;
      for (; child < last_child && file_.slices[child].begin_ns < s.end_ns(); ++child) {
        const TraceSlice& c = file_.slices[child];
        if (is_source_[c.category]) self -= std::min(c.end_ns(), s.end_ns()) - c.begin_ns;
      }
      if (is_source_[s.category]) add_op(i, std::max<int64_t>(0, self));
    }
  }
}

const Analyser::Place& Analyser::place_of(const TraceSlice& slice) {
  const uint32_t op_id = file_.args.text(slice.args, op_).value_or(0);
  const uint64_t key = uint64_t{slice.name} << 32U | op_id;
  const auto found = places_.find(key);
  if (found != places_.end()) return found->second;
  const std::string_view name = file_.name(slice), op = file_.strings[op_id];
  const std::string_view component = file_.strings[file_.args.text(slice.args, component_).value_or(0)];
  std::string path = without_numbers(path_of(file_, slice));
  if (out_.paths.size() >= kMaxPaths && !path_ids_.contains(path)) {
    if (out_.paths.size() == kMaxPaths) out_.paths.push_back({"(others)", {}, Work::kOther});
    return others_;
  }
  const auto [at, is_new] = path_ids_.try_emplace(path, static_cast<uint32_t>(out_.paths.size()));
  if (is_new) out_.paths.push_back({path, std::string(component), work_of(component, op, name)});
  const double layer = file_.args.number(slice.args, layer_).value_or(layer_of(name));
  const bool fits = layer >= 0 && layer < 100'000;
  return places_.emplace(key, Place{at->second, fits ? static_cast<int32_t>(layer) : -1}).first->second;
}

void Analyser::add_op(uint32_t slice, int64_t added_ns) {
  const TraceSlice& s = file_.slices[slice];
  const Place& place = place_of(s);
  OpEvent op{.slice = slice, .path = place.path, .layer = place.layer, .added_ns = added_ns};
  for (const uint32_t key : {read_, written_, bytes_}) {
    const double bytes = file_.args.number(s.args, key).value_or(0);
    if (bytes > 0) op.bytes += bytes;
  }
  out_.has_bytes |= op.bytes > 0;
  out_.ops.push_back(op);
}

// The GPU runs later than the host: its operations name their step, and a step lasts from the end of what was ahead of
// it on the GPU, or its own begin on the host if that is later, to the end of its last operation.
void Analyser::time_kernels() {
  std::vector<int64_t> latest(file_.processes.size(), std::numeric_limits<int64_t>::min());  // ends, by device
  std::vector<std::pair<int64_t, int64_t>> spans(out_.steps.size());
  for (OpEvent& op : out_.ops) {
    const TraceSlice& s = file_.slices[op.slice];
    int64_t& ahead = latest[file_.tracks[s.track].process];
    op.added_ns = std::max<int64_t>(0, s.end_ns() - std::max(ahead, s.begin_ns));
    if (op.step != kNoIndex) {
      auto& [begin, end] = spans[op.step];
      if (end == 0) begin = std::min(s.begin_ns, std::max(ahead, out_.steps[op.step].begin_ns));
      end = std::max(end, s.end_ns());
    }
    ahead = std::max(ahead, s.end_ns());
  }
  for (size_t i = 0; i < spans.size(); ++i) {
    const auto [begin, end] = spans[i];
    if (end == 0) continue;
    out_.steps[i].duration_ns = end - begin;
    windows_[i] = begin;
    if (i + 1 < spans.size() && spans[i + 1].second != 0) {
      out_.steps[i].between_ns = std::max<int64_t>(0, spans[i + 1].first - end);
    }
  }
}

void Analyser::assign_to_steps() {
  const auto begin_of = [this](const OpEvent& op) { return file_.slices[op.slice].begin_ns; };
  std::ranges::sort(out_.ops, {}, [&](const OpEvent& op) { return std::pair(begin_of(op), op.slice); });
  const bool kernels = out_.source == OpSource::kKernels;
  std::vector<Step>& steps = out_.steps;
  std::unordered_map<int64_t, uint32_t> by_number;
  for (uint32_t i = 0; i < steps.size(); ++i) by_number.emplace(steps[i].number, i);
  for (const Step& s : steps) windows_.push_back(s.begin_ns);
  for (size_t i = 0; i + 1 < steps.size() && !kernels; ++i) {
    steps[i].between_ns = std::max<int64_t>(0, steps[i + 1].begin_ns - steps[i].begin_ns - steps[i].duration_ns);
  }
  size_t step = 0;
  for (OpEvent& op : out_.ops) {
    const int64_t begin = begin_of(op);
    while (step + 1 < steps.size() && steps[step + 1].begin_ns <= begin) ++step;
    const std::optional<double> number = kernels ? file_.args.number(file_.slices[op.slice].args, step_) : std::nullopt;
    if (number) {
      const auto named = by_number.find(count_of(*number));
      if (named != by_number.end()) op.step = named->second;
    } else if (step < steps.size() && begin >= steps[step].begin_ns &&
               (kernels || begin < steps[step].begin_ns + steps[step].duration_ns)) {
      op.step = static_cast<uint32_t>(step);
    }
  }
  if (kernels) time_kernels();
  std::ranges::sort(out_.ops, {}, [&](const OpEvent& op) { return std::tuple(op.step, begin_of(op), op.slice); });
}

void Analyser::sum_up() {
  for (uint32_t i = 0; i < out_.ops.size(); ++i) {
    const OpEvent& op = out_.ops[i];
    if (op.step == kNoIndex) break;
    Step& step = out_.steps[op.step];
    if (step.end_op == 0) step.first_op = i;
    step.end_op = i + 1;
    add_to(step.by_work[static_cast<size_t>(out_.paths[op.path].work)], op.added_ns);
    step.bytes += op.bytes;
  }
  for (size_t i = 0; i < out_.steps.size(); ++i) {
    Step& step = out_.steps[i];
    if (step.end_op == 0) continue;
    int64_t busy = 0, last = std::numeric_limits<int64_t>::min();
    for (const int64_t ns : step.by_work) add_to(busy, ns);
    for (uint32_t o = step.first_op; o < step.end_op; ++o)
      last = std::max(last, file_.slices[out_.ops[o].slice].end_ns());
    const int64_t idle = std::max<int64_t>(0, step.duration_ns - busy);
    const int64_t ahead = file_.slices[out_.ops[step.first_op].slice].begin_ns - windows_[i];
    const int64_t after = windows_[i] + step.duration_ns - last;
    const int64_t host = std::min(idle, std::max<int64_t>(0, ahead) + std::max<int64_t>(0, after));
    step.by_work[static_cast<size_t>(Work::kHost)] = host;
    step.by_work[static_cast<size_t>(Work::kGap)] = idle - host;
  }
}

}  // namespace

Analysis analyse(const TraceFile& file) {
  return Analyser(file).run();
}

std::string path_of(const TraceFile& file, const TraceSlice& slice) {
  std::string path(file.name(slice));
  const std::string_view op = file.text(slice, "op").value_or("");
  if (!op.empty() && !path.ends_with('/' + std::string(op))) path.append("/").append(op);
  return path;
}

bool is_in(const Step& step, Phase phase) {
  if (phase == Phase::kAll) return true;
  return phase == Phase::kDecode ? step.decodes() : step.phase == "prefill";
}

std::vector<uint32_t> steps_of(const Analysis& analysis, Phase phase) {
  std::vector<uint32_t> steps;
  for (uint32_t i = 0; i < analysis.steps.size(); ++i) {
    const Step& step = analysis.steps[i];
    if (step.end_op > 0 && is_in(step, phase)) steps.push_back(i);
  }
  return steps;
}

Phase usual_phase(const Analysis& analysis) {
  const bool any = std::ranges::any_of(analysis.steps, [](const Step& step) { return step.decodes(); });
  return any ? Phase::kDecode : Phase::kAll;
}

}  // namespace tenon::view
