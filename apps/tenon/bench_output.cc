// This prints the results of `tenon bench` as a table, as JSON or as CSV. A point that failed has a row with its error
// and no figures. Lines of CSV appear as points end, JSON when all have ended.
#include <spdlog/fmt/fmt.h>

#include <algorithm>

#include "bench.h"
#include "json_text.h"

namespace tenon::app {
namespace {

std::string spread_text(const Spread& s, const char* form) {
  if (s.most <= 0) return "-";
  return fmt::format(fmt::runtime(form), s.median, s.least, s.most);
}

class Table : public BenchOutput {
 public:
  Table(std::FILE* file, const BenchHeader& header) : file_(file) {
    fmt::print(file_,
               "model     {}\n"
               "runs      median (least to most) of {} after {} to warm up, ended by no end-of-text token\n"
               "prefill   prompt tokens of all sequences over the time of the steps that read them\n"
               "decode    tokens of all sequences and bytes of weights and cache over the time of the other steps\n"
               "weights   {}\n"
               "planned   peak of the plan; allocated: the device's high-water mark; resident: the process's since the "
               "point began\n\n",
               header.model, header.runs, header.warmups, kWeightBytesMeaning);
    fmt::print(file_, kRow, "prompt", "new", "batch", "thr", "prefill tok/s", "decode tok/s", "GB/s", "share",
               "weights", "planned", "allocated", "resident", "hash");
  }

  void row(const BenchRow& r) override {
    const BenchPoint& p = r.point;
    const std::string threads = p.threads > 0 ? std::to_string(p.threads) : "-";
    if (!r.error.empty()) {
      fmt::print(file_, "{:>6} {:>5} {:>5} {:>4}  failed: {}\n", p.prompt_tokens, p.new_tokens, p.batch, threads,
                 r.error);
    } else {
      fmt::print(file_, kRow, p.prompt_tokens, p.new_tokens, p.batch, threads,
                 spread_text(r.prefill, "{:.0f} ({:.0f} to {:.0f})"),
                 spread_text(r.decode, "{:.1f} ({:.1f} to {:.1f})"), fmt::format("{:.2f}", r.gbps.median),
                 fmt::format("{:.0f} %", 100 * r.share()), format_bytes(r.weight_bytes), format_bytes(r.memory.planned),
                 format_bytes(r.memory.allocated), format_bytes(r.memory.resident), r.hash);
      if (!r.scheduler.empty()) {
        fmt::print(file_, "       {} new tok/s of the whole run by scheduler.{}, prompts included\n",
                   spread_text(r.all, "{:.1f} ({:.1f} to {:.1f})"), r.scheduler);
      }
      if (r.reused > 0) {
        fmt::print(file_,
                   "       {} tokens of the prompts were in the cache from the run before and are not in the prefill; "
                   "--set kv_cache.reuse=false has all of them run\n",
                   r.reused);
      }
      lines_.push_back(r.line);
      if (r.ops) {
        ops_ += fmt::format("\nops of a step, prompt {}, new {}, batch {}, threads {}\n", p.prompt_tokens, p.new_tokens,
                            p.batch, threads);
        ops_ += op_table(*r.ops);
      }
      note_bandwidth(r.bandwidth);
    }
    std::fflush(file_);
  }

  void end() override {
    fmt::print(file_, "{}", ops_);
    for (const Bandwidth& b : bandwidths_) {
      if (!b.device.empty()) {
        fmt::print(file_, "\nread bandwidth of {}: {:.0f} GB/s, the best of several passes that only read, over {}",
                   b.device, b.bytes_per_second / 1e9, format_bytes(b.buffer));
        continue;
      }
      fmt::print(file_, "\nread bandwidth with {} threads: {:.2f} GB/s, the best of {} passes that only read, over {}",
                 b.threads, b.bytes_per_second / 1e9, b.passes, format_bytes(b.buffer));
    }
    if (!lines_.empty()) fmt::print(file_, "\n\nThe same again\n");
    for (const std::string& line : lines_) fmt::print(file_, "  {}\n", line);
  }

 private:
  static constexpr const char* kRow =
      "{:>6} {:>5} {:>5} {:>4}  {:>22}  {:>23}  {:>6}  {:>5}  {:>8}  {:>8}  {:>9}  {:>8}  {:>8}\n";

  void note_bandwidth(const Bandwidth& b) {
    const bool known = std::any_of(bandwidths_.begin(), bandwidths_.end(),
                                   [&](const Bandwidth& other) { return other.threads == b.threads; });
    if (!known) bandwidths_.push_back(b);
  }

  std::FILE* file_;
  std::string ops_;
  std::vector<std::string> lines_;
  std::vector<Bandwidth> bandwidths_;
};

boost::json::object as_json(const Spread& s) {
  return {{"median", s.median}, {"min", s.least}, {"max", s.most}};
}

boost::json::object as_json(const BenchRow& r) {
  boost::json::object out = {{"prompt_tokens", r.point.prompt_tokens},
                             {"new_tokens", r.point.new_tokens},
                             {"batch", r.point.batch},
                             {"threads", r.point.threads}};
  if (!r.error.empty()) {
    out["error"] = r.error;
    return out;
  }
  out["prefill_tok_per_s"] = as_json(r.prefill);
  out["decode_tok_per_s"] = as_json(r.decode);
  out["decode_gbps"] = as_json(r.gbps);
  out["new_tok_per_s"] = as_json(r.all);
  out["read_gbps"] = r.bandwidth.bytes_per_second / 1e9;
  out["read_buffer_bytes"] = r.bandwidth.buffer;
  out["bandwidth_share"] = r.share();
  out["step_weight_bytes"] = r.weight_bytes;
  out["memory"] = to_json(r.memory);
  out["drafted"] = r.drafted;
  out["accepted"] = r.accepted;
  out["reused"] = r.reused;
  if (r.ops) out["ops"] = to_json(*r.ops);
  out["hash"] = r.hash;
  out["line"] = r.line;
  return out;
}

class Json : public BenchOutput {
 public:
  Json(std::FILE* file, const BenchHeader& header) : file_(file) {
    all_ = {{"model", header.model},
            {"warmups", header.warmups},
            {"runs", header.runs},
            {"step_weight_bytes_meaning", kWeightBytesMeaning}};
  }
  void row(const BenchRow& row) override { points_.push_back(as_json(row)); }
  void end() override {
    all_["points"] = std::move(points_);
    fmt::print(file_, "{}\n", json_text(all_));
  }

 private:
  std::FILE* file_;
  boost::json::object all_;
  boost::json::array points_;
};

class Csv : public BenchOutput {
 public:
  Csv(std::FILE* file, const BenchHeader& header) : file_(file), model_(header.model), ops_(header.ops) {
    fmt::print(file_,
               "model,prompt_tokens,new_tokens,batch,threads,prefill_tok_per_s,prefill_min,prefill_max,"
               "decode_tok_per_s,decode_min,decode_max,decode_gbps,read_gbps,bandwidth_share,step_weight_bytes,"
               "planned_bytes,allocated_bytes,resident_bytes,drafted,accepted,hash,line,error{}{}\n",
               ops_ ? "," : "", ops_ ? kOpCsvHeader : "");
  }
  void row(const BenchRow& r) override {
    const std::string point = fmt::format("{},{},{},{},{},", csv_field(model_), r.point.prompt_tokens,
                                          r.point.new_tokens, r.point.batch, r.point.threads);
    fmt::print(file_, "{}", point);
    if (r.error.empty()) {
      fmt::print(file_, "{:.2f},{:.2f},{:.2f},{:.3f},{:.3f},{:.3f},{:.3f},{:.3f},{:.4f},{},{},{},{},{},{},{},{},",
                 r.prefill.median, r.prefill.least, r.prefill.most, r.decode.median, r.decode.least, r.decode.most,
                 r.gbps.median, r.bandwidth.bytes_per_second / 1e9, r.share(), r.weight_bytes, r.memory.planned,
                 r.memory.allocated, r.memory.resident, r.drafted, r.accepted, r.hash, csv_field(r.line));
    } else {
      fmt::print(file_, "{}{}", kNoFigures, csv_field(r.error));
    }
    if (ops_) fmt::print(file_, ",{}", op_csv_summary(r.ops.value_or(OpReport{})));
    fmt::print(file_, "\n");
    for (const std::string& line : op_csv_lines(r.ops.value_or(OpReport{}))) {
      fmt::print(file_, "{}{},{}\n", point, kNoFigures, line);
    }
    std::fflush(file_);
  }
  void end() override {}

 private:
  static constexpr const char* kNoFigures = ",,,,,,,,,,,,,,,,,";  // these are the commas between those of a point

  std::FILE* file_;
  std::string model_;
  bool ops_;
};

}  // namespace

Spread spread_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  const double median = values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
  return {median, values.front(), values.back()};
}

double BenchRow::share() const {
  return bandwidth.bytes_per_second > 0 ? gbps.median * 1e9 / bandwidth.bytes_per_second : 0;
}

std::unique_ptr<BenchOutput> make_bench_output(const std::string& format, std::FILE* file, const BenchHeader& header) {
  if (format == "csv") return std::make_unique<Csv>(file, header);
  if (format == "json") return std::make_unique<Json>(file, header);
  return std::make_unique<Table>(file, header);
}

}  // namespace tenon::app
