#include "../int8_rows/cuda_scheme.cuh"
#include "schema.h"

namespace tenon::int8dq {

class Int8dq : public int8_rows::CudaScheme<Int8dq, Schema> {
 public:
  using CudaScheme::CudaScheme;
};

}  // namespace tenon::int8dq

TENON_PLUGIN(tenon::int8dq::Int8dq);
