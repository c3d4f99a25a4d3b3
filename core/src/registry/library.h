// A plugin library is looked at, opened, and checked against its own note.
#pragma once

#include <boost/dll/shared_library.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "tenon/abi/plugin.h"

namespace tenon {

// Reads the note of a library that is to be loaded, and checks what can be checked without opening it.
// Throws Error(kPlugin) with the library's name and the reason: others can write to it or to one of `folders` (its own
// is always among them), no plugin, of another version or draft.
tenon_note examine_library(const std::filesystem::path& canonical, const std::vector<std::filesystem::path>& folders);

// This is an open library. It closes it at the end of its life, which only a validator may want.
class Library {
 public:
  // `canonical` is an absolute path. Throws Error(kPlugin): the loader's own words, a missing symbol, a table that
  // contradicts the note, a schema that is wrong in itself, init's reason.
  Library(const std::filesystem::path& canonical, const tenon_note& note);
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  const tenon_plugin& plugin() const { return plugin_; }                  // as large as this host knows it
  const tenon_component& component() const { return component_; }         // the note's, as large as this host knows it
  const std::vector<std::string>& messages() const { return messages_; }  // it said these during init

 private:
  void load(const std::filesystem::path& canonical);
  void check_component(const tenon_note& note, const std::string& name);
  void initialize(const std::string& name);

  boost::dll::shared_library library_;
  tenon_plugin plugin_{};
  tenon_component component_{};
  tenon_host host_{};
  std::vector<std::string> messages_;
};

// Does the same once a process and for good: graphs hold kernels, and thread-locals make unloading unsafe.
const Library& open_library(const std::filesystem::path& canonical, const tenon_note& note);

}  // namespace tenon
