#include "output_path.h"

#include <system_error>

#include "tenon/core/error.h"
#include "tenon/core/files.h"

namespace tenon::app {
namespace {

namespace fs = std::filesystem;

bool same_file(const fs::path& a, const fs::path& b) {
  std::error_code error;
  return fs::equivalent(a, b, error) && !error;
}

bool is_of(const fs::path& output, const fs::path& input) {
  std::error_code error;
  if (!fs::is_directory(input, error)) return same_file(output, input);
  for (const std::string& name : names_in_folder(input, error)) {
    if (same_file(output, input / name)) return true;
  }
  return false;
}

void refuse_inputs(const fs::path& output, std::span<const std::string> inputs) {
  for (const std::string& input : inputs) {
    if (input.empty() || !is_of(output, input)) continue;
    throw Error(ErrorCode::kUsage, {output.string(), 0, 0},
                "is read by this command (" + input + ") and would be written over; name another output");
  }
}

}  // namespace

void add_force(CLI::App& command, bool& force) {
  command.add_flag("--force", force, "Replace files that are there");
}

void refuse_to_replace(const fs::path& output) {
  throw Error(ErrorCode::kUsage, {output.string(), 0, 0}, "is there already; --force replaces it");
}

void check_output(const fs::path& output, std::span<const std::string> inputs, bool force) {
  if (output.empty()) return;
  refuse_inputs(output, inputs);
  refuse_inputs(output.string() + ".part", inputs);
  std::error_code error;
  const fs::file_status status = fs::status(output, error);
  if (fs::is_directory(status)) throw Error(ErrorCode::kUsage, {output.string(), 0, 0}, "is a folder; name a file");
  const bool to_nothing = !fs::exists(status) && fs::is_symlink(fs::symlink_status(output, error));
  if ((fs::is_regular_file(status) || to_nothing) && !force) refuse_to_replace(output);
}

}  // namespace tenon::app
