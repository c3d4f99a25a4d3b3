#include "../int8_rows/outliers.h"
#include "../int8_rows/published_cpu.h"
#include "../published/scheme.h"
#include "rounded.h"
#include "schema.h"

namespace tenon::bitsandbytes {
namespace {

class RoundedRows
    : public OutlierScheme<RoundedRows, int8_rows::PublishedCpuScheme<RoundedRows, RoundedSchema, RoundedMatrix>> {
 public:
  RoundedRows(const sdk::Params& params, const sdk::Env& env)
      : OutlierScheme(params, env), threads_(env.device().units) {}

  static tenon_tid without_outliers(const Site& site, float threshold, const tenon_linear_call& call,
                                    sdk::Recorder& rec) {
    return int8_rows::record_without_outliers(site, threshold, call, rec);
  }
  void outliers(const Site& site, float threshold, const tenon_linear_call& call, sdk::Recorder& rec) const {
    int8_rows::record_outliers(site, {threshold, threads_}, call, rec);
  }

 private:
  uint32_t threads_;
};
using Plain = published::PublishedScheme<Schema, published::HeldBooks>;

}  // namespace
}  // namespace tenon::bitsandbytes

using BitsAndBytes = tenon::published::RoundingScheme<tenon::bitsandbytes::Schema, tenon::bitsandbytes::Choice,
                                                      tenon::bitsandbytes::Plain, tenon::bitsandbytes::RoundedRows>;
TENON_PLUGIN(BitsAndBytes);
