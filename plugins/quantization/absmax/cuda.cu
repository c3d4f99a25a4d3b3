#include "../int8_rows/cuda_scheme.cuh"
#include "schema.h"

namespace tenon::absmax {

class Absmax : public int8_rows::CudaScheme<Absmax, Schema> {
 public:
  using CudaScheme::CudaScheme;
};

}  // namespace tenon::absmax

TENON_PLUGIN(tenon::absmax::Absmax);
