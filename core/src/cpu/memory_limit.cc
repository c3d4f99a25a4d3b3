// Control groups as cgroups(7) and proc(5) have them: /proc/self/cgroup says in which group of a hierarchy the process
// is, /proc/self/mountinfo where the hierarchy is mounted and which of its groups is at the mount point. In a container
// the two may not fit together, since the group's path is the host's; the mount point itself is then what can be seen.
#include "memory_limit.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

namespace tenon {
namespace {

namespace fs = std::filesystem;

// A version 1 group without a limit states the largest number of whole pages.
constexpr uint64_t kNoLimit = uint64_t{1} << 60U;

struct Hierarchy {
  fs::path mount_point, mounted_group;  // "/sys/fs/cgroup", and which group that is: "/"
  bool version_2 = false;
};

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

// "/a\040b" as /proc writes it is "/a b".
std::string unescaped(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto digit = [&](size_t at) { return text[at] >= '0' && text[at] <= '7'; };
    const bool octal = text[i] == '\\' && i + 3 < text.size() && digit(i + 1) && digit(i + 2) && digit(i + 3);
    if (octal) {
      out += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

bool has_word(const std::string& list, const std::string& word) {
  return ("," + list + ",").find("," + word + ",") != std::string::npos;
}

// The fields are: id, parent, device, root, mount point, options, tags ..., "-", type, source, the hierarchy's options.
std::optional<Hierarchy> hierarchy_of(const std::string& mount) {
  const std::vector<std::string> words = words_of(mount);
  const auto dash = std::find(words.begin(), words.end(), "-");
  if (words.size() < 7 || words.end() - dash < 4) return {};
  const std::string &type = dash[1], &options = dash[3];
  if (type != "cgroup2" && (type != "cgroup" || !has_word(options, "memory"))) return {};
  return Hierarchy{unescaped(words[4]), unescaped(words[3]), type == "cgroup2"};
}

// Lines are "0::/a/b" of version 2, "5:cpu,memory:/a/b" of version 1.
std::string group_of(const fs::path& root, bool version_2) {
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (version_2 ? controllers.empty() : has_word(controllers, "memory")) return line.substr(second + 1);
  }
  return "/";
}

void take_least(const fs::path& file, MemoryLimit& least) {
  std::ifstream stream(file);
  uint64_t bytes = 0;
  if (!(stream >> bytes) || bytes >= kNoLimit || bytes >= least.bytes) return;  // "max" is no number
  least = {bytes, file.string()};
}

void take_least(const fs::path& root, const Hierarchy& h, MemoryLimit& least) {
  const fs::path top = root / h.mount_point.relative_path();
  const fs::path below = fs::path(group_of(root, h.version_2)).lexically_relative(h.mounted_group);
  const bool seen = !below.empty() && *below.begin() != "..";
  fs::path group = seen && below != "." ? top / below : top;
  const char* const name = h.version_2 ? "memory.max" : "memory.limit_in_bytes";
  for (; group != top && group.has_relative_path(); group = group.parent_path()) take_least(group / name, least);
  take_least(top / name, least);
}

}  // namespace

MemoryLimit memory_limit(const fs::path& root) {
  MemoryLimit least;
  std::ifstream mounts(root / "proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    if (const std::optional<Hierarchy> h = hierarchy_of(line)) take_least(root, *h, least);
  }
  return least;
}

}  // namespace tenon
