#include "../int8_rows/cpu_scheme.h"
#include "schema.h"

namespace tenon::int8dq {

class Int8dq : public int8_rows::CpuScheme<Int8dq, Schema> {
 public:
  using CpuScheme::CpuScheme;
};

}  // namespace tenon::int8dq

TENON_PLUGIN(tenon::int8dq::Int8dq);
