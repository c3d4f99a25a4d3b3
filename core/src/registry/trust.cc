#include "registry/trust.h"

#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

namespace tenon {
namespace {

// If every user has a group of their own, umask 002 is usual and makes whole build trees writable for that group.
bool is_private_group(gid_t gid) {
  std::vector<char> room(64 << 10), group_room(64 << 10);
  passwd user{};
  passwd* user_found = nullptr;
  group its{};
  group* group_found = nullptr;
  if (getpwuid_r(geteuid(), &user, room.data(), room.size(), &user_found) != 0 || user_found == nullptr) return false;
  if (getgrgid_r(gid, &its, group_room.data(), group_room.size(), &group_found) != 0 || group_found == nullptr) {
    return false;
  }
  if (user.pw_gid != gid || std::strcmp(user.pw_name, its.gr_name) != 0) return false;
  for (char** member = its.gr_mem; *member != nullptr; ++member) {
    if (std::strcmp(*member, user.pw_name) != 0) return false;
  }
  return true;
}

std::string octal(mode_t mode) {
  std::string text;
  for (int shift = 9; shift >= 0; shift -= 3) text += static_cast<char>('0' + ((mode >> shift) & 7u));
  return text;
}

}  // namespace

std::string trust_problem(const std::filesystem::path& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return path.string() + " cannot be examined: " + std::strerror(errno);
  const std::string what = path.string() + " (mode " + octal(info.st_mode) + ", owner " + std::to_string(info.st_uid) +
                           ", group " + std::to_string(info.st_gid) + ")";
  if (info.st_mode & S_IWOTH) return what + " can be written by every user: take that away with chmod o-w";
  if ((info.st_mode & S_IWGRP) && !is_private_group(info.st_gid)) {
    return what + " can be written by its group: take that away with chmod g-w";
  }
  if (info.st_uid != 0 && info.st_uid != geteuid()) return what + " belongs to neither root nor the user";
  return "";
}

}  // namespace tenon
