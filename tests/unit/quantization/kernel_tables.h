// These are the tables of row kernels that the machine can run.
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
  std::vector<NamedTable> all{{"scalar", &gguf::scalar::kKernels}};
  if ((machine_isa() & TENON_ISA_AVX2) != 0) all.push_back({"avx2", &gguf::avx2::kKernels});
  if ((machine_isa() & TENON_ISA_AVX512) != 0) all.push_back({"avx512", &gguf::avx512::kKernels});
  return all;
}

}  // namespace tenon::test
