// The traces are written one after the other as events of one file: each has its times moved, and its processes, async
// spans and flows get numbers that no other trace has. The metadata of all follows, and the numbers of dropped records
// are added up.
#include "tenon/profiler/trace_merge.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>

#include "json_text.h"
#include "tenon/profiler/output_file.h"

namespace tenon::profiler {
namespace {

constexpr std::string_view kObjectHead = R"({"traceEvents":)";
constexpr size_t kWriteSize = 1U << 18U;
constexpr int64_t kSortStep = 100'000;  // the processes of two traces are so far apart

std::optional<int64_t> integer(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

bool is_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && !text.empty() && end == text.data() + text.size();
}

class Merger {
 public:
  Merger(const std::string& path, bool replace) : file_(path, kObjectHead.size(), {.replace = replace}) { out_ += '['; }

  void add(const TraceFile& trace, const std::string& name, int64_t sort, int64_t offset_ns);
  void finish(std::span<const TraceFile> traces, std::span<const std::string> names, int64_t base_ns);

 private:
  void open(std::string_view phase, int64_t pid);
  void tid(int64_t value) { out_ += R"(,"tid":)", append_integer(out_, value); }
  void ts(int64_t ns) { out_ += R"(,"ts":)", append_micros(out_, ns + offset_ns_ - trace_->begin_ns); }
  void label(uint32_t name, uint32_t category);
  void args(uint32_t set);
  void describe(int64_t pid, std::optional<int64_t> thread, std::string_view what, std::string_view key,
                const std::string& json);
  void track(uint32_t index, int64_t pid);
  void span(const TraceTrack& track, const TraceSlice& slice, int64_t pid);
  void async(uint32_t slice, int64_t pid);
  void flow(const TraceFlow& flow);
  void close_event() {
    out_ += '}';
    if (out_.size() < kWriteSize) return;
    file_.write(out_);
    out_.clear();
  }

  OutputFile file_;
  std::string out_;
  bool first_ = true;
  std::set<int64_t> pids_;
  uint64_t ids_ = 0;  // async spans and flows have had so many ids
  const TraceFile* trace_ = nullptr;
  int64_t offset_ns_ = 0;
  std::vector<int64_t> pid_of_process_;
};

void Merger::open(std::string_view phase, int64_t pid) {
  out_ += first_ ? "\n{\"ph\":\"" : ",\n{\"ph\":\"";
  first_ = false;
  out_ += phase;
  out_ += R"(","pid":)";
  append_integer(out_, pid);
}

void Merger::label(uint32_t name, uint32_t category) {
  const std::string_view cat = trace_->strings[trace_->categories[category]];
  if (!cat.empty()) {
    out_ += R"(,"cat":)";
    append_string(out_, cat);
  }
  out_ += R"(,"name":)";
  append_string(out_, trace_->strings[name]);
}

void Merger::args(uint32_t set) {
  if (set == 0) return;
  out_ += R"(,"args":{)";
  bool first = true;
  for (const TraceArg& arg : trace_->args.all(set)) {
    if (!first) out_ += ',';
    first = false;
    append_string(out_, trace_->strings[arg.key]);
    out_ += ':';
    switch (arg.kind) {
      case TraceArg::Kind::kInteger:
        append_integer(out_, arg.integer);
        break;
      case TraceArg::Kind::kNumber:
        append_double(out_, arg.number);
        break;
      case TraceArg::Kind::kText:
        append_string(out_, trace_->strings[arg.text]);
        break;
      case TraceArg::Kind::kBool:
        out_ += arg.integer != 0 ? "true" : "false";
        break;
      case TraceArg::Kind::kNull:
        out_ += "null";
        break;
      case TraceArg::Kind::kJson:
        out_ += trace_->strings[arg.text];
        break;
    }
  }
  out_ += '}';
}

void Merger::describe(int64_t pid, std::optional<int64_t> thread, std::string_view what, std::string_view key,
                      const std::string& json) {
  open("M", pid);
  if (thread) tid(*thread);
  out_ += R"(,"name":)";
  append_string(out_, what);
  out_ += R"(,"args":{)";
  append_string(out_, key);
  out_ += ':' + json + '}';
  close_event();
}

std::string quoted(std::string_view text) {
  std::string out;
  append_string(out, text);
  return out;
}

void Merger::add(const TraceFile& trace, const std::string& name, int64_t sort, int64_t offset_ns) {
  trace_ = &trace;
  offset_ns_ = offset_ns;
  pid_of_process_.clear();
  for (const TraceProcess& process : trace.processes) {
    int64_t pid = std::max<int64_t>(process.pid, 1);
    while (!pids_.insert(pid).second) ++pid;
    pid_of_process_.push_back(pid);
    describe(pid, {}, "process_name", "name", quoted(name + ": " + process.name));
    const int64_t place = std::clamp<int64_t>(process.sort_index, 0, kSortStep - 1);
    describe(pid, {}, "process_sort_index", "sort_index", std::to_string(sort * kSortStep + place));
  }
  for (uint32_t t = 0; t < trace.tracks.size(); ++t) track(t, pid_of_process_[trace.tracks[t].process]);
  for (const TraceCounter& counter : trace.counters) {
    for (const TraceCounter::Point& point : counter.points) {
      open("C", pid_of_process_[counter.process]);
      ts(point.ns);
      out_ += R"(,"name":)" + quoted(counter.name) + R"(,"args":{"value":)";
      append_double(out_, point.value);
      out_ += '}';
      close_event();
    }
  }
  const auto on_thread = [&](uint32_t slice) {
    return trace.tracks[trace.slices[slice].track].kind == TraceTrack::Kind::kThread;
  };
  for (const TraceFlow& f : trace.flows) {
    if (on_thread(f.from) && on_thread(f.to)) flow(f);
  }
}

void Merger::track(uint32_t index, int64_t pid) {
  const TraceTrack& t = trace_->tracks[index];
  const bool async_track = t.kind == TraceTrack::Kind::kAsync;
  if (!async_track) {
    describe(pid, t.tid, "thread_name", "name", quoted(t.name));
    describe(pid, t.tid, "thread_sort_index", "sort_index", std::to_string(t.sort_index));
  }
  for (size_t depth = 0; depth < t.depth(); ++depth) {
    for (uint32_t s = t.lanes[depth]; s < t.lanes[depth + 1]; ++s) {
      if (!async_track) {
        span(t, trace_->slices[s], pid);
      } else if (depth == 0) {
        ++ids_;
        async(s, pid);
      }
    }
  }
  for (uint32_t i = t.first_instant; i < t.end_instant; ++i) {
    const TraceInstant& instant = trace_->instants[i];
    open("i", pid);
    if (!async_track) tid(t.tid);
    ts(instant.ns);
    out_ += async_track ? R"(,"s":"p")" : R"(,"s":"t")";
    label(instant.name, instant.category);
    args(instant.args);
    close_event();
  }
}

void Merger::span(const TraceTrack& t, const TraceSlice& slice, int64_t pid) {
  open("X", pid);
  tid(t.tid);
  ts(slice.begin_ns);
  out_ += R"(,"dur":)";
  append_micros(out_, slice.duration_ns);
  label(slice.name, slice.category);
  args(slice.args);
  close_event();
}

// A span and all within it get one id, and so a track of their own, as they had.
void Merger::async(uint32_t index, int64_t pid) {
  const TraceSlice& slice = trace_->slices[index];
  const uint64_t id = ids_;
  const auto edge = [&](const char* phase, int64_t ns) {
    open(phase, pid);
    ts(ns);
    out_ += R"(,"id2":{"local":)";
    append_hex(out_, id);
    out_ += '}';
    label(slice.name, slice.category);
  };
  edge("b", slice.begin_ns);
  args(slice.args);
  close_event();
  const auto [first, end] = trace_->children(index);
  for (uint32_t child = first; child < end; ++child) async(child, pid);
  edge("e", slice.end_ns());
  close_event();
}

void Merger::flow(const TraceFlow& f) {
  ++ids_;
  for (const bool start : {true, false}) {
    const TraceSlice& slice = trace_->slices[start ? f.from : f.to];
    const TraceTrack& t = trace_->tracks[slice.track];
    open(start ? "s" : "f", pid_of_process_[t.process]);
    tid(t.tid);
    ts(slice.begin_ns);
    out_ += R"(,"cat":"ac2g","name":"ac2g","id":)";
    append_unsigned(out_, ids_);
    if (!start) out_ += R"(,"bp":"e")";
    close_event();
  }
}

void Merger::finish(std::span<const TraceFile> traces, std::span<const std::string> names, int64_t base_ns) {
  out_ += "\n],\n\"schemaVersion\":1,\n\"displayTimeUnit\":\"ns\",\n\"baseTimeNanoseconds\":";
  append_integer(out_, base_ns);
  out_ += ",\n\"deviceProperties\":";
  out_ += traces.front().meta("deviceProperties").value_or("[]");
  out_ += ",\n\"metadata\":{";
  double dropped = 0;
  for (size_t i = 0; i < traces.size(); ++i) {
    for (const auto& [key, value] : traces[i].metadata) {
      static const std::set<std::string_view> kTop = {"schemaVersion", "displayTimeUnit", "baseTimeNanoseconds",
                                                      "deviceProperties"};
      if (kTop.contains(key)) continue;
      if (key == "dropped_records" && is_number(value)) {
        dropped += static_cast<double>(integer(value).value_or(0));
        continue;
      }
      append_string(out_, i == 0 ? key : names[i] + '.' + key);
      out_ += ':' + (is_number(value) ? value : quoted(value)) + ',';
    }
  }
  out_ += R"("dropped_records":)";
  append_double(out_, dropped);
  out_ += "}}\n";
  file_.write(out_);
  const Status status = file_.finish(kObjectHead);
  if (!status.ok()) throw Error(ErrorCode::kIo, status.message());
}

}  // namespace

std::vector<std::string> merge_traces(std::span<const TraceFile> traces, std::span<const std::string> names,
                                      const std::string& path, bool replace) {
  std::vector<std::string> notices;
  std::vector<std::optional<int64_t>> starts;  // they count since the epoch, of each trace's first event
  std::optional<int64_t> base;
  for (const TraceFile& trace : traces) {
    const auto own = integer(trace.meta("baseTimeNanoseconds").value_or(""));
    starts.push_back(own ? std::optional(*own + trace.begin_ns) : std::nullopt);
    if (starts.back() && (!base || *starts.back() < *base)) base = starts.back();
  }
  Merger merger(path, replace);
  for (size_t i = 0; i < traces.size(); ++i) {
    if (!starts[i]) {
      notices.push_back(traces[i].path + ": it has no baseTimeNanoseconds; it begins with the merged trace");
    }
    for (const std::string& notice : traces[i].notices) notices.push_back(traces[i].path + ": " + notice);
    merger.add(traces[i], names[i], static_cast<int64_t>(i), starts[i] ? *starts[i] - *base : 0);
  }
  merger.finish(traces, names, base.value_or(0));
  return notices;
}

}  // namespace tenon::profiler
