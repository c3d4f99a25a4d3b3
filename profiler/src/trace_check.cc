// This reads the frame of a trace, array or object form, and gives each event to EventCheck, which feeds TrackCheck. It
// stops at the first malformed place or at a limit; what it has found until then stays in the report.
#include "tenon/profiler/trace_check.h"

#include "event_check.h"

namespace tenon::profiler {
namespace {

class TraceCheck {
 public:
  TraceCheck(ByteSource::Read read, const CheckLimits& limits)
      : limits_(limits),
        source_(std::move(read)),
        findings_(report_, limits.max_per_rule),
        in_(source_, findings_, limits_),
        tracks_(findings_),
        events_(in_, findings_, tracks_, report_) {}

  CheckReport run();

 private:
  void read_text();
  void read_events();
  void read_object();
  void read_metadata();
  void report(const SyntaxError& error);

  const CheckLimits limits_;
  CheckReport report_;
  ByteSource source_;
  FindingList findings_;
  JsonReader in_;
  TrackCheck tracks_;
  EventCheck events_;
  bool in_array_form_ = false;
  bool has_events_ = false;
  std::string mode_, problem_;
};

CheckReport TraceCheck::run() {
  try {
    read_text();
  } catch (const SyntaxError& error) {
    report(error);
  }
  if (!source_.damage().empty()) {
    findings_.loss("gzip", {}, {}, source_.damage(), "let the writer finish, or copy the file whole");
  }
  if (has_events_ && report_.events == 0) findings_.notice("empty", {}, {}, "no events", "record at least one step");
  if (!mode_.empty() && mode_ != "cpu" && !events_.saw_kernel()) {
    findings_.loss("no-kernels", {}, {},
                   "metadata.mode is \"" + mode_ + "\" but there is no event of cat \"kernel\"" +
                       (problem_.empty() ? "" : "; the trace says: " + problem_),
                   "record kernels, or say mode \"cpu\"");
  }
  tracks_.finish();
  return std::move(report_);
}

void TraceCheck::report(const SyntaxError& error) {
  if (error.limit) return findings_.loss("limit", error.at, {}, error.found, error.right);
  if (!error.cut)
    return findings_.loss("syntax", error.at, {}, error.found + "; nothing after it is read", error.right);
  if (in_array_form_) {
    findings_.notice("cut", error.at, {}, "the array form ends early; what stands before still loads",
                     "a writer that ends cleanly closes it");
  } else {
    findings_.loss("cut", error.at, {}, error.found + ": an object form that is cut loads not at all", error.right);
  }
}

void TraceCheck::read_text() {
  const JsonKind kind = in_.peek();
  if (kind == JsonKind::kArray) {
    in_array_form_ = true;
    read_events();
  } else if (kind == JsonKind::kObject) {
    report_.object_form = true;
    read_object();
  } else {
    findings_.loss("no-trace", in_.place(), {}, "neither an array nor an object",
                   R"(a trace is [...] or {"traceEvents":[...]})");
    return;
  }
  in_.expect_end();
}

void TraceCheck::read_events() {
  has_events_ = true;
  for (in_.begin_array(); in_.next_element();) {
    if (report_.events == limits_.max_events) {
      throw SyntaxError{in_.place(), "more than " + std::to_string(limits_.max_events) + " events",
                        "check a shorter capture", false, true};
    }
    events_.read();
  }
}

void TraceCheck::read_object() {
  std::string key;
  for (in_.begin_object(); in_.next_member(key);) {
    const Place at = in_.place();
    const JsonKind kind = in_.peek();
    if (key == "traceEvents" && kind == JsonKind::kArray) {
      read_events();
    } else if (key == "metadata" && kind == JsonKind::kObject) {
      read_metadata();
    } else {
      if (key == "stackFrames") findings_.notice("ignored", at, {}, "stackFrames are ignored", "say it in args");
      in_.skip();
    }
  }
  if (!has_events_)
    findings_.loss("no-trace", {}, {}, "no array \"traceEvents\"", R"(a trace is [...] or {"traceEvents":[...]})");
}

void TraceCheck::read_metadata() {
  std::string key;
  std::string text;
  for (in_.begin_object(); in_.next_member(key);) {
    const Place at = in_.place();
    const JsonKind kind = in_.peek();
    if (key == "mode" && kind == JsonKind::kString) {
      in_.string(mode_);
    } else if (key == "problem" && kind == JsonKind::kString) {
      in_.string(problem_);
    } else if (key == "dropped_records" && kind == JsonKind::kNumber) {
      in_.number(text);
      if (text != "0") {
        findings_.loss("dropped", at, {}, text + " records were lost while recording",
                       "record fewer steps, or with larger rings");
      }
    } else {
      in_.skip();
    }
  }
}

}  // namespace

CheckReport check_trace(const std::string& path, const CheckLimits& limits) {
  return TraceCheck(read_file(path), limits).run();
}

CheckReport check_trace_bytes(std::string_view bytes, const CheckLimits& limits) {
  return TraceCheck(read_bytes(bytes), limits).run();
}

}  // namespace tenon::profiler
