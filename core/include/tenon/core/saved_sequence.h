// A saved sequence has a text's tokens and what the cache holds of them, so that another request that begins alike need
// not compute them again. It is kept in a session file, whose form docs/sessions.md describes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tenon {

// The cells of a cache depend on this: {"kv_cache", "kv_cache.int8 0.1.0"}. Both are single
// lines, and there is no colon in the name.
struct SessionFact {
  std::string name, value;
  bool operator==(const SessionFact&) const = default;
};

// It never changes after construction, and any thread may call every function.
class SavedSequence {
 public:
  // `cells` are what Pipeline::export_sequence gave for these tokens.
  SavedSequence(std::vector<SessionFact> facts, std::vector<int32_t> tokens, std::vector<std::byte> cells);
  // Maps a session file. Throws Error(kIo), with what was found and what would be right, for a file that cannot be
  // read, is none of these, has another version, is cut short or is damaged anywhere.
  static std::shared_ptr<const SavedSequence> read(const std::filesystem::path& path);
  ~SavedSequence();
  SavedSequence(const SavedSequence&) = delete;
  SavedSequence& operator=(const SavedSequence&) = delete;

  // Returns the path that it was read from; "" if it was not.
  const std::filesystem::path& path() const { return path_; }
  std::span<const SessionFact> facts() const { return facts_; }
  std::span<const int32_t> tokens() const { return tokens_; }
  std::span<const std::byte> cells() const { return cells_; }
  uint64_t file_bytes() const;

  // Throws Error(kRequest), with every fact that is another, unless a pipeline of these facts may use the cells.
  void check_facts(std::span<const SessionFact> own) const;
  // Writes the session file, which has its name once it is whole. Throws Error(kIo), for a file
  // that is there and not to be replaced too.
  void write(const std::filesystem::path& path, bool replace) const;

 private:
  struct File;
  explicit SavedSequence(std::unique_ptr<File> file);

  std::filesystem::path path_;
  std::unique_ptr<File> file_;  // nullptr if it was not read; else cells_ are its bytes
  std::vector<SessionFact> facts_;
  std::vector<int32_t> tokens_;
  std::vector<std::byte> own_cells_;
  std::span<const std::byte> cells_;
};

}  // namespace tenon
