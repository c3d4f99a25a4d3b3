// --dump-tensor writes results of modules as .npy files.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tenon/core/pipeline.h"

namespace tenon::app {

struct DumpArgs {
  std::vector<std::string> tensors;  // "mlp.down@3", or a module's whole path
  uint64_t step = 0;                 // counts the steps in which a module leaves rows, from 0
  std::filesystem::path folder = ".";

  void add_to(CLI::App& command);
};

// Writes a matrix as a file of numpy's format 1.0: f32, little-endian, row by row.
std::string npy_text(uint32_t rows, uint32_t columns, std::span<const float> values);

// It outlives the steps that it looks at. Thread: one at a time.
class TensorDump {
 public:
  // Throws Error(kUsage) for a file that is there, unless `force` is given.
  TensorDump(const DumpArgs& args, bool force);
  // Is called before the first step. Throws Error(kUsage) for a path that has no result.
  void attach(Pipeline& pipeline);
  // Is called once the steps are done, and says what was written. Throws what went wrong with a file, and Error(kUsage)
  // where there were too few steps.
  void finish() const;

 private:
  struct Wanted {
    std::filesystem::path file;
    uint64_t seen = 0;    // in so many steps the module left rows
    std::string written;  // it says what is in the file; "" before it is there
  };
  void take(const Pipeline::ModuleResult& result);

  uint64_t step_;
  std::map<std::string, Wanted, std::less<>> wanted_;  // keyed by path
  std::exception_ptr problem_;
};

}  // namespace tenon::app
