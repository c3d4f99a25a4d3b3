// quantization.sparse24 has this name and these parameters on every device.
#pragma once

#include "definition.h"
#include "tenon/sdk/params.h"

namespace tenon::sparse24 {

struct Schema {
  static constexpr const char* kName = "sparse24";
  static constexpr const char* kDoc = "two of every four weights, in 4 bits with a scale in fp16; activations in f32";
  static constexpr auto kParams = sdk::params(sdk::integer({.name = "group_size",
                                                            .doc = "weights that share a scale; -1: a row",
                                                            .value = 128,
                                                            .min = -1,
                                                            .max = 128,
                                                            .choices = "-1|32|64|128"}));
  // Returns the index in kGroups.
  static uint32_t choose(const sdk::Params& params) {
    const int64_t size = params.integer("group_size");
    for (uint32_t i = 1; i < kGroupCount; ++i) {
      if (size == kGroups[i]) return i;
    }
    return 0;
  }
};

}  // namespace tenon::sparse24
