// These weights have their tensors and metadata as tables in memory; the readers differ in where the bytes come from.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "mapped_file.h"
#include "tenon/core/weights.h"

namespace tenon::weights {

using MetadataMap = std::map<std::string, MetadataValue, std::less<>>;

struct Contents {
  std::string_view convention;  // it has static storage
  std::vector<WeightTensor> tensors;
  MetadataMap metadata;
  std::vector<WeightTensor> unlisted = {};  // these are found by name, but not listed: a model need not use them
};

class TableWeights : public Weights {
 public:
  std::string_view convention() const override { return contents_.convention; }
  const std::vector<std::filesystem::path>& files() const override { return files_; }
  const std::vector<WeightTensor>& tensors() const override { return contents_.tensors; }
  const WeightTensor* find(std::string_view name) const override;
  std::vector<const WeightTensor*> find_under(std::string_view name) const override;
  const MetadataValue* metadata(std::string_view key) const override;
  std::vector<std::string> metadata_keys() const override;

 protected:
  // Throws Error(kModel) where two tensors have one name.
  TableWeights(Contents contents, std::vector<std::filesystem::path> files);

  // Returns the number of the tensor that has the name: the listed ones are counted from 0, then the unlisted ones.
  size_t number_of(std::string_view name) const { return by_name_.at(name); }

  // Throws Error(kInternal) unless [offset, offset + size) lies in the tensor.
  static void check_range(const WeightTensor& tensor, uint64_t offset, size_t size);

 private:
  const WeightTensor& numbered(size_t number) const;

  Contents contents_;
  std::vector<std::filesystem::path> files_;
  std::map<std::string_view, size_t> by_name_;
};

// These are tensors in mapped files; `WeightTensor::file` counts the files in the order given.
class FileWeights : public TableWeights {
 public:
  FileWeights(Contents contents, std::vector<MappedFile> files);

  const std::byte* mapped(const WeightTensor& tensor) const override;
  void read(const WeightTensor& tensor, uint64_t offset, std::span<std::byte> out) const override;
  void prefetch(const WeightTensor& tensor) const override;
  void release(const WeightTensor& tensor, uint64_t offset, uint64_t bytes) const override;

 protected:
  // Returns where the file has the tensor, aligned or not.
  const std::byte* bytes_of(const WeightTensor& tensor) const;

 private:
  std::vector<MappedFile> mappings_;
};

}  // namespace tenon::weights
