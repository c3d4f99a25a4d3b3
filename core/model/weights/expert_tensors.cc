#include "expert_tensors.h"

#include "layout.h"

namespace tenon::weights {
namespace {

constexpr std::string_view kStacked = "_exps";

}  // namespace

std::vector<WeightTensor> expert_tensors(const WeightTensor& tensor) {
  const size_t dot = tensor.name.rfind('.');
  if (dot == std::string::npos || !tensor.name.substr(0, dot).ends_with(kStacked)) return {};
  if (tensor.shape.size() < 2 || tensor.shape.front() < 1 || tensor.shape.front() > kMostExperts) return {};
  WeightTensor part = tensor;
  part.shape.erase(part.shape.begin());
  const auto experts = static_cast<uint64_t>(tensor.shape.front());
  const auto bytes = stored_bytes(part.format, part.shape);
  if (!bytes || *bytes * experts != tensor.bytes) return {};
  part.bytes = *bytes;
  std::vector<WeightTensor> parts;
  for (uint64_t e = 0; e < experts; ++e) {
    part.name = tensor.name.substr(0, dot) + "." + std::to_string(e) + tensor.name.substr(dot);
    part.offset = tensor.offset + e * *bytes;
    parts.push_back(part);
  }
  return parts;
}

std::string stacked_name(std::string_view name) {
  const size_t suffix = name.rfind('.');
  if (suffix == std::string_view::npos || suffix == 0) return "";
  const size_t number = name.rfind('.', suffix - 1);
  if (number == std::string_view::npos || !name.substr(0, number).ends_with(kStacked)) return "";
  return std::string(name.substr(0, number)) + std::string(name.substr(suffix));
}

}  // namespace tenon::weights
