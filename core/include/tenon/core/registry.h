// What components there are, where each came from, and how to get one. Plugins are found by their ELF note, without
// opening them; a library is opened when a component of it is asked for. Built-in components register through the same
// door.
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

// The device of a component that runs on the host, whatever the pipeline's device is: a draft, a scheduler.
inline constexpr std::string_view kHostDevice = "host";

// One component on offer.
struct ComponentInfo {
  std::string kind, name;
  std::string device;  // "cpu", "cuda", "host"; "" for kinds that are of no device (tokenizer, weights, model)
  std::filesystem::path library;  // empty: built in
  std::string schema_hash, layout_hash, targets;
  std::filesystem::path root;  // the search root that it came from
};

// Something that was passed over while scanning, and why: shadowed, refused, no plugin.
struct ScanNotice {
  std::filesystem::path library;
  std::string message;
  bool refused = false;  // true: an error if it is asked for by path
};

// A kind that does not cross the binary boundary yet.
struct BuiltinComponent {
  std::string kind, name, device, doc;
  const tenon_param_schema* schema = nullptr;  // static storage; nullptr = no parameters
  const tenon_component* component = nullptr;  // of a kind with a C table (device/cpu), else nullptr
  std::shared_ptr<const void> implementation;  // what the kind's own room put there
};

// A component that is open and may be created from. Owned by the registry, lives as long as it.
struct LoadedComponent {
  ComponentInfo info;
  std::string doc, vendor, version, license, url, compiler;
  const tenon_param_schema* schema = nullptr;  // never nullptr
  const tenon_component* component = nullptr;  // nullptr for kinds without a C table
  std::shared_ptr<const void> implementation;  // of a built-in
};

// Not thread-safe while scanning or loading; const functions are. Libraries are never unloaded.
class Registry {
 public:
  Registry();
  ~Registry();
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  void add_builtin(BuiltinComponent builtin);
  // Reads the notes of all libraries below root, at most one folder deep (<root>/<kind>/x.so). A root that is not there
  // is skipped, with a notice if it was `expected`. The root that was added first counts. Throws Error(kPlugin)
  // for one that holds the same kind, name and device twice; what else is wrong with a library becomes a notice.
  void add_root(const std::filesystem::path& root, bool expected = false);
  // One library from elsewhere; takes precedence over all roots. Throws Error(kPlugin), at `where` if given.
  void add_library(const std::filesystem::path& path, const SourcePosition& where = {});

  std::vector<ComponentInfo> components(std::string_view kind = {}) const;  // sorted by kind, name, device
  const std::vector<ScanNotice>& notices() const;
  std::vector<std::string> names(std::string_view kind, std::string_view device = {}) const;

  // Opens the library if need be, and checks it against its note. device "" matches a component of any device, and one
  // of kHostDevice matches any device that it is not there for itself.
  // Throws Error(kPlugin): unknown name (lists what is installed and what comes close), another device only, a library
  // that does not load (with the loader's own words), a table that contradicts the note.
  const LoadedComponent& load(std::string_view kind, std::string_view name, std::string_view device = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// An instance of a component with a C table. Destroys it at the end of its life.
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
  // The table of the kind's interface, as large as this host knows it: fields that the plugin does not have are 0.
  template <class Table>
  const Table& table() const {
    return *static_cast<const Table*>(table_.get());
  }

 private:
  const LoadedComponent* component_ = nullptr;
  void* self_ = nullptr;
  std::string id_;
  std::shared_ptr<const void> table_;  // a widened copy
};

// The schema hash that a plugin's note should state, whatever it states. Opens the library. Throws Error(kPlugin) as
// Registry::load does.
std::string library_schema_hash(const std::filesystem::path& library);

// The standard roots in order: extra (--plugin-dir), $TENON_PLUGIN_PATH, the user's folder, the install's folder beside
// the running program or library. Never the working directory.
std::vector<std::filesystem::path> plugin_search_path(const std::vector<std::filesystem::path>& extra);
// Those of $TENON_PLUGIN_PATH. Throws Error(kPlugin) for one that is not absolute, as plugin_search_path() does.
std::vector<std::filesystem::path> plugin_path_variable();

}  // namespace tenon
