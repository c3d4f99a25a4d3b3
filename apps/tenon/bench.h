// `tenon bench` measures this at one point of its sweep, and prints it.
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
#include "tenon/core/engine.h"

namespace tenon::app {

struct BenchPoint {
  uint32_t prompt_tokens = 0, new_tokens = 0, batch = 0;
  uint32_t threads = 0;  // 0 = as configured
  uint32_t number = 0;   // it counts from 1 if there are several; 0 = it is the only one
};

struct Spread {
  double median = 0, least = 0, most = 0;
};
Spread spread_of(std::vector<double> values);

struct BenchRow {
  BenchPoint point = {};
  std::string error = {};                       // if it is not empty, the rest means nothing
  std::string scheduler = {};                   // the one that the configuration states; "": the sequences run in step
  Spread prefill = {}, decode = {}, gbps = {};  // tokens a second, tokens a second, 1e9 bytes a second
  Spread all = {};                              // new tokens of all sequences a second of the whole run
  Bandwidth bandwidth = {};
  MemoryUse memory = {};
  uint64_t weight_bytes = 0;           // the matrices that a step reads have so many
  uint64_t drafted = 0, accepted = 0;  // in the last run
  uint64_t reused = 0;                 // the cache had so many tokens of its prompts from the run before
  std::optional<OpReport> ops = {};    // it is there if it was asked for
  std::string hash = {}, line = {};  // the hash of all sequences' output, and the command that measures the same again

  double share() const;  // the share of the read bandwidth
};

// Makes `sequences` prompts of `length` tokens each, whose ids are text: they
// are the same for every pipeline of a model.
std::vector<std::vector<int32_t>> make_prompts(const Engine& engine, uint32_t sequences, uint32_t length);

inline constexpr const char* kWeightBytesMeaning =
    "bytes of the matrices that a step reads: the head included, an embedding that is only looked up not, of experts "
    "as many as its rows can choose";

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
// The format is "table", "csv" or "json". Rows are printed as they come, json at the end. The file outlives the output.
std::unique_ptr<BenchOutput> make_bench_output(const std::string& format, std::FILE* file, const BenchHeader& header);

}  // namespace tenon::app
