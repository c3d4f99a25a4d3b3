// A configuration is made of layers: configs/default.toml, the user's file, and overrides from the command line. This
// reads each and merges it into the ones below, key by key.
//
// Invariants: a key of an upper layer replaces that of a lower one whole, unless both are tables. If a layer names
// another component than the one below, the parameters of the one below are dropped. Each value keeps the place in a
// file where it was written. Errors of all layers are collected and thrown together.
#include <dlfcn.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "document.h"
#include "sections.h"
#include "tenon/core/config.h"
#include "tenon/core/files.h"

namespace tenon {
namespace config {
namespace {

constexpr size_t kMaxFileBytes = size_t{1} << 20U;

// Parameters of a component that the new layer replaces say nothing about the one that it names.
void drop_other_components_keys(const Section& section, Table& below, const Table& above) {
  const auto named = above.find("use");
  const auto before = below.find("use");
  if (*section.kind == '\0' || named == above.end() || before == below.end()) return;
  const std::string* name = named->second.text();
  const std::string* other = before->second.text();
  if (name != nullptr && other != nullptr && *name == *other) return;
  std::erase_if(below, [&](const auto& entry) { return !is_own_key(section, entry.first); });
}

}  // namespace

void merge_sections(Table& below, Table above) {
  for (auto& [name, node] : above) {
    const auto [found, is_new] = below.try_emplace(name);
    auto* old_keys = std::get_if<Table>(&found->second.value);
    auto* new_keys = std::get_if<Table>(&node.value);
    const Section* known = find_section(name);
    if (is_new || old_keys == nullptr || new_keys == nullptr || known == nullptr) {
      found->second = std::move(node);
      continue;
    }
    drop_other_components_keys(*known, *old_keys, *new_keys);
    for (auto& [key, value] : *new_keys) {
      auto* below_it = std::get_if<Table>(&(*old_keys)[key].value);
      auto* above_it = std::get_if<Table>(&value.value);
      if (below_it != nullptr && above_it != nullptr) {
        merge_sections(*below_it, std::move(*above_it));  // this is draft.pipeline
      } else {
        (*old_keys)[key] = std::move(value);
      }
    }
    found->second.key_where = node.key_where;
    found->second.where = node.where;
  }
}

namespace {

// Several overrides are one layer: which of them comes first matters only for the same key.
void merge_override(Table& all, Table one) {
  for (auto& [name, node] : one) {
    auto* keys = std::get_if<Table>(&all[name].value);
    auto* added = std::get_if<Table>(&node.value);
    if (keys == nullptr || added == nullptr) {
      all[name] = std::move(node);
    } else {
      merge_override(*keys, std::move(*added));
    }
  }
}

// Runs `parse` and keeps its errors for the end.
template <class Parse>
void collect(std::vector<Diagnostic>& errors, const Parse& parse) {
  try {
    parse();
  } catch (const Error& e) {
    errors.insert(errors.end(), e.diagnostics().begin(), e.diagnostics().end());
  }
}

}  // namespace
}  // namespace config

using config::Array;
using config::Node;
using config::Table;

std::vector<PluginConfig> ConfigDocument::plugins() const {
  std::vector<PluginConfig> plugins;
  const auto found = data_->root.find("plugin");
  const Array* entries = found != data_->root.end() ? found->second.array() : nullptr;
  if (entries == nullptr) return plugins;
  for (const Node& entry : *entries) {
    const Table* keys = entry.table();
    const auto path = keys != nullptr ? keys->find("path") : Table::const_iterator{};
    if (keys == nullptr || path == keys->end()) continue;
    if (const std::string* text = path->second.text()) plugins.push_back({*text, path->second.where});
  }
  return plugins;
}

bool is_pipeline_file(const std::string& argument) {
  return argument.ends_with(".toml");
}

std::filesystem::path default_pipeline_file() {
  Dl_info info{};
  std::error_code error, ignored;
  std::filesystem::path folder;
  if (dladdr(reinterpret_cast<const void*>(&default_pipeline_file), &info) != 0 && info.dli_fname != nullptr) {
    folder = std::filesystem::weakly_canonical(info.dli_fname, error).parent_path();
    if (error) throw Error(ErrorCode::kIo, {info.dli_fname}, "cannot be looked up: " + error.message());
  }
  // This is lib/, or Debian's lib/x86_64-linux-gnu/.
  for (const char* up : {"..", "../.."}) {
    const auto path = (folder / up / "share/tenon/configs/default.toml").lexically_normal();
    if (std::filesystem::is_regular_file(path, ignored)) return path;
  }
  throw Error(ErrorCode::kIo, "the default pipeline share/tenon/configs/default.toml is not there, neither in " +
                                  (folder / "..").lexically_normal().string() + " nor above it; install it again");
}

ConfigText read_config(const std::filesystem::path& path) {
  const SourcePosition where{path.string()};
  // Opening a pipe would wait for a writer, and a device may have no end.
  std::error_code missing;
  const std::filesystem::file_status status = std::filesystem::status(path, missing);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    throw Error(ErrorCode::kIo, where,
                std::string("cannot read the pipeline file: ") +
                    (std::filesystem::is_directory(status) ? std::strerror(EISDIR) : "it is not a regular file"));
  }
  std::error_code error;
  std::string text = read_start(path, config::kMaxFileBytes + 1, error);
  if (error) throw Error(ErrorCode::kIo, where, "cannot read the pipeline file: " + error.message());
  if (text.size() > config::kMaxFileBytes) {
    throw Error(ErrorCode::kConfig, where, "more than 1 MiB, too large for a pipeline file");
  }
  return {path.string(), std::move(text)};
}

ConfigDocument parse_config(const std::vector<ConfigText>& layers, const std::vector<std::string>& set,
                            const std::string& model) {
  auto data = std::make_shared<ConfigDocument::Data>();
  std::vector<Diagnostic> errors;
  for (const ConfigText& layer : layers) {
    data->file = layer.name;
    data->sources.push_back(layer.name);
    config::collect(errors, [&] { config::merge_sections(data->root, config::parse_toml(layer.name, layer.text)); });
  }
  if (!model.empty()) {
    const SourcePosition where{"command line"};
    config::merge_sections(data->root, {{"model", Node{where, where, Table{{"path", Node{where, where, model}}}}}});
  }
  Table overrides;
  for (const std::string& option : set) {
    config::collect(errors, [&] {
      Table one = config::parse_override(option);
      data->sources.push_back(one.begin()->second.key_where.file);
      config::merge_override(overrides, std::move(one));
    });
  }
  config::merge_sections(data->root, std::move(overrides));
  if (!errors.empty()) throw Error(ErrorCode::kConfig, std::move(errors));
  return ConfigDocument(std::move(data));
}

ConfigDocument load_config(const std::string& config_or_model, const std::vector<std::string>& set,
                           const std::filesystem::path& defaults) {
  std::vector<ConfigText> layers = {read_config(default_pipeline_file())};
  if (!defaults.empty()) layers.push_back(read_config(defaults));
  const bool is_file = is_pipeline_file(config_or_model);
  if (is_file) layers.push_back(read_config(config_or_model));
  return parse_config(layers, set, is_file ? "" : config_or_model);
}

}  // namespace tenon
