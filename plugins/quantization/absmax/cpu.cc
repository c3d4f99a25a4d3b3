#include "../int8_rows/cpu_scheme.h"
#include "schema.h"

namespace tenon::absmax {

class Absmax : public int8_rows::CpuScheme<Absmax, Schema> {
 public:
  using CpuScheme::CpuScheme;
};

}  // namespace tenon::absmax

TENON_PLUGIN(tenon::absmax::Absmax);
