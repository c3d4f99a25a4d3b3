#include "table_weights.h"

#include <algorithm>

#include "layout.h"

namespace tenon::weights {
namespace {

std::vector<std::filesystem::path> paths(const std::vector<MappedFile>& files) {
  std::vector<std::filesystem::path> result;
  for (const MappedFile& file : files) result.push_back(file.path());
  return result;
}

}  // namespace

TableWeights::TableWeights(Contents contents, std::vector<std::filesystem::path> files)
    : contents_(std::move(contents)), files_(std::move(files)) {
  Findings findings(files_.empty() ? std::string() : files_.front().string());
  size_t number = 0;
  const auto add = [&](const WeightTensor& t) {
    const auto [known, added] = by_name_.emplace(t.name, number++);
    if (added) return;
    const auto place = [&](const WeightTensor& which) {
      return "byte " + std::to_string(which.offset) + " of " + files_.at(which.file).filename().string();
    };
    findings.add("tensor " + in_quotes(t.name) + " is there twice: at " + place(numbered(known->second)) + " and at " +
                 place(t));
  };
  std::for_each(contents_.tensors.begin(), contents_.tensors.end(), add);
  std::for_each(contents_.unlisted.begin(), contents_.unlisted.end(), add);
  findings.throw_if_any();
}

const WeightTensor* TableWeights::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &numbered(found->second);
}

const WeightTensor& TableWeights::numbered(size_t number) const {
  const size_t listed = contents_.tensors.size();
  return number < listed ? contents_.tensors[number] : contents_.unlisted[number - listed];
}

std::vector<const WeightTensor*> TableWeights::find_under(std::string_view name) const {
  std::vector<const WeightTensor*> all;
  const std::string prefix = std::string(name) + ".";
  for (auto at = by_name_.lower_bound(prefix); at != by_name_.end() && at->first.starts_with(prefix); ++at) {
    all.push_back(&numbered(at->second));
  }
  return all;
}

const MetadataValue* TableWeights::metadata(std::string_view key) const {
  const auto found = contents_.metadata.find(key);
  return found == contents_.metadata.end() ? nullptr : &found->second;
}

std::vector<std::string> TableWeights::metadata_keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : contents_.metadata) keys.push_back(key);
  return keys;
}

void TableWeights::check_range(const WeightTensor& tensor, uint64_t offset, size_t size) {
  if (offset <= tensor.bytes && size <= tensor.bytes - offset) return;
  throw Error(ErrorCode::kInternal, "tensor " + in_quotes(tensor.name) + " has " + std::to_string(tensor.bytes) +
                                        " bytes; asked for " + std::to_string(size) + " from " +
                                        std::to_string(offset) + " on");
}

FileWeights::FileWeights(Contents contents, std::vector<MappedFile> files)
    : TableWeights(std::move(contents), paths(files)), mappings_(std::move(files)) {}

const std::byte* FileWeights::bytes_of(const WeightTensor& tensor) const {
  return mappings_.at(tensor.file).bytes().data() + tensor.offset;
}

const std::byte* FileWeights::mapped(const WeightTensor& tensor) const {
  const std::byte* start = bytes_of(tensor);
  return reinterpret_cast<uintptr_t>(start) % natural_alignment(tensor.format) == 0 ? start : nullptr;
}

void FileWeights::read(const WeightTensor& tensor, uint64_t offset, std::span<std::byte> out) const {
  check_range(tensor, offset, out.size());
  mappings_.at(tensor.file).read(tensor.offset + offset, out);
}

void FileWeights::prefetch(const WeightTensor& tensor) const {
  mappings_.at(tensor.file).prefetch(tensor.offset, tensor.bytes);
}

void FileWeights::release(const WeightTensor& tensor, uint64_t offset, uint64_t bytes) const {
  mappings_.at(tensor.file).release(tensor.offset + offset, bytes);
}

}  // namespace tenon::weights
