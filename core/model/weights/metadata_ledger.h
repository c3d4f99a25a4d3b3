// This notes what a model looks at in the metadata of its weights: a key that nobody has read may say that the model
// computes something else than is computed here.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "tenon/core/error.h"
#include "tenon/core/weights.h"

namespace tenon::weights {

// Returns whether a name matches a pattern, in which each '*' stands for any text.
bool matches(std::string_view name, std::string_view pattern);
bool matches_any(std::string_view name, std::span<const std::string_view> patterns);
bool matches_any(std::string_view name, std::span<const std::string> patterns);

// Returns keys that change no number of any model: names, licences, the tokenizer, how a text is generated.
std::span<const std::string_view> harmless_keys(std::string_view convention);

// These are the weights, with each key noted that is asked for. One thread uses it; the source must outlive it.
class MetadataLedger final : public Weights {
 public:
  explicit MetadataLedger(const Weights& source) : source_(source) {}

  // Says what is wrong with each key that was not asked for, is not harmless by its convention, matches none of
  // the patterns and is not to be ignored. A name to ignore stands for the key of that name and for those below
  // it ("auto_map" for "auto_map.AutoConfig").
  std::vector<Diagnostic> unknown_keys(std::span<const std::string> harmless,
                                       std::span<const std::string> ignored = {}) const;
  // Says what is wrong with each name to ignore that stands for no such key.
  std::vector<Diagnostic> needlessly_ignored(std::span<const std::string> harmless,
                                             std::span<const std::string> ignored) const;

  const MetadataValue* metadata(std::string_view key) const override {
    asked_.emplace(key);
    return source_.metadata(key);
  }
  std::vector<std::string> metadata_keys() const override { return source_.metadata_keys(); }

  std::string_view convention() const override { return source_.convention(); }
  const std::vector<std::filesystem::path>& files() const override { return source_.files(); }
  const std::vector<WeightTensor>& tensors() const override { return source_.tensors(); }
  const WeightTensor* find(std::string_view name) const override { return source_.find(name); }
  std::vector<const WeightTensor*> find_under(std::string_view name) const override { return source_.find_under(name); }
  const std::byte* mapped(const WeightTensor& tensor) const override { return source_.mapped(tensor); }
  void read(const WeightTensor& tensor, uint64_t offset, std::span<std::byte> out) const override {
    source_.read(tensor, offset, out);
  }
  std::optional<tenon_generated> generated(const WeightTensor& tensor, uint64_t offset, uint64_t bytes) const override {
    return source_.generated(tensor, offset, bytes);
  }
  void prefetch(const WeightTensor& tensor) const override { source_.prefetch(tensor); }
  void release(const WeightTensor& tensor, uint64_t offset, uint64_t bytes) const override {
    source_.release(tensor, offset, bytes);
  }

 private:
  bool is_unknown(const std::string& key, std::span<const std::string> harmless) const;

  const Weights& source_;
  mutable std::set<std::string, std::less<>> asked_;
};

}  // namespace tenon::weights
