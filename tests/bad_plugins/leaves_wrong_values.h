// This processor's candidates have the right form and, in a step, wrong values; all devices record the same.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>

#include "tenon/sdk/sampler.h"

namespace tenon::bad {

struct LeavesWrongValues : sdk::Sampler<LeavesWrongValues> {
  static constexpr const char* kName = "leaves_wrong_values";
  static constexpr const char* kDoc = "Leaves wrong candidates in a step.";
  static constexpr auto kParams =
      sdk::params(sdk::text({.name = "what",
                             .doc = "What is wrong.",
                             .value = "nothing",
                             .choices = "nothing|id|negative|many|huge|none|less|out|dense_out|nan|dense_nan"}));
  static constexpr uint32_t kInForms = TENON_DENSE;
  static constexpr uint32_t kCap = 4;
  struct Record {
    int32_t none;
  };
  struct Args {
    int32_t id, count;
    float logit;
    uint32_t width, rows;
  };
  enum Operand { kLogits, kId, kCount };  // the last two of SPARSE

  LeavesWrongValues(const sdk::Params& params, const sdk::Env&) : what_(params.text("what")) {}

  Record encode(const sdk::Params&) const { return {}; }
  void record_apply(tenon_candidates& c, const tenon_sampling&, sdk::Recorder& r) {
    const int64_t rows = r.bounds().out_rows;
    Args args{.id = 3, .count = 2, .logit = 1, .width = kCap, .rows = r.bounds().out_rows};
    if (what_ == "id") args.id = static_cast<int32_t>(c.vocab);
    if (what_ == "negative") args.id = -1;
    if (what_ == "many") args.count = kCap + 1;
    if (what_ == "huge") args.count = 1 << 30;
    if (what_ == "none") args.count = 0;
    if (what_ == "less") args.count = -1;
    if (what_ == "out" || what_ == "dense_out") args.logit = -std::numeric_limits<float>::infinity();
    if (what_ == "nan" || what_ == "dense_nan") args.logit = std::numeric_limits<float>::quiet_NaN();
    const bool dense = what_.starts_with("dense");
    if (dense) args.width = c.vocab;
    c.logits = r.temp(sdk::tensor(TENON_F32, {rows, args.width}));
    if (!dense) {
      c.form = TENON_SPARSE;
      c.cap = kCap;
      c.id = r.temp(sdk::tensor(TENON_I32, {rows, kCap}));
      c.count = r.temp(sdk::tensor(TENON_I32, {rows}));
    }
    const tenon_operand operands[] = {
        {c.logits, TENON_WRITE}, {dense ? c.logits : c.id, TENON_WRITE}, {dense ? c.logits : c.count, TENON_WRITE}};
    emit(r, operands, args);
  }

 private:
  // Emits the device's op that leaves args in every row.
  static void emit(sdk::Recorder& r, std::span<const tenon_operand> operands, const Args& args);

  std::string what_;
};

}  // namespace tenon::bad
