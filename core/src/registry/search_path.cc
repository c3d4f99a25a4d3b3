#include <dlfcn.h>

#include <cstdlib>
#include <new>

#include "tenon/core/config.h"
#include "tenon/core/module.h"
#include "tenon/core/registry.h"

namespace tenon {
namespace {

namespace fs = std::filesystem;

// Reads a variable that lists folders. Relative ones would depend on where the program is started.
std::vector<fs::path> folders_of(const char* variable) {
  std::vector<fs::path> folders;
  const char* value = secure_getenv(variable);
  const std::string_view all = value == nullptr ? "" : value;
  for (size_t begin = 0; begin < all.size();) {
    const size_t end = std::min(all.find(':', begin), all.size());
    const fs::path folder = all.substr(begin, end - begin);
    begin = end + 1;
    if (folder.empty()) continue;
    if (!folder.is_absolute()) {
      throw Error(ErrorCode::kPlugin, std::string(variable) + ": \"" + folder.string() + "\" is not an absolute path");
    }
    folders.push_back(folder);
  }
  return folders;
}

// `folder` is "tenon/plugins" or the like.
fs::path users_folder(const char* folder) {
  const char* data = secure_getenv("XDG_DATA_HOME");
  if (data != nullptr && fs::path(data).is_absolute()) return fs::path(data) / folder;
  const char* home = secure_getenv("HOME");
  if (home != nullptr && fs::path(home).is_absolute()) return fs::path(home) / ".local/share" / folder;
  return {};
}

// libtenon_core.so and tenon/plugins lie side by side, in the build tree as in an install, wherever that was moved.
fs::path install_folder() {
  static const char kHere = 0;
  Dl_info info{};
  if (dladdr(&kHere, &info) == 0 || info.dli_fname == nullptr) return {};
  std::error_code failed;
  const fs::path library = fs::canonical(info.dli_fname, failed);
  if (failed == std::errc::not_enough_memory)
    throw std::bad_alloc();  // this is not a build without a folder of its own
  return failed ? fs::path() : library.parent_path() / "tenon/plugins";
}

}  // namespace

std::vector<fs::path> plugin_path_variable() {
  return folders_of("TENON_PLUGIN_PATH");
}

std::vector<fs::path> plugin_search_path(const std::vector<fs::path>& extra) {
  std::vector<fs::path> path;
  for (const fs::path& folder : extra) path.push_back(fs::absolute(folder));
  for (fs::path& folder : plugin_path_variable()) path.push_back(std::move(folder));
  for (fs::path folder : {users_folder("tenon/plugins"), install_folder()}) {
    if (!folder.empty()) path.push_back(std::move(folder));
  }
  return path;
}

std::vector<fs::path> model_search_path(const std::vector<fs::path>& model_dirs) {
  std::vector<fs::path> path;
  for (const fs::path& folder : model_dirs) path.push_back(fs::absolute(folder));
  for (fs::path& folder : folders_of("TENON_MODEL_PATH")) path.push_back(std::move(folder));
  if (fs::path folder = users_folder("tenon/models"); !folder.empty()) path.push_back(std::move(folder));
  path.push_back(default_pipeline_file().parent_path() / "models");
  return path;
}

}  // namespace tenon
