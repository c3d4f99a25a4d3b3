// A step's logits go through samplers, as a pipeline would record them.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "conformance/device.h"
#include "conformance/op_runner.h"
#include "tenon/abi/sampler.h"

namespace tenon::conformance {

// A request asks this of a sampler: numbers and texts.
struct SettingValue {
  template <class Number>
    requires std::is_arithmetic_v<Number>
  SettingValue(Number value) : number(static_cast<double>(value)) {}
  SettingValue(std::string value) : text(std::move(value)) {}
  SettingValue(const char* value) : text(value) {}

  double number = 0;
  std::string text;
};
using Settings = std::vector<std::pair<std::string, SettingValue>>;
struct Candidate {
  int32_t id;
  float logit;
  bool operator==(const Candidate&) const = default;
};
using Candidates = std::vector<Candidate>;
using Logits = std::vector<float>;

// This is a row of a step; it has logits if they are wanted.
struct StepRow {
  Logits logits = {};  // they are empty if they are not wanted
  int32_t slot = 0, position = 0, token = 0, parent = -1;
};

// Returns rows of one slot, all wanted, at positions 0, 1, ...
std::vector<StepRow> rows_of(const std::vector<Logits>& logits);
// Returns logits that depend on the seed alone, about normal with that deviation; some equal, some minus infinity, some
// NaN if there is room.
Logits awkward_logits(uint32_t vocab, uint64_t seed, double deviation = 4);

class SamplerHost {
 public:
  // The bounds have room for `padding` more rows and out rows than there are.
  SamplerHost(uint32_t vocab, const std::vector<StepRow>& rows, uint32_t slots = 1, uint32_t padding = 2,
              const Device& device = Device::cpu());

  OpRunner& runner() { return runner_; }
  // These are the logits as they are, or a list of what is in, in random order.
  tenon_candidates dense() const { return dense_; }
  tenon_candidates sparse(uint64_t seed);
  // A pipeline keeps these for a sampler: its records and its state, zero at first. settings are those of each slot;
  // the last are those of all further slots.
  struct Entry {
    const tenon_sampler* table = nullptr;
    void* self = nullptr;
    tenon_tid params = 0, state = 0;

    tenon_sampling sampling(tenon_tid next) const;
  };
  Entry add(const Component& sampler, const std::vector<Settings>& settings = {{}});
  // These record ops. They throw Error with the sampler's reason.
  tenon_candidates apply(const Entry& entry, tenon_candidates c);
  tenon_tid select(const Entry& entry, const tenon_candidates& c);
  void accept(const Entry& entry, const tenon_candidates& given);

  // Runs everything recorded so far; the seed chooses how chunks are split over threads. Throws Error with what an op
  // did wrong.
  void run(uint64_t seed = 1);
  // Returns, after run(), the candidates of each wanted row, in order.
  std::vector<Candidates> candidates(const tenon_candidates& c) const;
  std::vector<int32_t> tokens(tenon_tid next) const;

 private:
  uint32_t vocab_, slots_, wanted_ = 0;
  OpRunner runner_;
  Logits logits_;  // (rows with padding, vocab)
  tenon_candidates dense_{};
};

}  // namespace tenon::conformance
