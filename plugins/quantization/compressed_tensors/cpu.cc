#include "../int8_rows/published_cpu.h"
#include "../published/scheme.h"
#include "rounded.h"
#include "schema.h"

namespace tenon::compressed_tensors {
namespace {

struct RoundedRows : int8_rows::PublishedCpuScheme<RoundedRows, RoundedSchema, RoundedMatrix> {
  using PublishedCpuScheme::PublishedCpuScheme;
};
using Plain = published::PublishedScheme<Schema, published::HeldIntegers>;

}  // namespace
}  // namespace tenon::compressed_tensors

using CompressedTensors =
    tenon::published::RoundingScheme<tenon::compressed_tensors::Schema, tenon::compressed_tensors::Choice,
                                     tenon::compressed_tensors::Plain, tenon::compressed_tensors::RoundedRows>;
TENON_PLUGIN(CompressedTensors);
