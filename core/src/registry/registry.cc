// Finds components: built in, in folders, and in single libraries. Where several offer the same, the order of
// precedence decides, not the order in which they were found. A library that cannot be taken is remembered with its
// reason, which is told where it is wanted.
#include "tenon/core/registry.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "registry/kinds.h"
#include "registry/library.h"
#include "tenon/core/files.h"
#include "tenon/core/params.h"

namespace tenon {
namespace {

namespace fs = std::filesystem;

constexpr tenon_param_schema kNoParameters = {{sizeof(tenon_param_schema), 1, 0}, 0, 0, nullptr};

using Key = std::tuple<std::string, std::string, std::string>;  // kind, name, device
Key key_of(const ComponentInfo& c) {
  return {c.kind, c.name, c.device};
}

// If several offer the same component, the lowest of these wins, and the earliest among roots.
enum class Source { kLibrary, kBuiltin, kRoot };

struct Entry {
  ComponentInfo info;
  Source source = Source::kRoot;
  tenon_note note{};         // a plugin has it
  BuiltinComponent builtin;  // a built-in has it
  std::unique_ptr<LoadedComponent> loaded;
};

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

std::string for_device(std::string_view device) {
  return device.empty() ? std::string() : " for device " + std::string(device);
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& known) {
  const std::string near = nearest_name(std::string(word), known);
  return near.empty() || near == word ? "" : "; did you mean \"" + near + "\"?";
}

std::string origin(const ComponentInfo& c) {
  return c.library.empty() ? "built in" : c.library.string();
}

bool fits(const ComponentInfo& c, std::string_view device) {
  return device.empty() || c.device.empty() || c.device == kHostDevice || c.device == device;
}

// Says if the system fails and not the file. Going on without a library that is there could choose another in silence.
bool of_the_system(const std::error_code& error) {
  return error == std::errc::too_many_files_open || error == std::errc::too_many_files_open_in_system ||
         error == std::errc::not_enough_memory || error == std::errc::io_error;
}

struct Candidate {
  fs::path path;
  std::vector<fs::path> folders;  // they lead to it from the root, itself included
};

// Finds the libraries in a folder, and one folder deeper if that is asked for.
void find_libraries(const std::vector<fs::path>& folders, bool deeper, std::vector<Candidate>& found,
                    std::vector<ScanNotice>& notices) {
  std::error_code failed;
  for (const std::string& name : names_in_folder(folders.back(), failed)) {
    const fs::path path = folders.back() / name;
    std::error_code unknown;
    if (!fs::is_directory(path, unknown)) {
      if (path.extension() == ".so") found.push_back({path, folders});
    } else if (deeper) {
      find_libraries({folders.back(), path}, false, found, notices);
    }
  }
  if (!failed) return;
  if (of_the_system(failed))
    throw Error(ErrorCode::kIo, {folders.back().string()}, "cannot be read: " + failed.message());
  notices.push_back({folders.back(), folders.back().string() + ": " + failed.message(), true});
}

ComponentInfo info_of(const tenon_note& note, const fs::path& library, const fs::path& root) {
  ComponentInfo c;
  c.kind = note.kind;
  c.name = note.name;
  c.device = note.device;
  c.library = library;
  c.root = root;
  c.schema_hash = note.schema_hash;
  c.layout_hash = note.layout_hash;
  c.targets = note.targets;
  return c;
}

}  // namespace

struct Registry::Impl {
  std::map<Key, Entry> entries;
  std::vector<ScanNotice> notices;
  std::set<fs::path> roots;
  std::vector<std::unique_ptr<LoadedComponent>> replaced;  // these were shadowed after they had been handed out

  void note(const fs::path& library, std::string message, bool refused) {
    notices.push_back({library, std::move(message), refused});
  }

  // Takes it unless something of precedence is there, or it contradicts the same component for another device.
  void add(Entry entry) {
    const auto [begin, end] = std::pair{entries.lower_bound({entry.info.kind, entry.info.name, ""}), entries.end()};
    for (auto it = begin; it != end && it->second.info.kind == entry.info.kind; ++it) {
      const ComponentInfo& other = it->second.info;
      if (other.name != entry.info.name) break;
      if (other.device == entry.info.device || other.library.empty() || entry.info.library.empty()) continue;
      const bool both_stated = !other.schema_hash.empty() && !entry.info.schema_hash.empty();
      if (both_stated && other.schema_hash != entry.info.schema_hash) {
        const std::string message = entry.info.library.string() + ": its parameters (schema " + entry.info.schema_hash +
                                    ") are not those of " + other.library.string() + " (schema " + other.schema_hash +
                                    "); " + entry.info.kind + '/' + entry.info.name +
                                    " must have the same on every device";
        note(entry.info.library, message, true);
        if (entry.source == Source::kLibrary) throw Error(ErrorCode::kPlugin, message);
        return;
      }
    }
    const auto it = entries.find(key_of(entry.info));
    if (it == entries.end()) {
      entries.emplace(key_of(entry.info), std::move(entry));
    } else if (entry.source < it->second.source) {
      shadow(it->second.info, entry.info);
      replaced.push_back(std::move(it->second.loaded));
      it->second = std::move(entry);
    } else {
      shadow(entry.info, it->second.info);
    }
  }

  void shadow(const ComponentInfo& hidden, const ComponentInfo& by) {
    if (hidden.library == by.library) return;
    note(hidden.library,
         hidden.kind + '/' + hidden.name + for_device(hidden.device) + ": " + origin(hidden) + " is shadowed by " +
             origin(by),
         false);
  }

  std::vector<std::string> kinds() const {
    std::set<std::string> all(plugin_kinds().begin(), plugin_kinds().end());
    for (const auto& [key, entry] : entries) all.insert(entry.info.kind);
    return {all.begin(), all.end()};
  }

  // Returns refusals that may be what somebody looks for: a library of that name.
  std::string refusals(std::string_view name) const {
    std::string text;
    for (const ScanNotice& n : notices) {
      if (n.refused && n.library.filename().string().starts_with(std::string(name) + '.')) {
        text += "; refused: " + n.message;
      }
    }
    return text;
  }

  [[noreturn]] void unknown(std::string_view kind, std::string_view name, std::string_view device) const {
    const std::vector<std::string> all_kinds = kinds();
    if (std::find(all_kinds.begin(), all_kinds.end(), kind) == all_kinds.end()) {
      throw Error(ErrorCode::kPlugin, "there is no kind of component \"" + std::string(kind) + '"' +
                                          did_you_mean(kind, all_kinds) + " kinds: " + joined(all_kinds));
    }
    std::set<std::string> here, elsewhere;
    for (const auto& [key, entry] : entries) {
      if (entry.info.kind != kind) continue;
      if (fits(entry.info, device)) here.insert(entry.info.name);
      if (entry.info.name == name) elsewhere.insert(entry.info.device);
    }
    const std::vector<std::string> names(here.begin(), here.end());
    std::string text = "no " + std::string(kind) + " named \"" + std::string(name) + '"' + for_device(device);
    if (!elsewhere.empty()) {
      text += ": it exists for " + joined({elsewhere.begin(), elsewhere.end()}) + " only;";
    } else {
      const std::string near = did_you_mean(name, names);
      text += near.empty() ? ";" : near;
    }
    text += names.empty() ? " none is installed" : " installed: " + joined(names);
    throw Error(ErrorCode::kPlugin, text + refusals(name));
  }

  // Prefers the device's own to one that runs on the host.
  Entry& find(std::string_view kind, std::string_view name, std::string_view device) {
    Entry* found = nullptr;
    for (auto& [key, entry] : entries) {
      if (entry.info.kind != kind || entry.info.name != name || !fits(entry.info, device)) continue;
      if (found == nullptr || entry.info.device == device) found = &entry;
    }
    if (found == nullptr) unknown(kind, name, device);
    return *found;
  }

  void open(Entry& entry) {
    auto c = std::make_unique<LoadedComponent>();
    c->info = entry.info;
    if (entry.info.library.empty()) {
      c->doc = entry.builtin.doc;
      c->schema = entry.builtin.schema;
      c->component = entry.builtin.component;
      c->implementation = entry.builtin.implementation;
      if (c->schema == nullptr) c->schema = &kNoParameters;
    } else {
      const Library& library = open_library(entry.info.library, entry.note);
      for (const std::string& message : library.messages()) note(entry.info.library, message, false);
      const auto text = [](const char* t) { return std::string(t == nullptr ? "" : t); };
      const tenon_plugin& p = library.plugin();
      c->doc = text(library.component().doc);
      c->vendor = text(p.vendor);
      c->version = text(p.version);
      c->license = text(p.license);
      c->url = text(p.url);
      c->compiler = text(p.compiler);
      c->schema = library.component().schema;
      c->component = &library.component();
      c->info.schema_hash = schema_hash(*c->schema);
    }
    entry.loaded = std::move(c);
  }
};

Registry::Registry() : impl_(std::make_unique<Impl>()) {}
Registry::~Registry() = default;

void Registry::add_builtin(BuiltinComponent builtin) {
  Entry entry;
  entry.info.kind = builtin.kind;
  entry.info.name = builtin.name;
  entry.info.device = builtin.device;
  entry.info.schema_hash = schema_hash(builtin.schema == nullptr ? kNoParameters : *builtin.schema);
  entry.source = Source::kBuiltin;
  entry.builtin = std::move(builtin);
  impl_->add(std::move(entry));
}

void Registry::add_root(const fs::path& root, bool expected) {
  std::error_code missing;
  const fs::path canonical_root = fs::canonical(root, missing);
  if (of_the_system(missing)) throw Error(ErrorCode::kIo, {root.string()}, "cannot be read: " + missing.message());
  if (missing || !fs::is_directory(canonical_root, missing)) {
    if (expected) impl_->note(root, root.string() + ": no folder to search for plugins is there", true);
    return;
  }
  if (!impl_->roots.insert(canonical_root).second) return;

  std::map<Key, std::vector<Entry>> found;
  std::set<fs::path> seen;  // a library may be there under several names
  std::vector<Candidate> candidates;
  find_libraries({canonical_root}, true, candidates, impl_->notices);
  std::sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
  for (const auto& [path, folders] : candidates) {
    try {
      const fs::path library = fs::canonical(path);
      if (!seen.insert(library).second) continue;
      Entry entry;
      entry.note = examine_library(library, folders);
      entry.info = info_of(entry.note, library, canonical_root);
      found[key_of(entry.info)].push_back(std::move(entry));
    } catch (const Error& e) {
      if (e.code() == ErrorCode::kIo) throw;
      impl_->note(path, e.diagnostics().front().message, true);
    } catch (const fs::filesystem_error& e) {
      if (of_the_system(e.code()))
        throw Error(ErrorCode::kIo, {path.string()}, "cannot be read: " + e.code().message());
      impl_->note(path, path.string() + ": " + e.code().message(), true);
    }
  }
  std::vector<Diagnostic> twice;
  for (auto& [key, entries] : found) {
    if (entries.size() == 1) {
      impl_->add(std::move(entries.front()));
      continue;
    }
    const ComponentInfo& c = entries.front().info;
    std::string message = c.kind + '/' + c.name + for_device(c.device) + " is there more than once:";
    for (const Entry& e : entries) message += (&e == &entries.front() ? " " : " and ") + e.info.library.string();
    for (const Entry& e : entries) impl_->note(e.info.library, message, true);
    twice.emplace_back().message = message + "; keep one of them";
  }
  if (!twice.empty()) throw Error(ErrorCode::kPlugin, twice);
}

void Registry::add_library(const fs::path& path, const SourcePosition& where) {
  try {
    if (!path.has_parent_path()) {
      throw Error(ErrorCode::kPlugin, "\"" + path.string() +
                                          "\" is a bare name, which is looked for nowhere: write a " +
                                          "path, such as \"./" + path.string() + '"');
    }
    std::error_code failed;
    const fs::path library = fs::canonical(path, failed);
    if (failed) throw Error(ErrorCode::kPlugin, path.string() + ": " + failed.message());
    Entry entry;
    entry.note = examine_library(library, {});
    entry.info = info_of(entry.note, library, library.parent_path());
    entry.source = Source::kLibrary;
    const auto it = impl_->entries.find(key_of(entry.info));
    if (it != impl_->entries.end() && it->second.source == Source::kLibrary) {
      if (it->second.info.library == library) return;
      throw Error(ErrorCode::kPlugin, library.string() + ": " + entry.info.kind + '/' + entry.info.name +
                                          for_device(entry.info.device) + " was already added from " +
                                          it->second.info.library.string());
    }
    impl_->add(std::move(entry));
  } catch (const Error& e) {
    throw Error(e.code(), where, e.diagnostics().front().message);
  }
}

std::vector<ComponentInfo> Registry::components(std::string_view kind) const {
  std::vector<ComponentInfo> all;
  for (const auto& [key, entry] : impl_->entries) {
    if (kind.empty() || entry.info.kind == kind) all.push_back(entry.info);
  }
  return all;
}

const std::vector<ScanNotice>& Registry::notices() const {
  return impl_->notices;
}

std::vector<std::string> Registry::names(std::string_view kind, std::string_view device) const {
  std::set<std::string> all;
  for (const auto& [key, entry] : impl_->entries) {
    if (entry.info.kind == kind && fits(entry.info, device)) all.insert(entry.info.name);
  }
  return {all.begin(), all.end()};
}

const LoadedComponent& Registry::load(std::string_view kind, std::string_view name, std::string_view device) {
  Entry& entry = impl_->find(kind, name, device);
  if (entry.loaded == nullptr) impl_->open(entry);
  return *entry.loaded;
}

}  // namespace tenon
