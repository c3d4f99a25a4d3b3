// This finds the installed families, and the one that weights belong to. A family that has the name of the architecture
// is looked at first; only if it is not there, or does not claim the weights, all of them are read.
#include <algorithm>

#include "../weights/cut_weights.h"
#include "../weights/layout.h"
#include "family.h"
#include "family_config.h"
#include "family_model.h"
#include "family_translation.h"
#include "tenon/core/error.h"
#include "tenon/core/files.h"
#include "tenon/core/module.h"

namespace tenon {
namespace {

namespace fs = std::filesystem;
using family::Family;

constexpr char kExtension[] = ".toml";

const char* architecture_key(const Weights& weights) {
  return weights.convention() == "gguf" ? "general.architecture" : "model_type";
}

// Some architectures of GGUF are two families: Mixtral's files say "llama" and a number of experts.
bool claims(const Family& f, const Weights& weights, const std::string& architecture) {
  const std::vector<std::string>& names = f.claims.in(weights.convention());
  if (std::find(names.begin(), names.end(), architecture) == names.end()) return false;
  const auto is_said = [&](const std::string& key) {
    const MetadataValue* value = weights.metadata(family::spelled_key(key, architecture));
    return value != nullptr && *value != MetadataValue(int64_t{0});
  };
  return weights.convention() != "gguf" || f.unless.empty() || !std::all_of(f.unless.begin(), f.unless.end(), is_said);
}

std::shared_ptr<const ModelKind> kind_of(std::shared_ptr<const Family> f) {
  auto kind = std::make_shared<ModelKind>();
  kind->name = f->name;
  kind->doc = f->doc;
  kind->file = f->file;
  kind->harmless_keys = f->ignored_keys;
  kind->harmless_tensors = f->ignored_tensors;
  kind->view = [f](const Weights& weights) { return family::cut_stacked(*f, weights); };
  kind->describe = [f](const Weights& weights) { return family::read_config(*f, weights).info; };
  kind->build = [f](const Weights& weights, Declarations& declare) {
    return family::build_model(*f, weights, declare);
  };
  kind->translate = [f](const Weights& weights, std::span<const std::string> ignored) {
    return family::translate(*f, weights, ignored);
  };
  return kind;
}

}  // namespace

namespace family {

std::shared_ptr<const Family> family_for(const Weights& weights, const std::vector<fs::path>& model_dirs) {
  const std::string architecture = architecture_of(weights);
  const std::vector<ModelFamily> all = model_families(model_dirs);
  const auto read_if_claimed = [&](const ModelFamily& f) -> std::shared_ptr<const Family> {
    auto read = std::make_shared<Family>(read_family(f.file));
    return claims(*read, weights, architecture) ? read : nullptr;
  };
  for (const ModelFamily& f : all) {
    if (f.name != architecture) continue;
    if (auto found = read_if_claimed(f)) return found;
  }
  for (const ModelFamily& f : all) {
    if (auto found = read_if_claimed(f)) return found;
  }
  return nullptr;
}

std::unique_ptr<Weights> cut_stacked(const Family& family, const Weights& weights) {
  std::vector<weights::Cut> cuts;
  for (const StackedTensors& s : family.stacked.in(weights.convention())) {
    const size_t star = s.name.find('*');
    const std::string begin = s.name.substr(0, star), end = s.name.substr(star + 1);
    for (const WeightTensor& t : weights.tensors()) {
      if (!t.name.starts_with(begin)) continue;
      const size_t after = std::min(t.name.find_first_not_of("0123456789", star), t.name.size());
      if (after == star || t.name.compare(after, end.size(), end) != 0) continue;
      const auto known = s.tensors.find(t.name.substr(after + end.size()));
      if (known == s.tensors.end()) continue;
      const bool transposed = std::find(s.transposed.begin(), s.transposed.end(), known->second) != s.transposed.end();
      cuts.push_back({t.name, t.name.substr(0, after + end.size()), known->second, s.parts, transposed});
    }
  }
  return cuts.empty() ? nullptr : std::make_unique<weights::CutWeights>(weights, cuts);
}

}  // namespace family

std::vector<ModelFamily> model_families(const std::vector<fs::path>& model_dirs) {
  std::vector<ModelFamily> all;
  // The standard folders need not exist, those that were named must.
  const auto is_given = [&](const fs::path& folder) {
    return std::any_of(model_dirs.begin(), model_dirs.end(),
                       [&](const fs::path& d) { return fs::absolute(d) == folder; });
  };
  for (const fs::path& folder : model_search_path(model_dirs)) {
    std::error_code error;
    const std::vector<std::string> names = names_in_folder(folder, error);
    const bool there = !error || (error != std::errc::no_such_file_or_directory &&
                                  error != std::errc::not_a_directory && error != std::errc::permission_denied);
    if (error && (there || is_given(folder))) {
      throw Error(ErrorCode::kIo, {folder.string()},
                  "cannot look for model families in this folder: " + error.message());
    }
    for (const std::string& name : names) {
      if (!name.ends_with(kExtension) || name.starts_with('.')) continue;
      const std::string stem = name.substr(0, name.size() - (sizeof(kExtension) - 1));
      const auto same = [&](const ModelFamily& f) { return f.name == stem; };
      if (std::none_of(all.begin(), all.end(), same)) all.push_back({stem, folder / name});
    }
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return all;
}

std::string architecture_of(const Weights& weights) {
  return metadata_text(weights, architecture_key(weights)).value_or("");
}

std::shared_ptr<const ModelKind> model_kind_for(const Weights& weights, const std::vector<fs::path>& model_dirs) {
  if (auto f = family::family_for(weights, model_dirs)) return kind_of(std::move(f));
  const std::string found = architecture_of(weights);
  std::string known;
  for (const ModelFamily& f : model_families(model_dirs)) known += (known.empty() ? "" : ", ") + f.name;
  throw Error(
      ErrorCode::kModel, {weights::description_file(weights)},
      "key \"" + std::string(architecture_key(weights)) + "\": " +
          (found.empty() ? "the weights name no architecture" : "architecture \"" + found + "\" is not supported") +
          "; supported: " + known + "; docs/adding-a-model.md says how a family is added");
}

}  // namespace tenon
