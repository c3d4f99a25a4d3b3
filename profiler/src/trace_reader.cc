// This makes a TraceFile of a trace in JSON, in the Trace Event Format as Tenon, PyTorch's profiler and others write
// it: the object form or the array form, which may be cut off.
//
// Invariants: whatever the bytes are, bytes, depth and strings are bounded by TraceLimits, and the reader ends
// with a TraceFile or an Error. An event that is malformed is left out and counted by its reason, and never
// changes another one. Times are in nanoseconds.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "event_check.h"
#include "json_reader.h"
#include "tenon/core/error.h"
#include "tenon/profiler/trace_file.h"
#include "trace_builder.h"

namespace tenon::profiler {
namespace {

// Nanoseconds since 1970 stay below this until 2039; begins and ends of such times can be subtracted.
constexpr int64_t kTooLarge = 2'200'000'000'000'000'000;
constexpr size_t kMaxText = 1U << 16U;      // an argument has so many bytes at most
constexpr size_t kMaxMetadata = 1U << 24U;  // one member has so many bytes at most
constexpr size_t kMaxMembers = 4096;

uint64_t hash_of(std::string_view text, uint64_t seed) {
  uint64_t hash = seed ^ 0xCBF29CE484222325U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
  return hash;
}

class TraceReader {
 public:
  TraceReader(ByteSource::Read read, const std::string& path, const TraceLimits& limits)
      : source_(std::move(read)),
        findings_(report_, 1),
        check_limits_{.max_bytes = limits.max_bytes, .max_depth = limits.max_depth},
        limits_(limits),
        in_(source_, findings_, check_limits_),
        builder_(file_) {
    file_.path = path;
    file_.strings.limit(limits.max_strings);
  }

  TraceFile run();

 private:
  struct Time {
    bool good = false;
    int64_t ns = 0;
  };

  void read_top();
  void read_object();
  void read_events();
  void keep_metadata(std::string key);

  void read_event();
  void read_field();
  void read_text(std::string& into);
  Time read_time();
  int64_t read_id();
  void read_args();
  TraceArg read_arg();
  void place();
  void place_counter();
  void name_things();
  void leave_out(const std::string& why) { ++left_out_[why]; }
  // Most events have the names, and many the texts, of the one before in the same places.
  struct Known {
    std::string text;
    uint32_t id = 0;  // 0 is the id of ""
  };
  uint32_t intern_at(std::vector<Known>& known, size_t place, const std::string& text);

  TraceFile file_;
  CheckReport report_;
  ByteSource source_;
  FindingList findings_;
  const CheckLimits check_limits_;
  const TraceLimits limits_;
  JsonReader in_;
  TraceBuilder builder_;
  bool is_trace_ = false;
  std::map<std::string, uint64_t, std::less<>> left_out_;

  // The event that is being read has these.
  std::string phase_, name_, category_, id_;
  Time ts_, dur_;
  int64_t pid_ = 0, tid_ = 0;
  bool local_id_ = false;
  std::vector<TraceArg> args_;
  std::vector<Known> known_keys_, known_texts_;  // each place among the arguments has one

  std::string key_, text_;
};

TraceFile TraceReader::run() {
  std::string broken;
  try {
    read_top();
    in_.expect_end();
  } catch (const SyntaxError& error) {
    broken = "line " + std::to_string(error.at.line) + ", byte " + std::to_string(error.at.offset) + ": " +
             error.found + "; " + error.right;
  }
  if (!source_.damage().empty()) broken += (broken.empty() ? "" : "; ") + source_.damage();
  if (file_.n_events == 0 && file_.metadata.empty()) {
    if (broken.empty()) {
      broken = is_trace_ ? "it has no events" : R"(a trace is [...] or {"traceEvents":[...]}, and this is neither)";
    }
    throw Error(ErrorCode::kIo, {file_.path}, "no trace can be read of this file: " + broken);
  }
  if (!broken.empty()) {
    file_.notices.push_back("only the " + std::to_string(file_.n_events) + " events in front of " + broken);
  }
  for (const auto& [why, count] : left_out_) file_.notices.push_back(std::to_string(count) + ' ' + why);
  if (report_.losses > 0) {
    file_.notices.push_back(std::to_string(report_.losses) + " texts or numbers are not valid JSON, such as in line " +
                            std::to_string(report_.findings.front().line) + ": " + report_.findings.front().found);
  }
  builder_.finish();
  const uint64_t refused = file_.strings.refused() + file_.args.refused();
  if (refused > 0) {
    file_.notices.push_back(std::to_string(refused) +
                            " texts or sets of arguments are left out: too many different ones");
  }
  if (const auto dropped = file_.meta("dropped_records"); dropped && *dropped != "0") {
    file_.notices.push_back(std::string(*dropped) + " records were lost while recording");
  }
  if (file_.n_events == 0) file_.notices.emplace_back("no events");
  return std::move(file_);
}

void TraceReader::read_top() {
  const JsonKind kind = in_.peek();
  if (kind == JsonKind::kArray) return read_events();
  if (kind == JsonKind::kObject) return read_object();
  in_.skip();
}

void TraceReader::read_object() {
  for (in_.begin_object(); in_.next_member(key_);) {
    const JsonKind kind = in_.peek();
    if (key_ == "traceEvents" && kind == JsonKind::kArray) {
      read_events();
    } else if ((key_ == "metadata" || key_ == "otherData") && kind == JsonKind::kObject) {
      is_trace_ = true;
      std::string key;
      for (in_.begin_object(); in_.next_member(key);) keep_metadata(key);
    } else if (key_ == "stackFrames" || key_ == "samples") {
      in_.skip();
    } else {
      keep_metadata(key_);
    }
  }
}

void TraceReader::keep_metadata(std::string key) {
  if (file_.metadata.size() == kMaxMembers) return in_.skip();
  std::string value;
  if (in_.peek() == JsonKind::kString) {
    in_.string(value, kMaxMetadata);
  } else {
    in_.raw(value, kMaxMetadata);
  }
  file_.metadata.emplace_back(std::move(key), std::move(value));
}

void TraceReader::read_events() {
  is_trace_ = true;
  for (in_.begin_array(); in_.next_element();) {
    if (file_.n_events == limits_.max_events) {
      throw SyntaxError{in_.place(), "more than " + std::to_string(limits_.max_events) + " events",
                        "record a shorter capture", false, true};
    }
    if (in_.peek() == JsonKind::kObject) {
      read_event();
    } else {
      in_.skip();
      leave_out("elements of traceEvents are no objects");
    }
    ++file_.n_events;
  }
}

void TraceReader::read_event() {
  for (std::string* text : {&phase_, &name_, &category_, &id_}) text->clear();
  ts_ = dur_ = {};
  pid_ = tid_ = 0;
  local_id_ = false;
  args_.clear();
  for (in_.begin_object(); in_.next_member(key_);) read_field();
  place();
}

void TraceReader::read_field() {
  if (key_ == "ph") {
    read_text(phase_);
  } else if (key_ == "name") {
    read_text(name_);
  } else if (key_ == "cat") {
    read_text(category_);
  } else if (key_ == "ts") {
    ts_ = read_time();
  } else if (key_ == "dur") {
    dur_ = read_time();
  } else if (key_ == "pid") {
    pid_ = read_id();
  } else if (key_ == "tid") {
    tid_ = read_id();
  } else if (key_ == "id") {
    read_text(id_);
  } else if (key_ == "id2" && in_.peek() == JsonKind::kObject) {
    for (in_.begin_object(); in_.next_member(key_);) {
      local_id_ = key_ == "local";
      read_text(id_);
    }
  } else if (key_ == "args" && in_.peek() == JsonKind::kObject) {
    read_args();
  } else {
    in_.skip();
  }
}

// Reads a text. A number or a word where a text should be is read the same way.
void TraceReader::read_text(std::string& into) {
  into.clear();
  switch (in_.peek()) {
    case JsonKind::kString:
      in_.string(into, kMaxText);
      break;
    case JsonKind::kNumber:
      in_.number(into);
      break;
    default:
      in_.raw(into, kMaxText);
  }
}

TraceReader::Time TraceReader::read_time() {
  Time time;
  if (in_.peek() == JsonKind::kString) {  // some writers quote numbers
    in_.string(text_);
    if (text_.empty() || text_.find_first_not_of("0123456789.-") != std::string::npos) return time;
  } else if (in_.peek() == JsonKind::kNumber) {
    in_.number(text_);
  } else {
    in_.skip();
    return time;
  }
  const Micros micros = parse_micros(text_);
  time.good = !micros.too_large && micros.ns < kTooLarge;
  time.ns = micros.negative ? -micros.ns : micros.ns;
  return time;
}

int64_t TraceReader::read_id() {
  read_text(text_);
  int64_t value = 0;
  const auto parsed = std::from_chars(text_.data(), text_.data() + text_.size(), value);
  if (parsed.ec == std::errc() && parsed.ptr == text_.data() + text_.size() && value > kFirstTextId) return value;
  return kFirstTextId - file_.strings.intern(text_);
}

uint32_t TraceReader::intern_at(std::vector<Known>& known, size_t place, const std::string& text) {
  constexpr size_t kMaxKnown = 64;
  if (place >= kMaxKnown) return file_.strings.intern(text);
  if (place >= known.size()) known.resize(place + 1);
  if (known[place].text != text) known[place] = {text, file_.strings.intern(text)};
  return known[place].id;
}

void TraceReader::read_args() {
  for (in_.begin_object(); in_.next_member(key_);) {
    const uint32_t key = intern_at(known_keys_, args_.size(), key_);
    TraceArg arg = read_arg();
    arg.key = key;
    args_.push_back(arg);
  }
}

TraceArg TraceReader::read_arg() {
  TraceArg arg;
  switch (in_.peek()) {
    case JsonKind::kString:
      in_.string(text_, kMaxText);
      arg.kind = TraceArg::Kind::kText;
      arg.text = intern_at(known_texts_, args_.size(), text_);
      return arg;
    case JsonKind::kNumber: {
      in_.number(text_);
      const char *first = text_.data(), *last = first + text_.size();
      if (const auto parsed = std::from_chars(first, last, arg.integer);
          parsed.ec == std::errc() && parsed.ptr == last) {
        arg.kind = TraceArg::Kind::kInteger;
      } else if (std::from_chars(first, last, arg.number).ec == std::errc()) {
        arg.kind = TraceArg::Kind::kNumber;
      } else {  // it is beyond a double
        arg.kind = TraceArg::Kind::kText;
        arg.text = file_.strings.intern(text_);
      }
      return arg;
    }
    case JsonKind::kBool:
      static_cast<void>(in_.word(&text_));
      arg.kind = TraceArg::Kind::kBool;
      arg.integer = text_ == "true" ? 1 : 0;
      return arg;
    case JsonKind::kObject:
    case JsonKind::kArray:
      text_.clear();
      in_.raw(text_, kMaxText);
      arg.kind = TraceArg::Kind::kJson;
      arg.text = file_.strings.intern(text_);
      return arg;
    default:
      static_cast<void>(in_.word());
      return arg;
  }
}

void TraceReader::place() {
  if (phase_.size() != 1) return leave_out("events have no \"ph\" of one letter");
  char phase = phase_[0];
  if (phase == 'M') return name_things();
  if (std::string_view("XBEiIRnbeSFTpCstf").find(phase) == std::string_view::npos) {
    return leave_out("events of phase \"" + (phase > ' ' && phase < 0x7F ? phase_ : std::string("?")) +
                     "\" are not shown");
  }
  if (!ts_.good) return leave_out("events have no usable \"ts\"");
  if (phase == 'C') return place_counter();
  if (phase == 's' || phase == 't' || phase == 'f') {
    return builder_.add_flow(pid_, tid_, phase, hash_of(id_, hash_of(category_, hash_of(name_, 0))), ts_.ns);
  }
  if (phase == 'S') phase = 'b';
  if (phase == 'F') phase = 'e';
  if (phase == 'T' || phase == 'p') phase = 'n';
  if (phase == 'I' || phase == 'R') phase = 'i';
  TraceBuilder::Event event{.phase = phase, .ns = ts_.ns, .category = category_};
  if (phase == 'X') {
    if (!dur_.good) return leave_out("slices have no usable \"dur\"");
    if (dur_.ns < 0) return leave_out("slices have a negative \"dur\"");
    event.duration_ns = dur_.ns;
  }
  event.name = file_.strings.intern(name_);
  event.args = file_.args.intern(args_);
  if (phase == 'b' || phase == 'e' || phase == 'n') {
    if (id_.empty()) return leave_out("asynchronous events have no \"id\"");
    return builder_.add_async(pid_, local_id_ ? pid_ : kFirstTextId, id_, event);
  }
  builder_.add(pid_, tid_, event);
}

void TraceReader::place_counter() {
  bool any = false;
  for (const TraceArg& arg : args_) {
    const bool integer = arg.kind == TraceArg::Kind::kInteger;
    if (!integer && arg.kind != TraceArg::Kind::kNumber) continue;
    any = true;
    const std::string_view key = file_.strings[arg.key];
    text_ = name_;
    if (!id_.empty()) text_ += " " + id_;
    if (key != "value" && key != name_) text_.append(" ").append(key);
    builder_.add_counter(pid_, text_, ts_.ns, integer ? static_cast<double>(arg.integer) : arg.number);
  }
  if (!any) leave_out("counters have no value that is a number");
}

void TraceReader::name_things() {
  if (args_.empty()) return;
  const TraceArg& arg = args_.front();
  const bool is_text = arg.kind == TraceArg::Kind::kText;
  const std::string value = is_text ? std::string(file_.strings[arg.text]) : std::string();
  if (name_ == "process_name" && is_text) return builder_.name_process(pid_, value);
  if (name_ == "thread_name" && is_text) return builder_.name_thread(pid_, tid_, value);
  if (arg.kind != TraceArg::Kind::kInteger) return;
  if (name_ == "process_sort_index") return builder_.sort_process(pid_, arg.integer);
  if (name_ == "thread_sort_index") return builder_.sort_thread(pid_, tid_, arg.integer);
}

}  // namespace

TraceFile read_trace(const std::string& path, const TraceLimits& limits) {
  return TraceReader(read_file(path), path, limits).run();
}

TraceFile read_trace_bytes(std::string_view bytes, const std::string& path, const TraceLimits& limits) {
  return TraceReader(read_bytes(bytes), path, limits).run();
}

}  // namespace tenon::profiler
