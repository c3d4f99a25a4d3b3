// Each tensor of these weights ends where a page begins that nobody may touch, so that reading past one is seen
// although the next lies after it in the file.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <utility>

#include "tenon/core/weights.h"

namespace tenon::fuzz {

class GuardedWeights : public Weights {
 public:
  explicit GuardedWeights(std::unique_ptr<Weights> weights) : weights_(std::move(weights)) {}
  ~GuardedWeights() override {
    for (const auto& [tensor, copy] : copies_) ::munmap(copy.pages, copy.length);
  }
  GuardedWeights(const GuardedWeights&) = delete;
  GuardedWeights& operator=(const GuardedWeights&) = delete;

  std::string_view convention() const override { return weights_->convention(); }
  const std::vector<std::filesystem::path>& files() const override { return weights_->files(); }
  const std::vector<WeightTensor>& tensors() const override { return weights_->tensors(); }
  const WeightTensor* find(std::string_view name) const override { return weights_->find(name); }
  std::vector<const WeightTensor*> find_under(std::string_view name) const override {
    return weights_->find_under(name);
  }
  const MetadataValue* metadata(std::string_view key) const override { return weights_->metadata(key); }
  std::vector<std::string> metadata_keys() const override { return weights_->metadata_keys(); }
  void read(const WeightTensor& tensor, uint64_t offset, std::span<std::byte> out) const override {
    weights_->read(tensor, offset, out);
  }

  const std::byte* mapped(const WeightTensor& tensor) const override {
    if (weights_->mapped(tensor) == nullptr) return nullptr;
    const auto [found, added] = copies_.try_emplace(&tensor);
    Copy& copy = found->second;
    if (!added) return copy.start;
    // This is aligned as elements of 4 bytes need it, no more.
    const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
    const uint64_t whole = (tensor.bytes + page - 1) / page * page;
    copy.length = whole + page;
    void* const pages = ::mmap(nullptr, copy.length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) std::abort();
    copy.pages = static_cast<std::byte*>(pages);
    copy.start = copy.pages + whole - (tensor.bytes + 3) / 4 * 4;
    weights_->read(tensor, 0, {copy.start, tensor.bytes});
    if (::mprotect(copy.pages, whole, PROT_READ) != 0 || ::mprotect(copy.pages + whole, page, PROT_NONE) != 0) {
      std::abort();
    }
    return copy.start;
  }

 private:
  struct Copy {
    std::byte *pages = nullptr, *start = nullptr;
    uint64_t length = 0;
  };
  std::unique_ptr<Weights> weights_;
  mutable std::map<const WeightTensor*, Copy> copies_;
};

}  // namespace tenon::fuzz
