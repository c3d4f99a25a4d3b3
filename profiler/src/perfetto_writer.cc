// Each event is appended to a buffer as one JSON object, and the buffer is written out when it is large or a drain
// ends. What all events of an origin or a track have in common is made into text once (OriginText, TrackText), so that
// an event costs its times and its numbers.
//
// The file is in the array form, which loads wherever it is cut, until finish() adds the metadata and makes it the
// object form. Requests come as single events and go through a RequestBook, which makes slices of them; slices of a GPU
// are placed by gpu_tracks.h and written last.
#include "tenon/profiler/perfetto_writer.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "gpu_tracks.h"
#include "json_text.h"
#include "request_book.h"
#include "tenon/profiler/output_file.h"

namespace tenon::profiler {
namespace {

using trace::OriginKind;

constexpr std::string_view kObjectHead = R"({"traceEvents":)";
constexpr size_t kWriteSize = 1U << 18U;
constexpr int kDrainTid = 1;
constexpr int kDropTid = 2;
constexpr int kFirstGpu = 100;
// Perfetto's UI shows the threads of a process in this order, but one with the process's number first.
constexpr int64_t kFirstSlotTid = 101, kFirstQueueTid = 1'000'001;

struct Process {
  int pid;
  std::string_view name;
  int sort_index;
};
constexpr Process kEngine{1, "engine", 0};
constexpr Process kRequests{2, "requests", 1};
constexpr Process kCounters{3, "counters", 2};
constexpr Process kOverhead{4, "overhead", 1000};

// These texts are written for each event of an origin, and made once.
struct OriginText {
  OriginKind kind;
  bool numbered;
  std::string category;             // ,"cat":"..."
  std::string name;                 // ,"name":"..." without the closing quote if a number follows
  std::string both;                 // it has the two, one after the other
  std::string args;                 // "name":value,...
  std::vector<std::string> values;  // "name":
  std::string text;                 // "name": or empty
  size_t read, written;             // the indices of bytes_read and bytes_written among the values
  // An op moves the same bytes in most steps.
  std::vector<uint64_t> last_values = {};
  std::string last_text = {};  // "name":value,... of these
};

// A thread's texts are made once, too.
struct TrackText {
  trace::TrackInfo info;
  std::string open;  // it is a span's text up to its time
};

class PerfettoWriter final : public trace::Sink {
 public:
  explicit PerfettoWriter(PerfettoOptions options)
      : options_(std::move(options)),
        file_(options_.path, kObjectHead.size(), {.replace = options_.replace}),
        requests_([this](const RequestSlice& slice) { write_request(slice); }) {}

  void begin(const trace::TimeBase& time_base) override;
  void origin(trace::OriginId id, const trace::OriginInfo& info) override;
  void track(uint32_t index, const trace::TrackInfo& info) override;
  void event(const trace::Event& event) override;
  Status drained(const trace::Drain& drain) override;
  Status finish(const trace::Summary& summary) override;

 private:
  void make_room();
  void open_event(std::string_view phase, const Process& process);
  void append_number(const OriginText& origin, uint64_t number);
  void write_metadata(const Process& process, int64_t tid, std::string_view what, std::string_view key,
                      const std::string& json_value);
  void append_event_args(OriginText& origin, const trace::Event& event);
  static void append_values(std::string& out, const OriginText& origin, std::span<const uint64_t> values);
  void write_thread_event(OriginText& origin, const trace::Event& event);
  void write_counter(const OriginText& origin, const trace::Event& event);
  int64_t request_tid(const RequestSlice& slice);
  void write_request(const RequestSlice& slice);
  void write_gpu();
  void append_place(int64_t tid, int64_t ns);
  void write_flow(std::string_view phase, const GpuTrackPlan& plan, const GpuTrackPlan::Placed& at);
  void write_overhead(int tid, std::string_view name, int64_t begin_ns, int64_t end_ns, std::string_view args);

  PerfettoOptions options_;
  OutputFile file_;
  RequestBook requests_;
  std::set<int64_t> request_tids_;  // these have their names
  trace::TimeBase time_base_{};
  std::vector<OriginText> origins_;
  std::vector<TrackText> tracks_;
  std::string buffer_;
  bool first_ = true;
  uint64_t left_out_ = 0;
};

std::string quoted(std::string_view text) {
  std::string out;
  append_string(out, text);
  return out;
}

void PerfettoWriter::begin(const trace::TimeBase& time_base) {
  time_base_ = time_base;
  buffer_ += '[';
  for (const Process& process : {kEngine, kRequests, kCounters, kOverhead}) {
    write_metadata(process, 0, "process_name", "name", quoted(process.name));
    write_metadata(process, 0, "process_sort_index", "sort_index", std::to_string(process.sort_index));
  }
  write_metadata(kOverhead, kDrainTid, "thread_name", "name", quoted("drain"));
  write_metadata(kOverhead, kDropTid, "thread_name", "name", quoted("drops"));
}

void PerfettoWriter::origin(trace::OriginId, const trace::OriginInfo& info) {
  const auto index = [&](std::string_view name) {
    return static_cast<size_t>(std::ranges::find(info.values, name) - info.values.begin());
  };
  OriginText text{.kind = info.kind,
                  .numbered = info.numbered,
                  .category = R"(,"cat":)" + quoted(info.category),
                  .name = R"(,"name":)" + quoted(info.name),
                  .both = {},
                  .args = {},
                  .values = {},
                  .text = info.text.empty() ? "" : quoted(info.text) + ':',
                  .read = index("bytes_read"),
                  .written = index("bytes_written")};
  if (text.numbered) text.name.pop_back();
  text.both = text.category + text.name;
  append_args(text.args, info.args);
  for (const std::string& name : info.values) text.values.push_back(quoted(name) + ':');
  origins_.push_back(std::move(text));
}

void PerfettoWriter::track(uint32_t index, const trace::TrackInfo& info) {
  tracks_.push_back({info, ",\n{\"ph\":\"X\",\"pid\":" + std::to_string(kEngine.pid) +
                               ",\"tid\":" + std::to_string(info.tid) + ",\"ts\":"});
  write_metadata(kEngine, info.tid, "thread_name", "name", quoted(info.name));
  write_metadata(kEngine, info.tid, "thread_sort_index", "sort_index", std::to_string(index));
}

void PerfettoWriter::make_room() {
  if (buffer_.size() < kWriteSize) return;
  file_.write(buffer_);
  buffer_.clear();
}

void PerfettoWriter::open_event(std::string_view phase, const Process& process) {
  make_room();
  buffer_ += first_ ? "\n{\"ph\":\"" : ",\n{\"ph\":\"";
  first_ = false;
  buffer_ += phase;
  buffer_ += R"(","pid":)";
  append_integer(buffer_, process.pid);
}

void PerfettoWriter::append_number(const OriginText& origin, uint64_t number) {
  if (origin.numbered) buffer_ += std::to_string(number) + '"';
}

void PerfettoWriter::write_metadata(const Process& process, int64_t tid, std::string_view what, std::string_view key,
                                    const std::string& json_value) {
  open_event("M", process);
  if (tid != 0) {
    buffer_ += R"(,"tid":)";
    append_integer(buffer_, tid);
  }
  buffer_ += R"(,"name":)" + quoted(what) + R"(,"args":{)" + quoted(key) + ':' + json_value + "}}";
}

void PerfettoWriter::event(const trace::Event& event) {
  OriginText& origin = origins_[event.origin];
  if (origin.kind == OriginKind::kRequest) return requests_.add(event);
  if (origin.kind == OriginKind::kCounter) return write_counter(origin, event);
  write_thread_event(origin, event);
}

void PerfettoWriter::write_thread_event(OriginText& origin, const trace::Event& event) {
  const TrackText& track = tracks_[event.track];
  if (origin.kind == OriginKind::kSpan) {
    make_room();
    buffer_ += track.open;
    append_micros(buffer_, event.begin_ns);
    buffer_ += R"(,"dur":)";
    append_micros(buffer_, event.end_ns - event.begin_ns);
  } else {
    open_event("i", kEngine);
    append_place(track.info.tid, event.begin_ns);
    buffer_ += R"(,"s":"t")";
  }
  buffer_ += origin.both;
  append_number(origin, event.values.empty() ? 0 : event.values.front());
  append_event_args(origin, event);
  buffer_ += '}';
}

void PerfettoWriter::append_values(std::string& out, const OriginText& origin, std::span<const uint64_t> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) out += ',';
    out += origin.values[i];
    append_unsigned(out, values[i]);
  }
}

void PerfettoWriter::append_event_args(OriginText& origin, const trace::Event& event) {
  const auto values = event.values.first(std::min(origin.values.size(), event.values.size()));
  const bool has_text = !origin.text.empty() && !event.text.empty();
  if (origin.args.empty() && values.empty() && !has_text) return;
  buffer_ += R"(,"args":{)";
  const size_t begin = buffer_.size();
  buffer_ += origin.args;
  const auto comma = [&] {
    if (buffer_.size() > begin) buffer_ += ',';
  };
  const bool costs = std::max(origin.read, origin.written) < values.size();
  if (!values.empty()) comma();
  if (!costs) {
    append_values(buffer_, origin, values);
  } else {
    if (!std::ranges::equal(values, origin.last_values)) {
      origin.last_values.assign(values.begin(), values.end());
      origin.last_text.clear();
      append_values(origin.last_text, origin, values);
    }
    buffer_ += origin.last_text;
  }
  if (has_text) {
    comma();
    buffer_ += origin.text;
    append_string(buffer_, event.text);
  }
  const int64_t ns = event.end_ns - event.begin_ns;
  if (costs && ns > 0) {
    const double gbps = (static_cast<double>(values[origin.read]) + static_cast<double>(values[origin.written])) /
                        static_cast<double>(ns);
    const double peak = options_.read_gbps ? options_.read_gbps() : 0;
    buffer_ += R"(,"gbps":)";
    append_figure(buffer_, gbps);
    if (peak > 0) {
      buffer_ += R"(,"peak_pct":)";
      append_figure(buffer_, 100 * gbps / peak);
    }
  }
  buffer_ += '}';
}

void PerfettoWriter::write_counter(const OriginText& origin, const trace::Event& event) {
  if (!std::isfinite(event.value)) {
    ++left_out_;
    return;
  }
  open_event("C", kCounters);
  buffer_ += R"(,"ts":)";
  append_micros(buffer_, event.begin_ns);
  buffer_ += origin.name;
  buffer_ += R"(,"args":{"value":)";
  append_double(buffer_, event.value);
  buffer_ += "}}";
}

int64_t PerfettoWriter::request_tid(const RequestSlice& slice) {
  const bool waits = slice.lane == RequestSlice::Lane::kQueue;
  const int64_t tid = (waits ? kFirstQueueTid : kFirstSlotTid) + slice.index;
  if (!request_tids_.insert(tid).second) return tid;
  const std::string number = std::to_string(waits ? slice.index + 1 : slice.index);
  const std::string name = !waits ? "slot " + number : slice.index == 0 ? "queue" : "queue " + number;
  write_metadata(kRequests, tid, "thread_name", "name", quoted(name));
  write_metadata(kRequests, tid, "thread_sort_index", "sort_index", std::to_string(tid));
  return tid;
}

void PerfettoWriter::write_request(const RequestSlice& slice) {
  const int64_t tid = request_tid(slice);
  open_event(slice.is_moment ? "i" : "X", kRequests);
  append_place(tid, slice.begin_ns);
  if (slice.is_moment) {
    buffer_ += R"(,"s":"t")";
  } else {
    buffer_ += R"(,"dur":)";
    append_micros(buffer_, slice.end_ns - slice.begin_ns);
  }
  buffer_ += R"(,"cat":)" + quoted(slice.category) + R"(,"name":)" + quoted(slice.name) + R"(,"args":{)";
  append_args(buffer_, slice.args);
  buffer_ += "}}";
}

void PerfettoWriter::write_overhead(int tid, std::string_view name, int64_t begin_ns, int64_t end_ns,
                                    std::string_view args) {
  open_event("X", kOverhead);
  buffer_ += R"(,"tid":)";
  append_integer(buffer_, tid);
  buffer_ += R"(,"ts":)";
  append_micros(buffer_, begin_ns);
  buffer_ += R"(,"dur":)";
  append_micros(buffer_, end_ns - begin_ns);
  buffer_ += R"(,"cat":"overhead","name":)" + quoted(name) + R"(,"args":{)";
  buffer_ += args;
  buffer_ += "}}";
}

Status PerfettoWriter::drained(const trace::Drain& drain) {
  requests_.decide(drain.decided_ns, drain.wanted_ns);
  if (drain.events > 0) {
    write_overhead(kDrainTid, "drain", drain.begin_ns, drain.end_ns, R"("events":)" + std::to_string(drain.events));
  }
  for (const trace::Drop& drop : drain.drops) {
    write_overhead(
        kDropTid, "lost: ring full", drain.previous_ns, drain.begin_ns,
        R"("events":)" + std::to_string(drop.events) + R"(,"thread":)" + quoted(tracks_[drop.track].info.name));
  }
  file_.write(buffer_);
  buffer_.clear();
  return file_.flush();
}

void PerfettoWriter::write_gpu() {
  const GpuSlices gpu = options_.kernels();
  left_out_ += gpu.lost;
  const GpuTrackPlan plan = place_slices(gpu.slices, time_base_.start_realtime_ns, [&](uint32_t tid) {
    const auto found = std::ranges::find(tracks_, int64_t{tid}, [](const TrackText& track) { return track.info.tid; });
    return found != tracks_.end() ? found->info.name : "thread " + std::to_string(tid);
  });
  left_out_ += plan.left_out;
  const auto process = [&](size_t i) {
    return Process{plan.processes[i].pid, plan.processes[i].name, plan.processes[i].sort_index};
  };
  for (size_t i = 0; i < plan.processes.size(); ++i) {
    if (plan.processes[i].pid < kFirstGpu) continue;  // its process is there
    write_metadata(process(i), 0, "process_name", "name", quoted(process(i).name));
    write_metadata(process(i), 0, "process_sort_index", "sort_index", std::to_string(process(i).sort_index));
  }
  for (const GpuTrackPlan::Track& track : plan.tracks) {
    write_metadata(process(track.process), track.tid, "thread_name", "name", quoted(track.name));
    write_metadata(process(track.process), track.tid, "thread_sort_index", "sort_index",
                   std::to_string(track.sort_index));
  }
  std::map<uint32_t, const GpuTrackPlan::Placed*> calls;  // keyed by the correlation of what they launched
  for (const GpuTrackPlan::Placed& placed : plan.placed) {
    const GpuSlice& slice = *placed.slice;
    const GpuTrackPlan::Track& track = plan.tracks[placed.track];
    open_event("X", process(track.process));
    append_place(track.tid, slice.begin_ns - time_base_.start_realtime_ns);
    buffer_ += R"(,"dur":)";
    append_micros(buffer_, slice.end_ns - slice.begin_ns);
    buffer_ += R"(,"cat":)" + quoted(slice.category) + R"(,"name":)" + quoted(slice.name) + R"(,"args":{)";
    append_args(buffer_, slice.args);
    buffer_ += "}}";
    if (slice.track == GpuSlice::Track::kCalls && slice.correlation != 0) calls.emplace(slice.correlation, &placed);
  }
  std::map<uint32_t, bool> started;
  for (const GpuTrackPlan::Placed& placed : plan.placed) {
    const auto call = calls.find(placed.slice->correlation);
    if (placed.slice->track != GpuSlice::Track::kStream || call == calls.end()) continue;
    if (started.try_emplace(call->first, true).second) write_flow("s", plan, *call->second);
    write_flow("f", plan, placed);
  }
}

void PerfettoWriter::append_place(int64_t tid, int64_t ns) {
  buffer_ += R"(,"tid":)";
  append_integer(buffer_, tid);
  buffer_ += R"(,"ts":)";
  append_micros(buffer_, ns);
}

// Writes arrows from a call to what it launched: one arrow may have many ends.
void PerfettoWriter::write_flow(std::string_view phase, const GpuTrackPlan& plan, const GpuTrackPlan::Placed& at) {
  const GpuTrackPlan::Track& track = plan.tracks[at.track];
  open_event(phase, {plan.processes[track.process].pid, "", 0});
  append_place(track.tid, at.slice->begin_ns - time_base_.start_realtime_ns);
  buffer_ += R"(,"cat":"ac2g","name":"ac2g","id":)";
  append_integer(buffer_, at.slice->correlation);
  buffer_ += phase == "f" ? R"(,"bp":"e"})" : "}";
}

Status PerfettoWriter::finish(const trace::Summary& summary) {
  requests_.close(summary.end_ns);
  if (options_.kernels) write_gpu();
  buffer_ += "\n],\n\"schemaVersion\":1,\n\"displayTimeUnit\":\"ns\",\n\"baseTimeNanoseconds\":";
  append_integer(buffer_, time_base_.start_realtime_ns);
  buffer_ += ",\n\"deviceProperties\":[";
  bool first_device = true;
  for (const std::vector<trace::Arg>& device : options_.devices ? options_.devices() : decltype(options_.devices())()) {
    buffer_ += std::exchange(first_device, false) ? "{" : ",{";
    append_args(buffer_, device);
    buffer_ += '}';
  }
  std::vector<trace::Arg> metadata = options_.metadata;
  if (options_.more_metadata) {
    for (trace::Arg& arg : options_.more_metadata()) metadata.push_back(std::move(arg));
  }
  metadata.push_back({"mode", options_.mode});
  metadata.push_back({"clock", std::string(time_base_.tsc ? "tsc" : "clock_gettime")});
  metadata.push_back({"dropped_records", summary.dropped + requests_.dropped() + left_out_});
  buffer_ += "],\n\"metadata\":{";
  append_args(buffer_, metadata);
  buffer_ += "}}\n";
  file_.write(buffer_);
  buffer_.clear();
  return file_.finish(kObjectHead);
}

}  // namespace

std::unique_ptr<trace::Sink> make_perfetto_writer(PerfettoOptions options) {
  return std::make_unique<PerfettoWriter>(std::move(options));
}

}  // namespace tenon::profiler
