// This selector chooses a token outside of the vocabulary, or none; it records the same for every device.
#pragma once

#include <cstdint>
#include <span>

#include "tenon/sdk/sampler.h"

namespace tenon::bad {

struct ChoosesWrong : sdk::Sampler<ChoosesWrong> {
  static constexpr const char* kName = "chooses_wrong";
  static constexpr const char* kDoc = "Chooses no proper token.";
  static constexpr auto kParams = sdk::params(
      sdk::integer({.name = "token", .doc = "What it chooses; -2 = nothing.", .value = -1, .min = -2, .max = 1 << 30}));
  static constexpr uint32_t kInForms = TENON_DENSE;
  struct Record {
    int32_t none;
  };
  struct Args {
    int32_t token;
    uint32_t rows;
  };

  ChoosesWrong(const sdk::Params& params, const sdk::Env&) : token_(static_cast<int32_t>(params.integer("token"))) {}

  Record encode(const sdk::Params&) const { return {}; }
  void record_select(const tenon_candidates&, const tenon_sampling& s, sdk::Recorder& r) {
    if (token_ == -2) return;
    const tenon_operand operands[] = {{s.next, TENON_WRITE}};
    emit(r, operands, Args{token_, r.bounds().out_rows});
  }

 private:
  // Emits the device's op that chooses the token in every row.
  static void emit(sdk::Recorder& r, std::span<const tenon_operand> operands, const Args& args);

  int32_t token_;
};

}  // namespace tenon::bad
