// The slices are placed in the order of their begins: each goes to the first track of its stream, wait or thread that
// is free by then, or to a new one beside it, up to kMaxOverlaps. Spans over layers nest, so one track is enough for
// them.
#include "gpu_tracks.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace tenon::profiler {
namespace {

using Track = GpuSlice::Track;

constexpr int kEngine = 1, kOverheadProcess = 4, kFirstGpu = 100, kFirstLayers = 200;
constexpr int64_t kFirstStream = 1000, kFirstWait = 500000, kFirstOverlap = 600000, kFirstCall = 10'000'000;
constexpr int64_t kOverheadTid = 3, kAllStreams = 99999;
constexpr size_t kMaxOverlaps = 16;

// A stream, wait or thread has a first track, and those for what overlaps.
struct Lanes {
  std::vector<size_t> tracks;
  std::vector<int64_t> free_from;
};

class Placer {
 public:
  explicit Placer(const std::function<std::string(uint32_t)>& thread_name) : thread_name_(thread_name) {}

  void add(const GpuSlice& slice) {
    Lanes& lanes = lanes_[{slice.track, slice.device, slice.number}];
    const bool nests = slice.track == Track::kLayers;
    const auto lane = static_cast<size_t>(
        std::ranges::find_if(lanes.free_from, [&](int64_t free) { return nests || free <= slice.begin_ns; }) -
        lanes.free_from.begin());
    if (lane == kMaxOverlaps) {
      ++plan_.left_out;
      return;
    }
    if (lane == lanes.tracks.size()) {
      lanes.tracks.push_back(add_track(slice, lane));
      lanes.free_from.push_back(0);
    }
    lanes.free_from[lane] = slice.end_ns;
    plan_.placed.push_back({&slice, lanes.tracks[lane]});
  }

  GpuTrackPlan take() { return std::move(plan_); }

 private:
  size_t add_process(const GpuSlice& slice) {
    const auto device = static_cast<int>(slice.device);
    const std::string gpu = "GPU " + std::to_string(device);
    GpuTrackPlan::Process process;
    switch (slice.track) {
      case Track::kStream:
      case Track::kWaits:
        process = {kFirstGpu + device, gpu, 10 + device};
        break;
      case Track::kLayers:
        process = {kFirstLayers + device, "layers of " + gpu, 10 + device};
        break;
      case Track::kCalls:
        process = {kEngine, "engine", 0};
        break;
      case Track::kOverhead:
        process = {kOverheadProcess, "overhead", 1000};
        break;
    }
    const auto known = std::ranges::find(plan_.processes, process.pid, &GpuTrackPlan::Process::pid);
    const auto index = static_cast<size_t>(known - plan_.processes.begin());
    if (known == plan_.processes.end()) plan_.processes.push_back(std::move(process));
    return index;
  }

  size_t add_track(const GpuSlice& slice, size_t lane) {
    const bool all = slice.number == GpuActivity::kNoStream;
    const int64_t number = all ? kAllStreams : int64_t{slice.number};
    const std::string stream = all ? "all streams" : "stream " + std::to_string(slice.number);
    const auto beside = static_cast<int64_t>(lane);
    GpuTrackPlan::Track track{add_process(slice), 0, "", number * int64_t{kMaxOverlaps} * 2 + beside};
    switch (slice.track) {
      case Track::kStream:
        track.tid = lane == 0 ? kFirstStream + number : kFirstOverlap + number * int64_t{kMaxOverlaps} + beside;
        track.name = stream;
        break;
      case Track::kWaits:
        track.tid =
            kFirstWait + number + (lane == 0 ? 0 : 10 * kFirstOverlap + number * int64_t{kMaxOverlaps} + beside);
        track.name = stream + ", waits";
        track.sort_index += kMaxOverlaps;
        break;
      case Track::kLayers:
        track.tid = 1;
        track.name = "steps and layers";
        break;
      case Track::kCalls:
        track.tid = (kFirstCall + number) * (lane == 0 ? 1 : beside + 1);
        track.name = "CUDA calls of " + thread_name_(slice.number);
        track.sort_index = kFirstCall + number;
        break;
      case Track::kOverhead:
        track.tid = kOverheadTid + beside;
        track.name = "CUPTI and CUDA";
        break;
    }
    if (lane > 0) track.name += ", overlapping";
    plan_.tracks.push_back(std::move(track));
    return plan_.tracks.size() - 1;
  }

  const std::function<std::string(uint32_t)>& thread_name_;
  std::map<std::tuple<Track, uint32_t, uint32_t>, Lanes> lanes_;
  GpuTrackPlan plan_;
};

}  // namespace

GpuTrackPlan place_slices(std::span<const GpuSlice> slices, int64_t begin_ns,
                          const std::function<std::string(uint32_t)>& thread_name) {
  std::vector<const GpuSlice*> sorted;
  uint64_t left_out = 0;
  for (const GpuSlice& slice : slices) {
    const bool usable = slice.begin_ns >= begin_ns && slice.end_ns >= slice.begin_ns;
    if (usable) {
      sorted.push_back(&slice);
    } else if (slice.track == Track::kStream) {  // calls of before the trace are none of its business
      ++left_out;
    }
  }
  std::ranges::stable_sort(sorted, {}, &GpuSlice::begin_ns);
  Placer placer(thread_name);
  for (const GpuSlice* slice : sorted) placer.add(*slice);
  GpuTrackPlan plan = placer.take();
  plan.left_out += left_out;
  return plan;
}

}  // namespace tenon::profiler
