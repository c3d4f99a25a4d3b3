#include "../coded/cpu_scheme.h"
#include "../coded/packings.h"
#include "schema.h"

namespace tenon::fp6 {
namespace {

// Only AVX-512 looks 32 or 64 values up at once; elsewhere rows stay in f32.
sdk::cpu::Kernels kernels(sdk::cpu::Isa isa) {
  return sdk::cpu::KernelSets{&coded::scalar::kKernels,     &coded::avx2::kKernels,
                              &coded::avx512::kKernels,     nullptr,
                              &coded::avx512_vnni::kPacked, &coded::packing_of<Schema>}
      .of(isa);
}

}  // namespace

using Scheme = coded::CpuScheme<Schema, &kernels>;

}  // namespace tenon::fp6

TENON_PLUGIN(tenon::fp6::Scheme);
