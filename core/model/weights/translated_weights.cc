#include "translated_weights.h"

#include <algorithm>

namespace tenon::weights {

TranslatedWeights::TranslatedWeights(const Weights& source, Contents contents, std::vector<TensorOrigin> origins)
    : TableWeights(std::move(contents), source.files()), source_(source), origins_(std::move(origins)) {}

const TensorOrigin& TranslatedWeights::origin_of(const WeightTensor& tensor) const {
  return origins_.at(number_of(tensor.name));
}

void TranslatedWeights::read(const WeightTensor& tensor, uint64_t offset, std::span<std::byte> out) const {
  check_range(tensor, offset, out.size());
  const TensorOrigin& origin = origin_of(tensor);
  if (!origin.parts.empty()) return read_parts(origin.parts, offset, out);
  if (origin.source == nullptr) {
    std::copy_n(origin.bytes.begin() + static_cast<ptrdiff_t>(offset), out.size(), out.begin());
    return;
  }
  if (origin.row.empty()) return source_.read(*origin.source, offset, out);
  const uint64_t row_bytes = tensor.bytes / origin.row.size();
  while (!out.empty()) {
    const uint64_t begin = offset % row_bytes, n = std::min<uint64_t>(row_bytes - begin, out.size());
    source_.read(*origin.source, origin.row[offset / row_bytes] * row_bytes + begin, out.first(n));
    out = out.subspan(n);
    offset += n;
  }
}

void TranslatedWeights::read_parts(const std::vector<const WeightTensor*>& parts, uint64_t offset,
                                   std::span<std::byte> out) const {
  const uint64_t part_bytes = parts.front()->bytes;
  while (!out.empty()) {
    const uint64_t begin = offset % part_bytes, n = std::min<uint64_t>(part_bytes - begin, out.size());
    source_.read(*parts[offset / part_bytes], begin, out.first(n));
    out = out.subspan(n);
    offset += n;
  }
}

void TranslatedWeights::prefetch(const WeightTensor& tensor) const {
  const TensorOrigin& origin = origin_of(tensor);
  if (origin.source != nullptr) source_.prefetch(*origin.source);
  for (const WeightTensor* part : origin.parts) source_.prefetch(*part);
}

}  // namespace tenon::weights
