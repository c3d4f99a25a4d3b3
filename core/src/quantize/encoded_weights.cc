#include "encoded_weights.h"

#include <algorithm>

namespace tenon {
namespace {

weights::Contents contents_of(const Weights& source, const EncodedTensors& encoded, const std::string& description) {
  weights::Contents contents{source.convention(), {}, {}};
  for (const WeightTensor& t : source.tensors()) {
    const bool matrix = t.name.ends_with(".weight") && encoded.contains(t.name.substr(0, t.name.rfind('.')));
    if (!matrix && !encoded.contains(t.name)) contents.tensors.push_back(t);
  }
  for (const auto& [name, tensors] : encoded) {
    for (const EncodedTensor& e : tensors) contents.tensors.push_back(e.tensor);
  }
  for (const std::string& key : source.metadata_keys()) contents.metadata.emplace(key, *source.metadata(key));
  if (!encoded.empty()) contents.metadata["quantization_config"] = description;  // nothing would read it
  return contents;
}

}  // namespace

EncodedWeights::EncodedWeights(const Weights& source, const EncodedTensors& encoded, const std::string& description)
    : TableWeights(contents_of(source, encoded, description), source.files()), source_(source) {
  for (const auto& [name, tensors] : encoded) {
    for (const EncodedTensor& e : tensors) bytes_[e.tensor.name] = e.bytes;
  }
}

const std::byte* EncodedWeights::mapped(const WeightTensor& tensor) const {
  const auto own = bytes_.find(tensor.name);
  return own == bytes_.end() ? source_.mapped(tensor) : own->second.data();
}

void EncodedWeights::read(const WeightTensor& tensor, uint64_t offset, std::span<std::byte> out) const {
  const auto own = bytes_.find(tensor.name);
  if (own == bytes_.end()) return source_.read(tensor, offset, out);
  check_range(tensor, offset, out.size());
  std::copy_n(own->second.begin() + static_cast<ptrdiff_t>(offset), out.size(), out.begin());
}

void EncodedWeights::prefetch(const WeightTensor& tensor) const {
  if (!bytes_.contains(tensor.name)) source_.prefetch(tensor);
}

void EncodedWeights::release(const WeightTensor& tensor, uint64_t offset, uint64_t bytes) const {
  if (!bytes_.contains(tensor.name)) source_.release(tensor, offset, bytes);
}

}  // namespace tenon
