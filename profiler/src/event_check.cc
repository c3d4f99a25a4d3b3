// An event is read field by field, in whatever order they come, and then judged by its phase (ph): which fields it
// needs, and which values an importer takes without loss. Times are parsed as decimal text, since a double would lose
// nanoseconds.
#include "event_check.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <string_view>

namespace tenon::profiler {
namespace {

// Importers hold times in doubles of microseconds on their way; beyond 2^53 nanoseconds (104 days) those no longer hold
// a nanosecond.
constexpr int64_t kMaxExactNs = int64_t{1} << 53U;
// Times since 1970 stay below this, and two of them can be added.
constexpr int64_t kTooLarge = 4'000'000'000'000'000'000;

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::ranges::find(words, text) != words.end();
}

// Most numbers are "digits" or "digits.ddd".
bool parse_plain_micros(const std::string& number, Micros& result) {
  const size_t point = std::min(number.find('.'), number.size());
  const size_t decimals = point == number.size() ? 0 : number.size() - point - 1;
  if (point > 15 || decimals > 3) return false;
  int64_t ns = 0;
  for (size_t i = 0; i < number.size(); ++i) {
    if (i == point) continue;
    if (number[i] < '0' || number[i] > '9') return false;
    ns = ns * 10 + (number[i] - '0');
  }
  for (size_t i = decimals; i < 3; ++i) ns *= 10;
  result.ns = ns;
  return true;
}

}  // namespace

Micros parse_micros(const std::string& number) {
  Micros result;
  if (parse_plain_micros(number, result)) return result;
  std::string digits;
  int64_t shift = 3;  // a microsecond has 10^3 nanoseconds
  bool after_point = false;
  size_t i = 0;
  for (; i < number.size() && number[i] != 'e' && number[i] != 'E'; ++i) {
    if (number[i] == '-') result.negative = true;
    if (number[i] == '.') after_point = true;
    if (number[i] < '0' || number[i] > '9') continue;
    digits += number[i];
    if (after_point) --shift;
  }
  if (i < number.size()) {
    const char* from = number.data() + i + 1;
    if (*from == '+') ++from;
    int exponent = 0;
    const auto parsed = std::from_chars(from, number.data() + number.size(), exponent);
    if (parsed.ec != std::errc()) exponent = *from == '-' ? -100'000 : 100'000;
    shift += exponent;
  }
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size()));
  while (!digits.empty() && digits.back() == '0') {
    digits.pop_back();
    ++shift;
  }
  if (digits.empty()) return {};
  if (shift < 0) {
    result.extra_decimals = true;
    digits.resize(static_cast<size_t>(std::max<int64_t>(0, static_cast<int64_t>(digits.size()) + shift)));
    shift = 0;
  }
  result.too_large = static_cast<int64_t>(digits.size()) + shift > 19;
  if (result.too_large) return result;
  digits.append(static_cast<size_t>(shift), '0');
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), result.ns);
  result.too_large = parsed.ec == std::errc::result_out_of_range || result.ns >= kTooLarge;
  if (result.too_large) result.ns = 0;
  return result;
}

void EventCheck::read() {
  const Place at = in_.place();
  ++report_.events;
  if (in_.peek() != JsonKind::kObject) {
    findings_.loss("missing-field", at, {}, "an event that is no object", "write {\"ph\":...,\"pid\":...,\"ts\":...}");
    return in_.skip();
  }
  Fields event;
  event.at = at;
  const size_t mark = findings_.mark();
  std::string key;
  for (in_.begin_object(); in_.next_member(key);) read_field(key, event);
  judge(event);
  findings_.name_since(mark, event.name);
}

void EventCheck::read_field(const std::string& key, Fields& event) {
  if (key == "ph") return read_text("ph", event.phase);
  if (key == "name") return read_text("name", event.name);
  if (key == "cat") return read_text("cat", event.category);
  if (key == "bp") return read_text("bp", event.bind);
  if (key == "ts") return static_cast<void>(event.ts = read_time("ts"));
  if (key == "dur") return static_cast<void>(event.dur = read_time("dur"));
  if (key == "pid") return static_cast<void>(event.pid = read_integer("pid"));
  if (key == "tid") return static_cast<void>(event.tid = read_integer("tid"));
  if (key == "id") return read_id(event);
  if (key == "id2") return read_scoped_id(event);
  if (key == "args") return read_args(event);
  if (is_one_of(key, {"cname", "sf", "esf", "stack", "estack"})) {
    findings_.notice("ignored", in_.place(), {}, '"' + key + "\" is ignored", "say it in args");
  }
  in_.skip();
}

void EventCheck::read_text(const char* key, std::string& out) {
  const Place at = in_.place();
  if (in_.peek() == JsonKind::kString) return in_.string(out);
  findings_.loss("wrong-type", at, {}, std::string("\"") + key + "\" is no string", "write a string");
  in_.skip();
}

EventCheck::Field EventCheck::read_time(const char* key) {
  const Place at = in_.place();
  const std::string what = std::string("\"") + key + "\" ";
  if (in_.peek() != JsonKind::kNumber) {
    findings_.loss("wrong-type", at, {}, what + "is no number", "write microseconds with three decimals");
    in_.skip();
    return {true, std::nullopt};
  }
  std::string text;
  in_.number(text);
  const Micros time = parse_micros(text);
  if (time.extra_decimals) {
    findings_.loss("decimals", at, {}, what + "is " + text + ", finer than a nanosecond",
                   "write integers of nanoseconds as %d.%03d");
  }
  if (time.negative) {
    findings_.loss("negative", at, {}, what + "is " + text, "times are relative to a start, durations not negative");
    return {true, std::nullopt};
  }
  if (time.too_large || time.ns > kMaxExactNs) {
    findings_.loss("epoch", at, {}, what + "is " + text + ", too large to hold nanoseconds",
                   "write times relative to a start and the start as baseTimeNanoseconds");
    if (time.too_large) return {true, std::nullopt};
  }
  return {true, time.ns};
}

EventCheck::Field EventCheck::read_integer(const char* key) {
  const Place at = in_.place();
  if (in_.peek() == JsonKind::kNumber) {
    std::string text;
    in_.number(text);
    int64_t value = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
    if (parsed.ec == std::errc() && parsed.ptr == text.data() + text.size()) return {true, value};
  } else {
    in_.skip();
  }
  findings_.loss("wrong-type", at, {}, std::string("\"") + key + "\" is no int64", "write an integer");
  return {true, std::nullopt};
}

void EventCheck::read_id(Fields& event) {
  event.has_id = true;
  const JsonKind kind = in_.peek();
  if (kind == JsonKind::kNumber) {
    in_.number(event.id);
    event.hex_or_integer_id = std::ranges::all_of(event.id, [](char c) { return c >= '0' && c <= '9'; });
    return;
  }
  if (kind != JsonKind::kString) {
    findings_.loss("wrong-type", in_.place(), {}, "\"id\" is neither integer nor string",
                   "write an integer or a hex string");
    event.has_id = false;
    return in_.skip();
  }
  in_.string(event.id);
  std::string_view digits = event.id;
  if (digits.starts_with("0x")) digits.remove_prefix(2);
  uint64_t value = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  event.hex_or_integer_id = parsed.ec == std::errc() && parsed.ptr == digits.data() + digits.size();
  if (event.hex_or_integer_id) event.id = std::to_string(value);
}

void EventCheck::read_scoped_id(Fields& event) {
  if (in_.peek() != JsonKind::kObject) {
    findings_.loss("wrong-type", in_.place(), {}, "\"id2\" is no object",
                   R"(write {"local":"0x1"} or {"global":"0x1"})");
    return in_.skip();
  }
  std::string scope;
  for (in_.begin_object(); in_.next_member(scope);) {
    if (!is_one_of(scope, {"local", "global"})) {
      in_.skip();
      continue;
    }
    read_id(event);
    event.process_id = scope == "local";
  }
}

void EventCheck::read_args(Fields& event) {
  const Place at = in_.place();
  if (in_.peek() != JsonKind::kObject) {
    findings_.loss("wrong-type", at, {}, "\"args\" is no object", "write {\"name\":value}");
    return in_.skip();
  }
  event.has_args = true;
  std::string text;
  for (in_.begin_object(); in_.next_member(text);) {
    const Place value = in_.place();
    if (in_.peek() == JsonKind::kNumber) {
      checked_number(in_, findings_, text);
      ++event.n_series;
    } else {
      if (!event.bad_series) event.bad_series = value;
      in_.skip();
    }
  }
}

void EventCheck::missing(const Fields& event, const char* what) {
  findings_.loss("missing-field", event.at, event.name,
                 std::string("an event of phase \"") + event.phase + "\" has no " + what, std::string("write ") + what);
}

void EventCheck::judge(Fields& event) {
  if (event.category == "kernel") saw_kernel_ = true;
  if (event.phase.size() != 1) return missing(event, "ph of one letter");
  if (!event.pid.present) missing(event, "pid");
  switch (event.phase[0]) {
    case 'M':
      return judge_metadata(event);
    case 'X':
      return judge_slice(event);
    case 'B':
    case 'E':
      return judge_begin_end(event);
    case 'C':
      return judge_counter(event);
    case 'b':
    case 'n':
    case 'e':
      return judge_request(event);
    case 's':
    case 't':
    case 'f':
      return judge_flow(event);
    case 'i':
    case 'I':
      if (!event.ts.present) missing(event, "ts");
      return;
    default:
      findings_.notice("ignored", event.at, event.name, "phase \"" + event.phase + "\" is not checked",
                       "use X, i, C, b, n, e, s, f or M");
  }
}

bool EventCheck::has_time(const Fields& event) {
  if (!event.ts.present) missing(event, "ts");
  return event.ts.value.has_value();
}

bool EventCheck::has_thread(const Fields& event) {
  if (!event.tid.present) missing(event, "tid");
  if (!event.tid.value) return false;
  const int64_t tid = *event.tid.value;
  if (tid <= 0 || tid > std::numeric_limits<uint32_t>::max()) {
    findings_.loss("tid", event.at, event.name,
                   "tid " + std::to_string(tid) + " arrives as " + (tid == 0 ? "the pid" : "0"),
                   "write gettid(), or for a stream 1000 + stream");
    return false;
  }
  return event.pid.value.has_value();
}

void EventCheck::judge_slice(const Fields& event) {
  ++report_.slices;
  if (!event.dur.present) missing(event, "dur");
  if (event.name.empty()) missing(event, "name");
  const bool time = has_time(event);
  if (!has_thread(event) || !time || !event.dur.value) return;
  tracks_.slice({*event.pid.value, *event.tid.value}, *event.ts.value, *event.dur.value, event.name, event.at);
}

void EventCheck::judge_begin_end(const Fields& event) {
  const bool time = has_time(event);
  if (!has_thread(event) || !time) return;
  const TrackId track{*event.pid.value, *event.tid.value};
  if (event.phase == "E") return tracks_.end(track, *event.ts.value, event.name, event.at);
  ++report_.slices;
  tracks_.begin(track, *event.ts.value, event.name, event.at);
}

void EventCheck::judge_counter(const Fields& event) {
  ++report_.counters;
  static_cast<void>(has_time(event));
  if (event.name.empty()) missing(event, "name");
  if (event.bad_series) {
    findings_.loss("counter-value", *event.bad_series, event.name, "a counter's value is no number",
                   "leave out what has no value");
  } else if (event.n_series == 0) {
    findings_.loss("counter-value", event.at, event.name, "a counter has no value", R"(write "args":{"value":number})");
  }
}

void EventCheck::judge_request(const Fields& event) {
  ++report_.request_events;
  if (event.category.empty()) missing(event, "cat");
  if (!event.has_id) missing(event, "id");
  if (!has_time(event) || !event.has_id || event.phase == "n") return;
  const std::string id = event.process_id ? event.id + " of " + std::to_string(event.pid.value.value_or(0)) : event.id;
  tracks_.request(event.phase[0], {event.category, event.name, id}, *event.ts.value, event.at);
}

void EventCheck::judge_flow(const Fields& event) {
  ++report_.flow_events;
  if (!event.has_id) missing(event, "id");
  if (event.category.empty()) missing(event, "cat");
  if (event.has_id && !event.hex_or_integer_id) {
    findings_.loss("flow-id", event.at, event.name, "id \"" + event.id + "\" is neither integer nor hex",
                   "write an integer or a hex string");
  }
  if (event.phase == "f" && event.bind != "e") {
    findings_.loss("flow-bind", event.at, event.name, "f without \"bp\":\"e\" goes to the next slice",
                   R"(write "bp":"e")");
  }
  const bool time = has_time(event);
  if (!has_thread(event) || !time || !event.has_id) return;
  tracks_.flow(event.phase[0], {event.category, event.name, event.id}, {*event.pid.value, *event.tid.value},
               *event.ts.value, event.at);
}

void EventCheck::judge_metadata(const Fields& event) {
  if (!is_one_of(event.name, {"process_name", "thread_name", "process_sort_index", "thread_sort_index"})) {
    findings_.notice("ignored", event.at, event.name, "metadata \"" + event.name + "\" is ignored",
                     "process_name, thread_name and their sort_index are read");
    return;
  }
  if (!event.has_args) missing(event, "args");
  if (event.name.starts_with("thread")) static_cast<void>(has_thread(event));
}

}  // namespace tenon::profiler
