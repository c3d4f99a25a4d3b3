// This processor leaves what the next sampler cannot work on, each time otherwise.
#include <algorithm>
#include <limits>

#include "tenon/sdk/sampler.h"

namespace tenon::bad {

struct LeavesWrong : sdk::Sampler<LeavesWrong> {
  static constexpr const char* kName = "leaves_wrong";
  static constexpr const char* kDoc = "Leaves wrong candidates.";
  static constexpr auto kParams =
      sdk::params(sdk::text({.name = "what",
                             .doc = "What is wrong.",
                             .value = "form",
                             .choices = "form|cap|no_tensor|format|shape|unwritten|input|malformed|nan|infinity"}));
  static constexpr uint32_t kInForms = TENON_DENSE;
  struct Record {
    int32_t none;
  };
  struct Args {
    uint32_t none;
  };
  struct OneArgs {
    uint32_t vocab;
    float value;
  };

  LeavesWrong(const sdk::Params& params, const sdk::Env&) : what_(params.text("what")) {}

  Record encode(const sdk::Params&) const { return {}; }
  void record_apply(tenon_candidates& c, const tenon_sampling&, sdk::Recorder& r) {
    const int64_t rows = r.bounds().out_rows, vocab = c.vocab;
    if (what_ == "form") c.form = 7;
    if (what_ == "cap") {
      c.form = TENON_SPARSE;
      c.cap = c.vocab + 1;
    }
    if (what_ == "no_tensor") c.logits = 0;
    if (what_ == "format") c.logits = written(r, sdk::tensor(TENON_F16, {rows, vocab}));
    if (what_ == "shape") c.logits = written(r, sdk::tensor(TENON_F32, {rows, vocab - 1}));
    if (what_ == "unwritten") c.logits = r.temp(sdk::tensor(TENON_F32, {rows, vocab}));
    if (what_ == "input") write(r, c.logits);
    if (what_ == "malformed") c.logits = r.temp(sdk::tensor(TENON_F32, {rows, 0}));
    if (what_ == "nan") c.logits = with_one(r, c, std::numeric_limits<float>::quiet_NaN());
    if (what_ == "infinity") c.logits = with_one(r, c, std::numeric_limits<float>::infinity());
  }

 private:
  static void nothing(const Args&, const sdk::Part&) {}
  static void write(sdk::Recorder& r, tenon_tid id) {
    const tenon_operand operands[] = {{id, TENON_WRITE}};
    r.emit<&nothing>({.name = "write", .operands = operands, .chunks = {1}}, Args{});
  }
  static tenon_tid written(sdk::Recorder& r, const tenon_tensor& t) {
    const tenon_tid id = r.temp(t);
    write(r, id);
    return id;
  }

  // Copies the logits, but for one of each row.
  static void copy_but_one(const OneArgs& a, const sdk::Part& part) {
    for (uint32_t row = part.begin(); row < part.end(); ++row) {
      const float* from = part.ptr<const float>(0) + size_t{row} * a.vocab;
      float* to = part.ptr<float>(1) + size_t{row} * a.vocab;
      std::copy(from, from + a.vocab, to);
      to[5] = a.value;
    }
  }
  static tenon_tid with_one(sdk::Recorder& r, const tenon_candidates& c, float value) {
    const uint32_t rows = r.bounds().out_rows;
    const tenon_tid y = r.temp(sdk::tensor(TENON_F32, {rows, c.vocab}));
    const tenon_operand operands[] = {{c.logits, TENON_READ}, {y, TENON_WRITE}};
    r.emit<&copy_but_one>({.name = "copy", .operands = operands, .chunks = {rows}}, OneArgs{c.vocab, value});
    return y;
  }

  std::string what_;
};

}  // namespace tenon::bad

using tenon::bad::LeavesWrong;
TENON_PLUGIN(LeavesWrong);
