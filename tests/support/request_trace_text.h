// This is a trace of four requests in two slots, as Tenon writes it, with round times. The second one loses its pages
// to the first, the third finds nothing in the cache and waits, the fourth still waits at the end.
#pragma once

#include <initializer_list>
#include <string>

namespace tenon::test {

inline std::string request_trace_text() {
  std::string text = R"({"traceEvents":[{"ph":"M","pid":2,"name":"process_name","args":{"name":"requests"}})";
  for (const char* slot : {"0", "1"}) {
    text += std::string(R"(,{"ph":"M","pid":2,"tid":10)") + std::to_string(slot[0] - '0' + 1) +
            R"(,"name":"thread_name","args":{"name":"slot )" + slot + R"("}})";
  }
  struct Event {
    const char *category, *name;
    int tid;
    int begin_ms, end_ms;  // kNoEnd: a moment
    const char* args;      // members of a JSON object
  };
  constexpr int kQueue = 1, kSlot0 = 101, kSlot1 = 102, kNoEnd = -1;
  const auto add = [&](const Event& e) {
    const bool moment = e.end_ms == kNoEnd;
    text += std::string(R"(,{"ph":")") + (moment ? "i" : "X") + R"(","pid":2,"tid":)" + std::to_string(e.tid) +
            R"(,"ts":)" + std::to_string(1000 * e.begin_ms);
    text += moment ? R"(,"s":"t")" : R"(,"dur":)" + std::to_string(1000 * (e.end_ms - e.begin_ms));
    text += std::string(R"(,"cat":")") + e.category + R"(","name":")" + e.name + R"(","args":{)" + e.args + "}}\n";
  };
  add({"request_queue", "req 1", kQueue, 0, 0, R"("request":1,"prompt":32,"priority":0,"waited_us":0)"});
  add({"request", "req 1", kSlot0, 0, 100,
       R"("request":1,"prompt":32,"tokens":32,"cached":0,"first_step":0,"last_step":9,"generated":10,"end":"length")"});
  add({"request_part", "prompt", kSlot0, 1, 10, R"("request":1,"step":0,"rows":32,"from":0)"});
  add({"request_part", "first token", kSlot0, 10, kNoEnd, R"("request":1,"step":0)"});
  add({"request_part", "decode", kSlot0, 10, 100, R"("request":1,"first_step":1,"last_step":9,"tokens":9)"});
  add({"request_queue", "req 2", kQueue + 1, 0, 0, R"("request":2,"prompt":40,"priority":0,"waited_us":0)"});
  add({"request", "req 2", kSlot1, 0, 30,
       R"("request":2,"prompt":40,"tokens":40,"cached":16,"first_step":0,"last_step":2,"generated":3,"end":"pre-empted",)"
       R"("lost":"pages","taker":1)"});
  add({"request_part", "prompt", kSlot1, 1, 10, R"("request":2,"step":0,"rows":24,"from":16)"});
  add({"request_part", "first token", kSlot1, 10, kNoEnd, R"("request":2,"step":0)"});
  add({"request_part", "decode", kSlot1, 10, 30, R"("request":2,"first_step":1,"last_step":2,"tokens":2)"});
  add({"request_queue", "req 2", kQueue + 1, 30, 100,
       R"("request":2,"prompt":40,"priority":0,"after":"pre-emption","waited_us":70000)"});
  add({"request", "req 2", kSlot0, 100, 130,
       R"("request":2,"prompt":40,"tokens":43,"cached":32,"first_step":10,"last_step":12,"generated":6,"end":"length")"});
  add({"request_part", "prompt", kSlot0, 100, 110, R"("request":2,"step":10,"rows":11,"from":32)"});
  add({"request_part", "decode", kSlot0, 110, 130, R"("request":2,"first_step":11,"last_step":12,"tokens":2)"});
  add({"request_queue", "req 3", kQueue, 20, 40, R"("request":3,"prompt":8,"priority":2,"waited_us":35000)"});
  add({"request", "req 3", kSlot1, 40, 45,
       R"("request":3,"prompt":8,"tokens":8,"cached":0,"first_step":4,"last_step":4,"generated":1,"end":"length")"});
  add({"request_part", "prompt", kSlot1, 41, 45, R"("request":3,"step":4,"rows":8,"from":0)"});
  add({"request_part", "first token", kSlot1, 45, kNoEnd, R"("request":3,"step":4)"});
  add({"request_queue", "req 4", kQueue, 120, 131,
       R"("request":4,"prompt":9,"priority":0,"open_at_end":1,"waited_us":11000)"});
  for (int step = 0; step < 13; ++step) {
    text += R"(,{"ph":"X","pid":1,"tid":7,"ts":)" + std::to_string(10'000 * step) +
            R"(,"dur":9000,"cat":"user_annotation","name":"ProfilerStep#)" + std::to_string(step) +
            R"(","args":{"phase":"decode","step":)" + std::to_string(step) + "}}\n";
  }
  return text + "]}";
}

}  // namespace tenon::test
