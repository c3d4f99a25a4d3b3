// This writes what modules leave as .npy files (numpy's format 1.0). A tensor is looked for by its module's path in the
// first step that counts. A file that cannot be written is told when the run has ended, in finish().
#include "tensor_dump.h"

#include <spdlog/spdlog.h>

#include <bit>
#include <cstring>
#include <utility>

#include "output_path.h"
#include "tenon/core/atomic_file.h"
#include "tenon/core/error.h"

namespace tenon::app {
namespace {

// Makes "layers.3.mlp.down" of "mlp.down@3"; what has no @ is a whole path.
std::string path_of(const std::string& tensor) {
  const size_t at = tensor.rfind('@');
  if (at == std::string::npos) return tensor;
  const std::string layer = tensor.substr(at + 1);
  if (at == 0 || layer.empty() || layer.find_first_not_of("0123456789") != std::string::npos) {
    throw Error(ErrorCode::kUsage, "--dump-tensor " + tensor +
                                       ": expected PATH@LAYER, such as mlp.down@3, or a whole path, such as lm_head");
  }
  return "layers." + layer + '.' + tensor.substr(0, at);
}

void write_file(const std::filesystem::path& path, const std::string& text) {
  AtomicFile file(path);
  std::error_code error = file.write_at(std::as_bytes(std::span(text)), 0);
  if (!error) error = file.commit();
  if (error) throw Error(ErrorCode::kIo, {path.string()}, "cannot be written: " + error.message());
}

}  // namespace

void DumpArgs::add_to(CLI::App& command) {
  command
      .add_option("--dump-tensor", tensors,
                  "Write a module's result, PATH@LAYER or a whole path, to a .npy file (repeatable); steps then run op "
                  "by op")
      ->allow_extra_args(false);
  command.add_option("--dump-step", step, "Of the steps that compute it, the one whose result is written")
      ->capture_default_str();
  command.add_option("--dump-folder", folder, "Where the .npy files go")->default_str(".");
}

std::string npy_text(uint32_t rows, uint32_t columns, std::span<const float> values) {
  static_assert(std::endian::native == std::endian::little);
  constexpr size_t kLead = 10, kAlignment = 64;  // bytes before the header's text; where the data begins
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + std::to_string(rows) + ", " +
                       std::to_string(columns) + "), }";
  header.append(kAlignment - 1 - (kLead + header.size()) % kAlignment, ' ') += '\n';
  std::string text("\x93NUMPY\x01\x00", 8);
  text += static_cast<char>(header.size() & 0xffU);
  text += static_cast<char>(header.size() >> 8U);
  text += header;
  const size_t data = text.size();
  text.resize(data + values.size_bytes());
  if (!values.empty()) std::memcpy(text.data() + data, values.data(), values.size_bytes());
  return text;
}

TensorDump::TensorDump(const DumpArgs& args, bool force) : step_(args.step) {
  for (const std::string& tensor : args.tensors) {
    const std::string path = path_of(tensor);
    const std::filesystem::path file = args.folder / (path + ".npy");
    check_output(file, {}, force);
    wanted_[path].file = file;
  }
}

void TensorDump::attach(Pipeline& pipeline) {
  if (wanted_.empty()) return;
  std::vector<std::string> paths;
  for (const auto& [path, wanted] : wanted_) paths.push_back(path);
  pipeline.look_at(std::move(paths), [this](const Pipeline::ModuleResult& result) {
    try {
      take(result);
    } catch (...) {
      if (!problem_) problem_ = std::current_exception();
    }
  });
}

void TensorDump::take(const Pipeline::ModuleResult& result) {
  Wanted& wanted = wanted_.find(result.path)->second;
  if (wanted.seen++ != step_) return;
  write_file(wanted.file, npy_text(result.rows, result.columns, result.values));
  wanted.written = fmt::format("{}: ({}, {}), left by {} {}", wanted.file.string(), result.rows, result.columns,
                               result.component, result.op);
}

void TensorDump::finish() const {
  if (problem_) std::rethrow_exception(problem_);
  for (const auto& [path, wanted] : wanted_) {
    if (wanted.written.empty()) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("--dump-step {}: {} was computed in {} steps", step_, path, wanted.seen));
    }
    spdlog::info("{}", wanted.written);
  }
}

}  // namespace tenon::app
