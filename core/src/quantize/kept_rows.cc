// A file has the rows as f32, one after the other, and a hash of them at its end: it counts only if its length and the
// hash are right, so a file that was cut off is made again.
#include "kept_rows.h"

#include <bit>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "../../model/weights/model_writer.h"

namespace tenon {

namespace fs = std::filesystem;

namespace {
constexpr char kPrefix[] = "rows-";
constexpr uint64_t kSeed = 0xcbf29ce484222325, kPrime = 0x100000001b3;  // FNV-1a's

// This is FNV-1a of 32 bits at a time, in lanes, so that it keeps up with the copy of a row.
uint64_t hash_of(std::span<const float> row, uint64_t seed) {
  constexpr size_t kLanes = 8;
  uint64_t lanes[kLanes];
  for (size_t l = 0; l < kLanes; ++l) lanes[l] = seed + l;
  for (size_t i = 0; i < row.size(); ++i) {
    lanes[i % kLanes] = (lanes[i % kLanes] ^ std::bit_cast<uint32_t>(row[i])) * kPrime;
  }
  uint64_t hash = seed;
  for (const uint64_t lane : lanes) hash = (hash ^ lane) * kPrime;
  return hash;
}
}  // namespace

KeptRows::KeptRows(fs::path folder, uint64_t rows, uint32_t width)
    : folder_(std::move(folder)), rows_(rows), width_(width) {}

fs::path KeptRows::file_of(uint32_t layer) const {
  return folder_ / (kPrefix + std::to_string(layer));
}

void KeptRows::map(uint32_t layer) {
  if (mapped_layer_ == layer) return;
  mapped_layer_.reset();
  mapped_.reset();
  mapped_.emplace(file_of(layer));
  mapped_layer_ = layer;
}

bool KeptRows::whole(uint32_t layer) {
  std::error_code error;
  const uint64_t size = fs::file_size(file_of(layer), error);
  if (error || size != bytes() + sizeof(hash_)) return false;
  if (checked_ == layer) return true;
  map(layer);
  uint64_t hash = kSeed, expected = 0;
  for (uint64_t r = 0; r < rows_; ++r) hash = hash_of(rows(layer, r, 1), hash);
  std::memcpy(&expected, mapped_->bytes().data() + bytes(), sizeof(expected));
  if (hash != expected) return false;
  checked_ = layer;
  return true;
}

std::optional<uint32_t> KeptRows::last_up_to(uint32_t layer) {
  for (uint32_t l = layer + 1; l-- > 0;) {
    if (whole(l)) return l;
  }
  return std::nullopt;
}

std::span<const float> KeptRows::rows(uint32_t layer, uint64_t first, uint64_t count) {
  map(layer);
  return {reinterpret_cast<const float*>(mapped_->bytes().data()) + first * width_, count * width_};
}

void KeptRows::begin(uint32_t layer) {
  begun_ = layer;
  put_ = 0;
  hash_ = kSeed;
  file_ = std::make_unique<AtomicFile>(file_of(layer), AtomicFileOptions{.bytes = bytes() + sizeof(hash_)});
}

void KeptRows::put(std::span<const float> row) {
  hash_ = hash_of(row, hash_);
  weights::check_written(file_->path(), file_->write_at(std::as_bytes(row), put_ * row.size_bytes()));
  ++put_;
}

void KeptRows::end() {
  weights::check_written(file_->path(), file_->write_at(std::as_bytes(std::span(&hash_, 1)), bytes()));
  weights::check_written(file_->path(), file_->commit());
  checked_ = begun_;
  file_.reset();
  mapped_.reset();
  mapped_layer_.reset();
  std::vector<fs::path> others;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kPrefix) && entry.path() != file_of(begun_)) others.push_back(entry.path());
  }
  for (const fs::path& path : others) {
    std::error_code error;
    fs::remove(path, error);
    weights::check_written(path, error);
  }
}

}  // namespace tenon
