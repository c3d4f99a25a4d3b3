// This makes a small trace of known content: two prompts' worth of steps on two threads, as Tenon writes them.
#pragma once

#include <string>

#include "tenon/profiler/trace_file.h"

namespace tenon::view {

struct Event {
  std::string name;
  const char* category;
  int tid;
  int begin_us, duration_us;
  std::string args = {};  // members of a JSON object
};
inline std::string event(const Event& e) {
  return R"({"ph":"X","pid":1,"tid":)" + std::to_string(e.tid) + R"(,"ts":)" + std::to_string(e.begin_us) +
         R"(,"dur":)" + std::to_string(e.duration_us) + R"(,"cat":")" + e.category + R"(","name":")" + e.name +
         R"(","args":{)" + e.args + "}},\n";
}

inline std::string op_args(const std::string& component, const std::string& op, int layer, int bytes) {
  return R"("component":")" + component + R"(","op":")" + op + '"' +
         (layer < 0 ? "" : R"(,"layer":)" + std::to_string(layer)) + R"(,"bytes_read":)" + std::to_string(bytes) +
         R"(,"bytes_written":0,"flops":0)";
}

// Makes a prefill step of 1000 us and `decodes` decode steps of 100 us, 10 us between steps. A decode step has two
// layers of attention (10 us) and a GEMV (20 us, 40 kB), then the sampler (5 us); 5 us are the host's at its end, the
// rest, 30 us, gaps. Step 3 samples for 50 us longer.
inline std::string step_events(int decodes, int gemv_us = 20) {
  std::string text = event({"ProfilerStep#0", "user_annotation", 7, 0, 1000,
                            R"("phase":"prefill","n_ctx_tok":8,"n_gen_tok":0,"tokens":"A")"});
  text += event({"layers.0.mlp/gemm", "cpu_op", 7, 0, 900, op_args("quantization.gguf", "gemm", 0, 40000)});
  int at = 1010;
  for (int i = 1; i <= decodes; ++i) {
    const int slow = i == 3 ? 50 : 0;
    text += event({"ProfilerStep#" + std::to_string(i), "user_annotation", 7, at, 100 + slow,
                   R"("phase":"decode","n_ctx_tok":0,"n_gen_tok":1,"drafted":0,"accepted":0,"tokens":" w)" +
                       std::to_string(i) + '"'});
    for (int tid : {7, 8}) {
      for (int layer = 0; layer < 2; ++layer) {
        const std::string path = "layers." + std::to_string(layer);
        text += event({path + ".attention", "cpu_op", tid, at + 40 * layer, 10,
                       op_args("attention.flash", "attention", layer, 1000)});
        text += event({path + ".mlp", "cpu_op", tid, at + 40 * layer + 15, gemv_us,
                       op_args("quantization.gguf", "gemv", layer, 40000)});
      }
    }
    text += event({"sampler", "cpu_op", 7, at + 90, 5 + slow, op_args("sampler.greedy", "choose", -1, 100)});
    at += 110 + slow;
  }
  return text;
}

inline profiler::TraceFile made_trace(int decodes = 8, int gemv_us = 20,
                                      const std::string& metadata = R"("read_bandwidth_gbps":4)") {
  std::string text = R"({"traceEvents":[)" + step_events(decodes, gemv_us);
  text.resize(text.size() - 2);
  return profiler::read_trace_bytes(text + R"(],"metadata":{)" + metadata + "}}", "made.json");
}

}  // namespace tenon::view
