// What `tenon bench` measured at one point of its sweep, and how it is printed.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bandwidth.h"
#include "op_report.h"
#include "report.h"

namespace tenon::app {

struct BenchPoint {
  uint32_t prompt_tokens = 0, new_tokens = 0, batch = 0;
  uint32_t threads = 0;  // 0 = as configured
  uint32_t number = 0;   // from 1 on among several; 0 = the only one
};

struct Spread {
  double median = 0, least = 0, most = 0;
};
Spread spread_of(std::vector<double> values);

struct BenchRow {
  BenchPoint point = {};
  std::string error = {};                       // if not empty, what follows means nothing
  Spread prefill = {}, decode = {}, gbps = {};  // tokens a second, tokens a second, 1e9 bytes a second
  Bandwidth bandwidth = {};
  MemoryUse memory = {};
  uint64_t weight_bytes = 0;           // of the matrices that a step reads
  uint64_t drafted = 0, accepted = 0;  // of the last run
  uint64_t reused = 0;                 // tokens of its prompts that the cache had from the run before
  std::optional<OpReport> ops = {};    // if asked for
  std::string hash = {}, line = {};    // of the output of all sequences; what measures the same again

  double share() const;  // of the read bandwidth
};

inline constexpr const char* kWeightBytesMeaning =
    "bytes of the matrices that a step reads: the head included, an embedding that is only looked up not";

class BenchOutput {
 public:
  virtual ~BenchOutput() = default;
  virtual void row(const BenchRow& row) = 0;
  virtual void end() = 0;
};
struct BenchHeader {
  std::string model;
  uint32_t warmups = 0, runs = 0;
  bool ops = false;  // rows have a report of the ops
};
// format: "table", "csv" or "json". Rows are printed as they come, json at the end. The file outlives the output.
std::unique_ptr<BenchOutput> make_bench_output(const std::string& format, std::FILE* file, const BenchHeader& header);

}  // namespace tenon::app
