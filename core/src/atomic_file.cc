// An atomic file has its name only once it is complete. It is written without a name (O_TMPFILE) and linked in the end;
// where the file system cannot do that, under a name of its own beside the target, which is renamed. What ends the
// process earlier leaves no half of a file under the name.
#include "tenon/core/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "last_error.h"
#include "tenon/core/error.h"

namespace tenon {

std::error_code give_name(const std::filesystem::path& from, const std::filesystem::path& to, bool replace) {
  if (replace) return std::rename(from.c_str(), to.c_str()) == 0 ? std::error_code() : last_error();
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return {};
  if (errno != EINVAL && errno != ENOSYS) return last_error();
  // This file system cannot do that, and a link does not replace either.
  if (linkat(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), 0) == 0) {
    unlink(from.c_str());
    return {};
  }
  if (errno != EPERM && errno != EOPNOTSUPP) return last_error();
  // This one has no links: what appears in this instant is lost.
  if (access(to.c_str(), F_OK) == 0) return std::make_error_code(std::errc::file_exists);
  return give_name(from, to, true);
}

AtomicFile::AtomicFile(std::filesystem::path path, AtomicFileOptions options)
    : path_(std::move(path)),
      part_path_(std::move(options.part_path)),
      folder_(std::move(options.folder)),
      replace_(options.replace) {
  if (folder_.empty()) folder_ = path_.has_parent_path() ? path_.parent_path() : ".";
  if (!part_path_.empty()) {
    descriptor_ = open(part_path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, options.mode);
  } else if (!open_unnamed(options.mode)) {
    part_path_ = own_name();
    descriptor_ = open(part_path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, options.mode);
  }
  if (descriptor_ < 0) {
    const std::string reason = last_error().message();
    throw Error(ErrorCode::kIo, {(part_path_.empty() ? path_ : part_path_).string()}, "cannot be created: " + reason);
  }
  if (options.bytes > 0 && fallocate(descriptor_, 0, 0, static_cast<off_t>(options.bytes)) != 0 &&
      (errno == ENOSPC || errno == EFBIG)) {
    const std::string reason = last_error().message();
    if (!part_path_.empty()) unlink(part_path_.c_str());
    close(descriptor_);
    throw Error(ErrorCode::kIo, {path_.string()},
                "cannot be made " + std::to_string(options.bytes) + " bytes long: " + reason);
  }
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) close(descriptor_);
  if (!done_ && !part_path_.empty()) unlink(part_path_.c_str());
}

bool AtomicFile::open_unnamed(uint32_t mode) {
  if (access("/proc/self/fd", F_OK) != 0) return false;  // link_unnamed() needs it
  descriptor_ = open(folder_.c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, mode);
  // Any other error would come with a name as well.
  return descriptor_ >= 0 || (errno != EOPNOTSUPP && errno != EISDIR);
}

std::filesystem::path AtomicFile::own_name() const {
  return folder_ / (path_.filename().string() + ".partial-" + std::to_string(getpid()));
}

std::error_code AtomicFile::write_at(std::span<const std::byte> bytes, uint64_t offset) {
  while (!bytes.empty()) {
    const ssize_t written = pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written == 0) errno = ENOSPC;
    if (written <= 0) return last_error();
    bytes = bytes.subspan(static_cast<size_t>(written));
    offset += static_cast<uint64_t>(written);
  }
  return {};
}

// A link cannot take the place of a file; a name that is there needs one more, for an instant.
std::error_code AtomicFile::link_unnamed() {
  const std::string self = "/proc/self/fd/" + std::to_string(descriptor_);
  const auto link_as = [&](const std::filesystem::path& name) {
    return linkat(AT_FDCWD, self.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0;
  };
  if (link_as(path_)) return {};
  if (errno != EEXIST || !replace_) return last_error();
  part_path_ = own_name();  // before the link is there: whatever fails, ~AtomicFile() takes it away
  if (!link_as(part_path_)) {
    const std::error_code error = last_error();
    part_path_.clear();
    return error;
  }
  return give_name(part_path_, path_, true);
}

std::error_code AtomicFile::sync() {
  return fsync(descriptor_) == 0 ? std::error_code() : last_error();
}

std::error_code AtomicFile::commit() {
  if (part_path_.empty()) {
    if (const std::error_code error = link_unnamed()) return error;
  } else {
    if (close(std::exchange(descriptor_, -1)) != 0) return last_error();
    if (const std::error_code error = give_name(part_path_, path_, replace_)) return error;
  }
  done_ = true;
  return {};
}

}  // namespace tenon
