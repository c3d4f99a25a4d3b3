// The registry knows which components there are and where each came from, and opens them. Plugins are
// found by their ELF note, without opening them; a library is opened when its component is asked for.
// Built-in components are in the same registry.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/abi/plugin.h"
#include "tenon/core/error.h"

namespace tenon {

// A component that runs on the host, whatever the pipeline's device is, has this device: a draft, a scheduler.
inline constexpr std::string_view kHostDevice = "host";

// This is one component that can be opened.
struct ComponentInfo {
  std::string kind, name;
  std::string device;             // "cpu", "cuda", "host"; "" for kinds that need no device (tokenizer, weights, model)
  std::filesystem::path library;  // if empty, it is built in
  std::string schema_hash, layout_hash, targets;  // as the library's note states them
  std::filesystem::path root;                     // the search root that it came from
};

// A notice says that a library was passed over while scanning, and why: it is shadowed, refused or no plugin.
struct ScanNotice {
  std::filesystem::path library;
  std::string message;
  bool refused = false;  // true: asking for it by its path is an error
};

// A built-in component is part of core, or of a kind that does not cross the binary boundary.
struct BuiltinComponent {
  std::string kind, name, device, doc;
  const tenon_param_schema* schema = nullptr;  // it has static storage; nullptr = no parameters
  const tenon_component* component = nullptr;  // nullptr if the kind has no C table
  std::shared_ptr<const void> implementation;  // the folder of that kind put it there and knows its type
};

// This is a component that is open, so that instances can be made. The registry owns it, and it lives as long.
struct LoadedComponent {
  ComponentInfo info;
  std::string doc, vendor, version, license, url, compiler;
  const tenon_param_schema* schema = nullptr;  // never nullptr
  const tenon_component* component = nullptr;  // nullptr if the kind has no C table
  std::shared_ptr<const void> implementation;  // see BuiltinComponent
};

// Thread: one at a time while it scans or loads; const functions may be called
// by several. Libraries are never unloaded.
class Registry {
 public:
  Registry();
  ~Registry();
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  void add_builtin(BuiltinComponent builtin);
  // Reads the notes of all libraries below root, at most one folder deep (<root>/<kind>/x.so). A root
  // that is not there is skipped, with a notice if it was `expected`. A root that was added earlier
  // shadows later ones. Throws Error(kPlugin) for a root that has the same kind, name and device twice;
  // any other mistake of a library becomes a notice.
  void add_root(const std::filesystem::path& root, bool expected = false);
  // Adds one library, which shadows those of all roots. Throws Error(kPlugin), at `where` if that is given.
  void add_library(const std::filesystem::path& path, const SourcePosition& where = {});

  std::vector<ComponentInfo> components(std::string_view kind = {}) const;  // they are sorted by kind, name and device
  const std::vector<ScanNotice>& notices() const;
  std::vector<std::string> names(std::string_view kind, std::string_view device = {}) const;

  // Opens the library if need be, and checks it against its note. device "" matches a component for any device, and a
  // component for kHostDevice matches any device unless there is one for that device itself. Throws Error(kPlugin) for
  // an unknown name (with what is installed and what comes close), a component that is there for another device only, a
  // library that does not load (with the loader's own words), and a table that contradicts the note.
  const LoadedComponent& load(std::string_view kind, std::string_view name, std::string_view device = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// This owns an instance of a component with a C table, and destroys it at the end of its life.
class Instance {
 public:
  Instance() = default;
  // Throws Error(kPlugin), or Error(kMemory) for TENON_NO_SPACE, with the component's own reason.
  Instance(const LoadedComponent& component, const tenon_params& params, const tenon_env& env);
  ~Instance();
  Instance(Instance&& other) noexcept;
  Instance& operator=(Instance&& other) noexcept;

  explicit operator bool() const { return component_ != nullptr; }
  const LoadedComponent& component() const { return *component_; }
  const std::string& id() const { return id_; }  // "quantization.none"
  void* self() const { return self_; }
  // Returns the table of the kind's interface, as large as this host knows it: fields that the plugin lacks are 0.
  template <class Table>
  const Table& table() const {
    return *static_cast<const Table*>(table_.get());
  }

 private:
  const LoadedComponent* component_ = nullptr;
  void* self_ = nullptr;
  std::string id_;
  std::shared_ptr<const void> table_;  // this is a copy, widened to what this host knows
};

// Opens a library and returns the schema hash that its note should state, whatever it states. Throws Error(kPlugin) as
// Registry::load does.
std::string library_schema_hash(const std::filesystem::path& library);

// Returns the standard roots in order: extra (--plugin-dir), those of $TENON_PLUGIN_PATH, the user's folder, and the
// install's folder beside the running program or library. The working directory is never among them.
std::vector<std::filesystem::path> plugin_search_path(const std::vector<std::filesystem::path>& extra);
// Returns the roots of $TENON_PLUGIN_PATH. Throws Error(kPlugin) for one that is
// not absolute, as plugin_search_path() does.
std::vector<std::filesystem::path> plugin_path_variable();

}  // namespace tenon
