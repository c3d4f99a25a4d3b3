// The folder OUTPUT.calibrated has a file with what was asked, as lines, and a file for each layer, which is only the
// bytes of its tensors in their order. If the folder says that something else was asked, the run is refused, so a layer
// is never taken from another request. Files appear whole or not at all (AtomicFile).
#include "stored_layers.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <system_error>

#include "../../model/weights/model_writer.h"
#include "tenon/core/error.h"

namespace tenon {
namespace {

namespace fs = std::filesystem;

constexpr char kAskedName[] = "asked.txt";

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (std::string line : lines) {
    std::replace(line.begin(), line.end(), '\n', ' ');
    text += line + "\n";
  }
  return text;
}

// Returns the first line that differs, as both have it.
std::string difference(const std::string& found, const std::string& wanted) {
  std::istringstream a(found), b(wanted);
  std::string of_found, of_wanted;
  do {
    of_found.clear();
    of_wanted.clear();
    std::getline(a, of_found);
    std::getline(b, of_wanted);
  } while (of_found == of_wanted && a && b);
  return "\"" + of_found + "\", and this is one of \"" + of_wanted + "\"";
}

}  // namespace

StoredLayers::StoredLayers(const fs::path& output, std::vector<std::string> asked)
    : folder_(output.string() + ".calibrated"), asked_(joined(asked)) {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(folder_, error))) return;
  std::ifstream file(folder_ / kAskedName, std::ios::binary);
  const std::string found{std::istreambuf_iterator<char>(file), {}};
  if (found == asked_) return;
  throw Error(ErrorCode::kUsage, {folder_.string()},
              "has the layers of a calibration that did not end, of " + difference(found, asked_) +
                  "; repeat that one, or remove the folder");
}

fs::path StoredLayers::file_of(size_t number) const {
  return folder_ / ("layer-" + std::to_string(number));
}

uint64_t StoredLayers::lay_out(size_t number, const Layer& layer) {
  uint64_t end = 0;
  for (const PlannedTensor* p : layer) {
    Place& place = places_[p] = {number, {}, {}};
    for (const MatrixDescription::Tensor& t : p->described.tensors) {
      place.at.push_back(end);
      end += t.bytes();
    }
    place.next = place.at;
  }
  return end;
}

bool StoredLayers::find(size_t number, const Layer& layer) {
  std::error_code error;
  if (!fs::exists(file_of(number), error)) return false;
  const uint64_t bytes = lay_out(number, layer);
  const auto [file, added] = mapped_.try_emplace(number, file_of(number));
  if (file->second.bytes().size() == bytes) return true;
  throw Error(ErrorCode::kIo, {file_of(number).string()},
              "has " + std::to_string(file->second.bytes().size()) + " bytes; expected " + std::to_string(bytes) +
                  ": remove the folder");
}

void StoredLayers::make_folder() {
  std::error_code error;
  if (!fs::create_directory(folder_, error)) return weights::check_written(folder_, error);
  AtomicFile asked(folder_ / kAskedName);
  weights::check_written(asked.path(), asked.write_at(std::as_bytes(std::span(asked_)), 0));
  weights::check_written(asked.path(), asked.sync());
  weights::check_written(asked.path(), asked.commit());
}

void StoredLayers::begin(size_t number, const Layer& layer) {
  make_folder();
  number_ = number;
  const uint64_t bytes = lay_out(number, layer);
  file_ = std::make_unique<AtomicFile>(file_of(number), AtomicFileOptions{.bytes = bytes});
}

void StoredLayers::put(const PlannedTensor& p, size_t tensor, std::span<const std::byte> bytes) {
  uint64_t& next = places_.at(&p).next[tensor];
  weights::check_written(file_->path(), file_->write_at(bytes, next));
  next += bytes.size();
}

void StoredLayers::end() {
  weights::check_written(file_->path(), file_->sync());
  weights::check_written(file_->path(), file_->commit());
  file_.reset();
  mapped_.try_emplace(number_, file_of(number_));
}

std::span<const std::byte> StoredLayers::tensor(const PlannedTensor& p, size_t tensor) const {
  const Place& place = places_.at(&p);
  return mapped_.at(place.number).bytes().subspan(place.at[tensor], p.described.tensors[tensor].bytes());
}

void StoredLayers::remove() {
  mapped_.clear();
  std::error_code error;
  fs::remove_all(folder_, error);
  weights::check_written(folder_, error);
}

}  // namespace tenon
