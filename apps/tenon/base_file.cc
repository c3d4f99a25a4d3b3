// This writes and reads the files of `tenon eval kld --base`. The size of a file follows from its header, so that one
// that was cut off is noticed before anything is compared.
#include "base_file.h"

#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "tenon/core/error.h"

namespace tenon::app {
namespace {

static_assert(std::endian::native == std::endian::little, "the file is read and written in place");

constexpr size_t kRowHead = 12;

template <class T>
std::string_view bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

void check(const Status& status) {
  if (!status.ok()) throw Error(status.code(), status.message());
}

}  // namespace

uint64_t BaseHeader::windows() const {
  return positions / scored_tokens(context);
}
uint64_t BaseHeader::row_bytes() const {
  return kRowHead + uint64_t{vocab} * sizeof(uint16_t);
}
uint64_t BaseHeader::file_bytes() const {
  return sizeof(BaseHeader) + positions * row_bytes();
}

BaseWriter::BaseWriter(const std::string& path, const BaseHeader& header, bool replace)
    : header_(header),
      file_(path, sizeof(BaseHeader),
            {.what = "log-probabilities", .consequence = "", .gzip = false, .replace = replace}) {}

void BaseWriter::add(const CodedRow& row) {
  row_.clear();
  row_ += bytes_of(row.top);
  row_ += bytes_of(row.step);
  row_ += bytes_of(row.negative_log_likelihood);
  row_.append(reinterpret_cast<const char*>(row.code.data()), row.code.size() * sizeof(uint16_t));
  file_.write(row_);
  check(file_.flush());
}

void BaseWriter::finish() {
  check(file_.finish(bytes_of(header_)));
}

BaseReader::BaseReader(const std::string& path) : path_(path), file_(std::fopen(path.c_str(), "rbe")) {
  if (!file_) fail(std::string("cannot be read: ") + std::strerror(errno));
  std::error_code error;
  const uint64_t size = std::filesystem::file_size(path, error);
  if (error) fail("cannot be read: " + error.message());
  const auto magic = header_.magic;
  const uint32_t version = header_.version;
  const size_t got = read(&header_, sizeof header_);
  if (got < sizeof magic || header_.magic != magic) {
    fail("this is no file that `tenon eval perplexity --save-logits` wrote: it does not begin with " +
         std::string(magic.data(), magic.size()));
  }
  if (got < sizeof header_) {
    fail("is cut short: it has " + std::to_string(size) + " bytes, its header alone takes " +
         std::to_string(sizeof header_));
  }
  if (header_.version != version) {
    fail("is of version " + std::to_string(header_.version) + "; this program reads version " +
         std::to_string(version));
  }
  const uint64_t rows = (size - sizeof header_) / header_.row_bytes();  // it bounds positions: no product overflows
  if (header_.positions > rows) {
    fail("is cut short: it has " + std::to_string(size) + " bytes, which hold " + std::to_string(rows) + " of " +
         std::to_string(header_.positions) + " positions");
  }
  if (header_.vocab == 0 || header_.context < kLeastContext || header_.positions == 0 ||
      header_.positions % scored_tokens(header_.context) != 0 || size != header_.file_bytes()) {
    fail("its header contradicts itself or its size: vocabulary " + std::to_string(header_.vocab) + ", windows of " +
         std::to_string(header_.context) + " tokens, " + std::to_string(header_.positions) + " positions, " +
         std::to_string(size) + " bytes; expected whole windows in " + std::to_string(header_.file_bytes()) + " bytes");
  }
}

void BaseReader::next(CodedRow& row) {
  std::array<char, kRowHead> head{};
  row.code.resize(header_.vocab);
  const size_t codes = row.code.size() * sizeof(uint16_t);
  if (read(head.data(), head.size()) < head.size() || read(row.code.data(), codes) < codes) {
    fail("ends at position " + std::to_string(read_) + " now; it was cut off after it was opened");
  }
  std::memcpy(&row.top, head.data(), 4);
  std::memcpy(&row.step, head.data() + 4, 4);
  std::memcpy(&row.negative_log_likelihood, head.data() + 8, 4);
  const bool sound = row.top >= 0 && static_cast<uint32_t>(row.top) < header_.vocab && row.step >= 0 &&
                     row.step <= CodedRow::kReach / (CodedRow::kNone - 1) && row.negative_log_likelihood >= -1e-3F &&
                     row.code[static_cast<size_t>(row.top)] == 0;
  if (!sound) {
    fail("position " + std::to_string(read_) + " is damaged: likeliest token " + std::to_string(row.top) + " of " +
         std::to_string(header_.vocab) + ", step " + std::to_string(row.step) + ", negative log-likelihood " +
         std::to_string(row.negative_log_likelihood));
  }
  ++read_;
}

size_t BaseReader::read(void* out, size_t bytes) {
  const size_t got = std::fread(out, 1, bytes, file_.get());
  if (got < bytes && std::ferror(file_.get()) != 0) {
    fail("cannot be read at position " + std::to_string(read_) + ": " + std::strerror(errno));
  }
  return got;
}

void BaseReader::fail(const std::string& message) const {
  throw Error(ErrorCode::kIo, {path_, 0, 0}, message);
}

}  // namespace tenon::app
