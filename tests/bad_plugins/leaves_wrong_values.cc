// A processor whose candidates have the right form and, in a step, the wrong values.
#include <limits>

#include "tenon/sdk/sampler.h"

namespace tenon::bad {

struct LeavesWrongValues : sdk::Sampler<LeavesWrongValues> {
  static constexpr const char* kName = "leaves_wrong_values";
  static constexpr const char* kDoc = "Leaves wrong candidates in a step.";
  static constexpr auto kParams =
      sdk::params(sdk::text({.name = "what",
                             .doc = "What is wrong.",
                             .value = "nothing",
                             .choices = "nothing|id|negative|many|none|less|out|dense_out"}));
  static constexpr uint32_t kInForms = TENON_DENSE;
  static constexpr uint32_t kCap = 4;
  struct Record {
    int32_t none;
  };
  struct Args {
    int32_t id, count;
    float logit;
    uint32_t width;
  };

  LeavesWrongValues(const sdk::Params& params, const sdk::Env&) : what_(params.text("what")) {}

  Record encode(const sdk::Params&) const { return {}; }
  void record_apply(tenon_candidates& c, const tenon_sampling&, sdk::Recorder& r) {
    const int64_t rows = r.bounds().out_rows;
    Args args{.id = 3, .count = 2, .logit = 1, .width = kCap};
    if (what_ == "id") args.id = static_cast<int32_t>(c.vocab);
    if (what_ == "negative") args.id = -1;
    if (what_ == "many") args.count = kCap + 1;
    if (what_ == "none") args.count = 0;
    if (what_ == "less") args.count = -1;
    if (what_ == "out" || what_ == "dense_out") args.logit = -std::numeric_limits<float>::infinity();
    const bool dense = what_.starts_with("dense");
    if (dense) args.width = c.vocab;
    c.logits = r.temp(sdk::tensor(TENON_F32, {rows, args.width}));
    if (!dense) {
      c.form = TENON_SPARSE, c.cap = kCap;
      c.id = r.temp(sdk::tensor(TENON_I32, {rows, kCap})), c.count = r.temp(sdk::tensor(TENON_I32, {rows}));
    }
    const tenon_operand operands[] = {
        {c.logits, TENON_WRITE}, {dense ? c.logits : c.id, TENON_WRITE}, {dense ? c.logits : c.count, TENON_WRITE}};
    r.emit<&leave>({.name = "leave", .operands = operands, .chunks = {r.bounds().out_rows}}, args);
  }

 private:
  static void leave(const Args& a, const sdk::Part& part) {
    for (uint32_t row = part.begin(); row < part.end(); ++row) {
      for (uint32_t i = 0; i < a.width; ++i) part.ptr<float>(0)[size_t{row} * a.width + i] = a.logit;
      if (a.width != kCap) continue;
      for (uint32_t i = 0; i < kCap; ++i) part.ptr<int32_t>(1)[size_t{row} * kCap + i] = a.id;
      part.ptr<int32_t>(2)[row] = a.count;
    }
  }

  std::string what_;
};

}  // namespace tenon::bad

using tenon::bad::LeavesWrongValues;
TENON_PLUGIN(LeavesWrongValues);
