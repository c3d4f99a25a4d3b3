// quantization.gptq has this name and these codings.
#pragma once

#include <memory>

#include "../published/grouped_codings.h"
#include "tenon/abi/quantization.h"
#include "tenon/sdk/params.h"

namespace tenon::published {
class Matrix;
}

namespace tenon::gptq {

struct Schema {
  static constexpr const char* kName = "gptq";
  static constexpr const char* kDoc = "checkpoints in GPTQ's form: 2, 3, 4 or 8 bits in groups; activations in f32";
  // They say what is written; what is read says itself how it is stored.
  static constexpr auto kParams = sdk::params(
      sdk::integer(
          {.name = "bits", .doc = "written: bits of a weight", .value = 4, .choices = "2|3|4|8", .unit = "bits"}),
      sdk::integer({.name = "group_size",
                    .doc = "written: weights of a row that share a scale and a zero point; -1: the whole row",
                    .value = 128,
                    .choices = "-1|32|64|128",
                    .unit = "weights"}),
      sdk::boolean({.name = "act_order",
                    .doc = "written: columns with the largest inputs are rounded first, and groups follow that order",
                    .value = false}),
      sdk::boolean({.name = "static_groups",
                    .doc = "written: groups are columns side by side, with the scales of the weights as they were",
                    .value = false}),
      sdk::boolean({.name = "symmetric", .doc = "written: the zero point is the middle code", .value = false}),
      sdk::boolean({.name = "search",
                    .doc = "written: a group's scale is that of the part of its range that leaves the least error",
                    .value = false}),
      sdk::real({.name = "damp",
                 .doc = "written: this share of the mean of x^2 is added to that of each column",
                 .value = 0.01,
                 .min = 1e-6,
                 .max = 1}));

  static constexpr auto kCodings = published::HalfCodings::of_bits<2, 3, 4, 8>();
  template <uint32_t kIndex>
  using Codes = coded::IntegerCodes<kCodings[kIndex].bits>;
  static std::unique_ptr<published::Matrix> published(const tenon_linear& s, uint32_t mat);
};

}  // namespace tenon::gptq
