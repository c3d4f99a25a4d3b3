// Names tell what sort of work an operation or a kernel does.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tenon::view {

enum class Work : uint8_t {
  kGemv,
  kGemm,
  kAttention,
  kKvCache,
  kNorm,
  kSampling,
  kEmbedding,
  kCopy,
  kOther,
  kGap,
  kHost
};
inline constexpr size_t kWorks = 11;

// Returns "GEMV", "attention", ..., "gap" (between operations of a step) or "host" (before its first, after its last).
const char* label(Work work);

// Any of the three may be empty. `name` is the slice's; in other writers' traces a kernel's or an aten operator's.
Work work_of(std::string_view component, std::string_view op, std::string_view name);

// Numbers of layers and steps become '*': "layers.3.mlp.down" is "layers.*.mlp.down", "ProfilerStep#7"
// "ProfilerStep#*", "layer 3" "layer *".
std::string without_numbers(std::string_view name);

// Returns the number after "layers." or "layer "; -1 if there is none.
int layer_of(std::string_view name);

}  // namespace tenon::view
