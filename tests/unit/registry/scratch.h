// This is a folder for one test, and what is put into it.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace tenon::test {

// Returns the library of tests/bad_plugins/<name>.
std::filesystem::path bad_plugin(const std::string& name);
std::vector<std::byte> contents_of(const std::filesystem::path& file);

// This folder is writable for the user alone, and removed at the end.
class Scratch {
 public:
  Scratch();
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // Each returns the file made; folders on the way are made too.
  std::filesystem::path copy(const std::filesystem::path& from, const std::string& to) const;
  std::filesystem::path write(const std::string& to, const std::vector<std::byte>& bytes) const;
  std::filesystem::path write(const std::string& to, const std::string& text) const;

 private:
  std::filesystem::path path_;
};

}  // namespace tenon::test
