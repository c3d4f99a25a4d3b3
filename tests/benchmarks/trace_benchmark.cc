// This measures what a span costs the code that it measures. It may cost 50 ns when recorded, and 1 ns with the
// gate closed.
#include <benchmark/benchmark.h>

#include <array>
#include <filesystem>
#include <latch>
#include <thread>

#include "tenon/core/trace_sink.h"
#include "tenon/profiler/perfetto_writer.h"

namespace tenon::trace {
namespace {

class NullSink final : public Sink {
 public:
  void begin(const TimeBase&) override {}
  void origin(OriginId, const OriginInfo&) override {}
  void track(uint32_t, const TrackInfo&) override {}
  void event(const Event& event) override { benchmark::DoNotOptimize(event.end_ns); }
  Status drained(const Drain&) override { return {}; }
  Status finish(const Summary&) override { return {}; }
};

// The ring is emptied between batches, outside of the measured time, so that no span is a refused one.
constexpr uint32_t kRing = 1U << 16U;
const RecorderOptions kOptions{.ring_records = kRing, .drain_interval = std::chrono::milliseconds(0)};
constexpr int kBatch = 1 << 14;

void empty_loop(benchmark::State& state) {
  for (auto _ : state) {
    for (int i = 0; i < kBatch; ++i) benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * kBatch);
}
BENCHMARK(empty_loop);

void span_off(benchmark::State& state) {
  Track track;
  for (auto _ : state) {
    for (int i = 0; i < kBatch; ++i) {
      const Span span(track, 0);
      benchmark::ClobberMemory();
    }
  }
  state.SetItemsProcessed(state.iterations() * kBatch);
}
BENCHMARK(span_off);

template <typename RecordOne>
void on(benchmark::State& state, const RecordOne& record_one, RecorderOptions options = kOptions) {
  Recorder recorder(options, std::make_unique<NullSink>());
  const OriginId origin = recorder.add_origin(op_origin("layers.0.qkv", "quantization.none", "matmul", 0));
  Track& track = recorder.add_track("engine");
  for (auto _ : state) {
    for (int i = 0; i < kBatch; ++i) record_one(track, origin);
    state.PauseTiming();
    recorder.drain();
    state.ResumeTiming();
  }
  if (recorder.dropped() > 0) state.SkipWithError("spans were refused");
  state.SetItemsProcessed(state.iterations() * kBatch);
}

void plain_span(Track& track, OriginId origin) {
  const Span span(track, origin);
}
void span_with_costs(Track& track, OriginId origin) {
  Span span(track, origin);
  span.set({1, 2, 3});
}

void span_on(benchmark::State& state) {
  on(state, plain_span);
}
BENCHMARK(span_on);

void span_with_three_values_on(benchmark::State& state) {
  on(state, span_with_costs);
}
BENCHMARK(span_with_three_values_on);

// A step carries this: counts and the text of a token.
void span_with_text(Track& track, OriginId origin) {
  Span span(track, origin);
  span.set({1, 2, 3, 4, 5, 6, 7});
  span.set_text(" token");
}
void span_with_text_on(benchmark::State& state) {
  on(state, span_with_text);
}
BENCHMARK(span_with_text_on);

void span_on_without_tsc(benchmark::State& state) {
  RecorderOptions options = kOptions;
  options.clock = ClockSource::kMonotonic;
  on(state, plain_span, options);
}
BENCHMARK(span_on_without_tsc);

// A request's events are a chunk of its prompt, and its end with a text.
void request_event(Track& track, OriginId origin) {
  constexpr uint64_t kValues[] = {1, 2, 3, 4};
  track.request(RequestEvent::kPrompt, origin, 17, kValues);
}
void request_event_on(benchmark::State& state) {
  on(state, request_event);
}
BENCHMARK(request_event_on);

// Several threads record at once into their own rings.
void span_on_beside_others(benchmark::State& state) {
  static Recorder* recorder = nullptr;
  static OriginId origin = 0;
  if (state.thread_index() == 0) {
    recorder = new Recorder(kOptions, std::make_unique<NullSink>());
    origin = recorder->add_origin(section_origin("part"));
  }
  Track* track = nullptr;
  for (auto _ : state) {
    if (track == nullptr) track = &recorder->add_track("worker");
    for (int i = 0; i < kBatch; ++i) plain_span(*track, origin);
    state.PauseTiming();
    recorder->drain();
    state.ResumeTiming();
  }
  state.SetItemsProcessed(state.iterations() * kBatch);
  if (state.thread_index() == 0) delete recorder;
}
BENCHMARK(span_on_beside_others)->Threads(1)->Threads(2)->Threads(4)->Threads(16);

// This measures what a whole request costs the thread that writes: its wait, its slot,
// two chunks, its decoding and its moments.
void request_written(benchmark::State& state) {
  const std::string path = std::filesystem::temp_directory_path() / "tenon-requests.json";
  Recorder recorder(kOptions, profiler::make_perfetto_writer({.path = path}));
  const OriginId origin = recorder.add_origin(request_origin());
  Track& track = recorder.add_track("main");
  constexpr uint64_t kBatchOfRequests = 1000;
  uint64_t id = 0;
  for (auto _ : state) {
    state.PauseTiming();
    for (uint64_t i = 0; i < kBatchOfRequests; ++i, ++id) {
      const uint64_t arrived[] = {1000, 720, 0}, admitted[] = {id % 8, 720, 512}, chunk[] = {100, id, 104, 512};
      const uint64_t token[] = {id, 1}, ended[] = {id + 63, 64};
      track.request(RequestEvent::kArrived, origin, id, arrived);
      track.request(RequestEvent::kAdmitted, origin, id, admitted);
      for (int n = 0; n < 2; ++n) track.request(RequestEvent::kPrompt, origin, id, chunk);
      track.request(RequestEvent::kToken, origin, id, token);
      track.request(RequestEvent::kEnded, origin, id, ended, "length");
    }
    state.ResumeTiming();
    recorder.drain();
  }
  if (recorder.dropped() > 0 || !recorder.stop().ok()) state.SkipWithError("not all was written");
  state.SetItemsProcessed(static_cast<int64_t>(id));
  state.counters["bytes/request"] = static_cast<double>(std::filesystem::file_size(path)) / static_cast<double>(id);
  std::filesystem::remove(path);
}
BENCHMARK(request_written)->Iterations(100);

// This measures what an operation's span costs the thread that writes: from the ring into the file. There are two
// threads of 30 layers of 8 operations, as a small model has them.
void event_written(benchmark::State& state, const char* name) {
  constexpr size_t kLayers = 30, kOps = 8;
  const std::string path = std::filesystem::temp_directory_path() / name;
  profiler::PerfettoOptions options{.path = path, .read_gbps = [] { return 25.0; }};
  Recorder recorder(kOptions, profiler::make_perfetto_writer(std::move(options)));
  std::vector<OriginId> ops, layers;
  for (size_t layer = 0; layer < kLayers; ++layer) {
    layers.push_back(recorder.add_origin(section_origin("layer " + std::to_string(layer))));
    for (size_t op = 0; op < kOps; ++op) {
      ops.push_back(
          recorder.add_origin(op_origin("layers." + std::to_string(layer) + ".attention." + std::to_string(op),
                                        "quantization.gguf", "gemv", static_cast<int64_t>(layer))));
    }
  }
  std::array<Track*, 2> tracks = {&recorder.add_track("main"), &recorder.add_track("worker 1")};
  uint64_t events = 0, step = 0;
  for (auto _ : state) {
    state.PauseTiming();
    for (Track* track : tracks) {
      for (size_t layer = 0; layer < kLayers; ++layer) {
        const uint64_t begin = track->now();
        for (size_t op = 0; op < kOps; ++op) {
          // The bytes that attention reads grow from step to step; the others stay.
          const uint64_t values[] = {1'234'567 * (op + 1) + (op == 3 ? step * 96 : 0), 1536, 2'469'134 * (op + 1)};
          const uint64_t start = track->now();
          track->span(ops[layer * kOps + op], start, start + 30'000 + 997 * op, values);
        }
        track->span(layers[layer], begin, track->now() + 50'000);
        events += kOps + 1;
      }
    }
    ++step;
    state.ResumeTiming();
    recorder.drain();
  }
  if (recorder.dropped() > 0 || !recorder.stop().ok()) state.SkipWithError("not all was written");
  state.SetItemsProcessed(static_cast<int64_t>(events));
  state.counters["bytes/event"] = static_cast<double>(std::filesystem::file_size(path)) / static_cast<double>(events);
  std::filesystem::remove(path);
}
BENCHMARK_CAPTURE(event_written, json, "tenon-trace-benchmark.json")->Iterations(1000);
BENCHMARK_CAPTURE(event_written, json_gz, "tenon-trace-benchmark.json.gz")->Iterations(1000);

// Measures a span while the drain thread writes a gzipped trace beside it.
void span_on_while_written(benchmark::State& state) {
  const std::string path = (std::filesystem::temp_directory_path() / "tenon-trace-benchmark.json.gz").string();
  Recorder recorder({.ring_records = 1U << 18U}, profiler::make_perfetto_writer({.path = path}));
  const OriginId origin = recorder.add_origin(section_origin("part"));
  Track& track = recorder.add_track("engine");
  for (auto _ : state) {
    for (int i = 0; i < kBatch; ++i) plain_span(track, origin);
    state.PauseTiming();
    recorder.drain();
    state.ResumeTiming();
  }
  state.SetItemsProcessed(state.iterations() * kBatch);
  state.counters["dropped"] = static_cast<double>(recorder.dropped());
  if (!recorder.stop().ok()) state.SkipWithError("the trace was not written");
  std::filesystem::remove(path);
}
BENCHMARK(span_on_while_written);

}  // namespace
}  // namespace tenon::trace
