// The analysis says which operations a trace holds, in which steps, and what each adds to its step. All views but the
// timeline start here.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/work.h"
#include "tenon/profiler/trace_file.h"

namespace tenon::view {

using profiler::kNoIndex;
using profiler::TraceFile;
using profiler::TraceSlice;

// These operations differ in their layer at most.
struct OpPath {
  std::string name;  // "layers.*.mlp.down/gemv"
  std::string component;
  Work work = Work::kOther;
};

struct OpEvent {
  uint32_t slice = 0;
  uint32_t step = kNoIndex;
  uint32_t path = 0;
  int32_t layer = -1;
  // Of slices of one track, which nest, this is the time that is not their children's. Of a kernel it goes from the
  // latest end of what is ahead to its own end. So the operations and the gaps of a step add up to the step.
  int64_t added_ns = 0;
  double bytes = 0;  // bytes read and written; 0 if the trace does not say
};

struct Step {
  uint32_t slice = 0;
  int64_t number = 0;
  int64_t begin_ns = 0;
  int64_t duration_ns = 0;    // if kernels are recorded, it is that on the GPU, which runs later than the host
  int64_t between_ns = 0;     // from its end to the begin of the next step
  std::string_view phase{};   // prefill, decode, verify; empty if the trace does not say
  std::string_view tokens{};  // it is the text that it gave; empty if the trace does not say
  int64_t n_ctx_tok = 0, n_gen_tok = 0, drafted = 0, accepted = 0;
  int64_t n_tokens = 0;                   // so many tokens came out of it
  std::array<int64_t, kWorks> by_work{};  // ns, kGap and kHost too; all 0 where no operation was recorded
  double bytes = 0;
  uint32_t first_op = 0, end_op = 0;

  bool decodes() const { return phase == "decode" || phase == "verify"; }
};

enum class OpSource : uint8_t { kKernels, kCpuOps, kAllSlices };

struct Analysis {
  OpSource source = OpSource::kAllSlices;
  std::vector<OpPath> paths;
  std::vector<OpEvent> ops;         // sorted by step and begin; those outside of steps come last
  std::vector<Step> steps;          // sorted by begin
  std::optional<double> peak_gbps;  // it is the measured memory bandwidth
  bool has_bytes = false, has_tokens = false;
};

Analysis analyse(const TraceFile& file);

// "layers.3.mlp.down/gemv" of an operation, whether its name says the operation or its argument "op" does; the name of
// any other slice.
std::string path_of(const TraceFile& file, const TraceSlice& slice);

// The phase says which steps are meant.
enum class Phase : uint8_t { kAll, kPrefill, kDecode };
bool is_in(const Step& step, Phase phase);
// Returns the indices of the steps that have operations.
std::vector<uint32_t> steps_of(const Analysis& analysis, Phase phase);
// Returns kDecode if there are such steps, else kAll.
Phase usual_phase(const Analysis& analysis);

}  // namespace tenon::view
