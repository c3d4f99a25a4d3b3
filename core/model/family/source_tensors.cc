// Each function finds a tensor by the name that the family file has for a path in this convention (GGUF or Hugging
// Face) and declares it. A tensor that the model needs and the weights lack is refused by that name, so that all
// refusals of a model are reported together.
#include "source_tensors.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include "../weights/expert_tensors.h"
#include "../weights/layout.h"
#include "../weights/metadata_ledger.h"
#include "family_config.h"

namespace tenon::family {

const WeightTensor* SourceTensors::find(const std::string& path, const char* suffix) const {
  const std::string name = tensor_name(family_, weights_.convention(), path, suffix);
  return name.empty() ? nullptr : weights_.find(name);
}

void SourceTensors::leave_out(uint32_t layer) const {
  for (const std::string& path : layer_tensors(family_, layer)) {
    for (const WeightTensor* t : everything_of(path)) declare_.uses(*t);
    if (const WeightTensor* t = find(path)) declare_.uses(*t);
    const std::string name = matrix_name(path);
    if (name.find('*') == std::string::npos) continue;
    for (const char* suffix : {"weight", "bias"}) {
      if (const WeightTensor* stacked = stacked_of(path, suffix)) declare_.uses(*stacked);
    }
    for (const WeightTensor& t : weights_.tensors()) {
      if (weights::matches_any(t.name, std::vector{name + ".*"})) declare_.uses(t);
    }
  }
}

void SourceTensors::leave_out(const std::string& path) const {
  for (const WeightTensor* t : everything_of(path)) declare_.uses(*t);
  if (const WeightTensor* t = find(path)) declare_.uses(*t);
}

VectorId SourceTensors::biases(const std::string& name, const std::vector<std::string>& paths, int64_t each) const {
  std::vector<const WeightTensor*> tensors;
  for (const std::string& path : paths) {
    const WeightTensor* t = find(path, "bias");
    if (t == nullptr) {
      refuse_missing(path, "bias");
      return declare_.vector(name, {}, each * static_cast<int64_t>(paths.size()));
    }
    tensors.push_back(t);
  }
  return declare_.vector(name, std::move(tensors), each * static_cast<int64_t>(paths.size()));
}

void SourceTensors::use_stacked(const std::string& path, uint32_t experts) const {
  for (const char* suffix : {"weight", "bias"}) {
    const WeightTensor* t = stacked_of(path, suffix);
    if (t == nullptr) continue;
    declare_.uses(*t);
    if (t->shape.empty() || t->shape.front() == experts) continue;
    declare_.refuse("tensor \"" + t->name + "\" is " + weights::describe(*t) + ", expected " + std::to_string(experts) +
                    " experts");
  }
}

void SourceTensors::check_tied_head() const {
  const WeightTensor *head = find("lm_head"), *embedding = find("embedding");
  if (head == nullptr || embedding == nullptr) return;
  declare_.uses(*head);
  if (!same_bytes(*head, *embedding)) {
    declare_.refuse("tensor \"" + head->name + "\" is not the same as \"" + embedding->name +
                    "\", but tie_word_embeddings is true; expected equal tensors, no head of its own, or "
                    "tie_word_embeddings = false");
  }
}

Matrix SourceTensors::matrix(const std::string& path, int64_t rows) const {
  const std::string name = matrix_name(path);
  Matrix m{.path = path, .name = name, .tensors = everything_of(path), .rows = rows};
  std::erase_if(m.tensors, [&](const WeightTensor* t) { return t->name == name + ".bias"; });
  if (m.tensors.empty()) refuse_missing(path, "weight");
  return m;
}

VectorId SourceTensors::vector(const std::string& path, const char* suffix, int64_t length) const {
  const std::string name = suffix == std::string_view("weight") ? path : path + "." + suffix;
  const WeightTensor* tensor = find(path, suffix);
  if (tensor == nullptr) {
    refuse_missing(path, suffix);
    return declare_.vector(name, {}, length);
  }
  const VectorId id = declare_.vector(name, {tensor}, length);
  if (name == path && names_of(family_, path).plus_one.in(weights_.convention())) declare_.add_to(id, 1);
  return id;
}

std::string SourceTensors::matrix_name(const std::string& path) const {
  if (names_of(family_, path).bare.in(weights_.convention())) return "";
  const std::string name = tensor_name(family_, weights_.convention(), path);
  return name.substr(0, name.rfind('.'));
}

const WeightTensor* SourceTensors::stacked_of(const std::string& path, const char* suffix) const {
  return weights_.find(weights::stacked_name(tensor_name(family_, weights_.convention(), path, suffix)));
}

std::vector<const WeightTensor*> SourceTensors::everything_of(const std::string& path) const {
  const std::string name = matrix_name(path);
  return name.empty() ? std::vector<const WeightTensor*>() : weights_.find_under(name);
}

bool SourceTensors::same_bytes(const WeightTensor& a, const WeightTensor& b) const {
  if (a.format != b.format || a.shape != b.shape) return false;
  std::vector<std::byte> from_a(1 << 20), from_b(1 << 20);
  for (uint64_t at = 0; at < a.bytes; at += from_a.size()) {
    const uint64_t n = std::min<uint64_t>(a.bytes - at, from_a.size());
    weights_.read(a, at, std::span(from_a).first(n));
    weights_.read(b, at, std::span(from_b).first(n));
    if (!std::equal(from_a.begin(), from_a.begin() + static_cast<ptrdiff_t>(n), from_b.begin())) return false;
  }
  return true;
}

void SourceTensors::refuse_missing(const std::string& path, const char* suffix) const {
  if (tensor_name(family_, weights_.convention(), path, suffix).empty()) {
    return declare_.refuse("the family " + family_.name + " does not say how " +
                           (weights_.convention() == "gguf" ? "GGUF" : "a Hugging Face folder") + " has \"" + path +
                           "\"; " + family_.file.string() + " has the names that it knows");
  }
  declare_.refuse("tensor \"" + tensor_name(family_, weights_.convention(), path, suffix) + "\" is missing");
}

}  // namespace tenon::family
