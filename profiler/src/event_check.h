// This checks what a single event shows, and hands it on to TrackCheck.
#pragma once

#include <optional>
#include <string>

#include "json_reader.h"
#include "track_check.h"

namespace tenon::profiler {

// Converts a JSON number of microseconds to nanoseconds.
struct Micros {
  int64_t ns = 0;
  bool negative = false;
  bool extra_decimals = false;  // it has digits below a nanosecond
  bool too_large = false;
};
Micros parse_micros(const std::string& number);

class EventCheck {
 public:
  EventCheck(JsonReader& in, FindingList& findings, TrackCheck& tracks, CheckReport& report)
      : in_(in), findings_(findings), tracks_(tracks), report_(report) {}

  // Reads one element of traceEvents.
  void read();

  bool saw_kernel() const noexcept { return saw_kernel_; }

 private:
  // Reads an integer field: it is absent, unusable (already reported) or a value.
  struct Field {
    bool present = false;
    std::optional<int64_t> value;
  };
  struct Fields {
    Place at;
    std::string phase, name, category, bind, id;
    Field ts, dur, pid, tid;
    bool has_id = false;
    bool process_id = false;  // the id counts within its process
    bool hex_or_integer_id = false;
    bool has_args = false;
    std::optional<Place> bad_series;  // the first arg that is no number stands there
    size_t n_series = 0;
  };

  void read_field(const std::string& key, Fields& event);
  Field read_time(const char* key);
  Field read_integer(const char* key);
  void read_id(Fields& event);
  void read_scoped_id(Fields& event);
  void read_args(Fields& event);
  void read_text(const char* key, std::string& out);

  void judge(Fields& event);
  bool has_time(const Fields& event);
  bool has_thread(const Fields& event);
  void judge_slice(const Fields& event);
  void judge_begin_end(const Fields& event);
  void judge_counter(const Fields& event);
  void judge_request(const Fields& event);
  void judge_flow(const Fields& event);
  void judge_metadata(const Fields& event);
  void missing(const Fields& event, const char* what);

  JsonReader& in_;
  FindingList& findings_;
  TrackCheck& tracks_;
  CheckReport& report_;
  bool saw_kernel_ = false;
};

}  // namespace tenon::profiler
