// The tables of row kernels that the machine can run.
#pragma once

#include <string>
#include <vector>

#include "kernels.h"
#include "support/component.h"
#include "support/weight_rows.h"
#include "tenon/abi/device.h"

namespace tenon::test {

struct NamedTable {
  std::string name;
  const sdk::cpu::KernelTable* kernels;
};
inline std::vector<NamedTable> gguf_tables() {
  std::vector<NamedTable> all{{"scalar", &gguf::kScalarKernels}};
  if ((machine_isa() & TENON_ISA_AVX2) != 0) all.push_back({"avx2", &gguf::kAvx2Kernels});
  if ((machine_isa() & TENON_ISA_AVX512) != 0) all.push_back({"avx512", &gguf::kAvx512Kernels});
  return all;
}

}  // namespace tenon::test
