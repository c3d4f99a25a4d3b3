#include "output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "tenon/core/error.h"

namespace tenon::weights {

OutputFile::OutputFile(std::filesystem::path path, uint64_t bytes)
    : path_(std::move(path)), temporary_(path_.string() + ".partial-" + std::to_string(getpid())) {
  descriptor_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail("cannot be created");
  if (bytes > 0 && fallocate(descriptor_, 0, 0, static_cast<off_t>(bytes)) != 0 &&
      (errno == ENOSPC || errno == EFBIG)) {
    const int reason = errno;
    unlink(temporary_.c_str());
    close(descriptor_);
    errno = reason;
    fail(("cannot be made " + std::to_string(bytes) + " bytes long").c_str());
  }
}

OutputFile::~OutputFile() {
  if (descriptor_ < 0) return;
  unlink(temporary_.c_str());
  close(descriptor_);
}

void OutputFile::fail(const char* what) const {
  const std::string reason = std::strerror(errno);
  throw Error(ErrorCode::kIo, {path_.string()}, std::string(what) + ": " + reason);
}

void OutputFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("cannot be written");
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

void OutputFile::commit() {
  if (fsync(descriptor_) != 0) fail("cannot be written");
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail("cannot be renamed to from its temporary name");
  close(descriptor_);
  descriptor_ = -1;
}

}  // namespace tenon::weights
