// A processor that leaves what the next sampler cannot work on, each time otherwise.
#include "tenon/sdk/sampler.h"

namespace tenon::bad {

struct LeavesWrong : sdk::Sampler<LeavesWrong> {
  static constexpr const char* kName = "leaves_wrong";
  static constexpr const char* kDoc = "Leaves wrong candidates.";
  static constexpr auto kParams =
      sdk::params(sdk::text({.name = "what",
                             .doc = "What is wrong.",
                             .value = "form",
                             .choices = "form|cap|no_tensor|format|shape|unwritten|input|malformed"}));
  static constexpr uint32_t kInForms = TENON_DENSE;
  struct Record {
    int32_t none;
  };
  struct Args {
    uint32_t none;
  };

  LeavesWrong(const sdk::Params& params, const sdk::Env&) : what_(params.text("what")) {}

  Record encode(const sdk::Params&) const { return {}; }
  void record_apply(tenon_candidates& c, const tenon_sampling&, sdk::Recorder& r) {
    const int64_t rows = r.bounds().out_rows, vocab = c.vocab;
    if (what_ == "form") c.form = 7;
    if (what_ == "cap") c.form = TENON_SPARSE, c.cap = c.vocab + 1;
    if (what_ == "no_tensor") c.logits = 0;
    if (what_ == "format") c.logits = written(r, sdk::tensor(TENON_F16, {rows, vocab}));
    if (what_ == "shape") c.logits = written(r, sdk::tensor(TENON_F32, {rows, vocab - 1}));
    if (what_ == "unwritten") c.logits = r.temp(sdk::tensor(TENON_F32, {rows, vocab}));
    if (what_ == "input") write(r, c.logits);
    if (what_ == "malformed") c.logits = r.temp(sdk::tensor(TENON_F32, {rows, 0}));
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

  std::string what_;
};

}  // namespace tenon::bad

using tenon::bad::LeavesWrong;
TENON_PLUGIN(LeavesWrong);
