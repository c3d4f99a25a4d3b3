// These weights are made up on the spot. Element pairs 2p, 2p + 1 of a tensor come from one 64-bit word, a hash of
// (seed, name, p), so any range can be had alone and in any order. The sum of four random bytes is close to normal
// (standard deviation 147.8 in steps of 1, cut at 3.45 deviations) and, unlike a logarithm, the same on every machine.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "layout.h"
#include "readers.h"
#include "synthetic_shapes.h"
#include "tenon/sdk/error.h"

namespace tenon::weights {
namespace {

constexpr std::string_view kPrefix = "synthetic:";
constexpr float kDeviation = 0.02F;
constexpr int kSums = 4 * 255 + 1;
constexpr int kMiddle = 2 * 255;
constexpr float kSumDeviation = 147.80F;  // sqrt(4 * (256^2 - 1) / 12)

// This is the finalizer of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
constexpr uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}
constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;

uint64_t name_hash(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// It converts zero and numbers that are normal in f16; the smallest value here is 1.4e-4.
uint16_t to_f16(float value) {
  if (value == 0) return 0;
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = (bits & 0x7fffffff) - (uint32_t{127 - 15} << 23);
  return static_cast<uint16_t>((bits >> 16 & 0x8000) | ((magnitude + 0xfff + ((magnitude >> 13) & 1)) >> 13));
}

class SyntheticWeights final : public TableWeights {
 public:
  SyntheticWeights(const SyntheticShape& shape, const WeightsOptions& options)
      : TableWeights({"huggingface", synthetic_tensors(shape, options.format), synthetic_config(shape, options.format)},
                     {}),
        seed_(options.seed) {
    for (int i = 0; i < kSums; ++i) {
      const float value = static_cast<float>(i - kMiddle) * (kDeviation / kSumDeviation);
      matrix_.put(i, value, options.format);
      norm_.put(i, 1 + value, options.format);
    }
  }

  const std::byte* mapped(const WeightTensor&) const override { return nullptr; }

  void read(const WeightTensor& tensor, uint64_t offset, std::span<std::byte> out) const override {
    check_range(tensor, offset, out.size());
    if (tensor.format == TENON_F32) {
      generate<float>(tensor, offset, out);
    } else {
      generate<uint16_t>(tensor, offset, out);
    }
  }

  std::optional<tenon_generated> generated(const WeightTensor& tensor, uint64_t offset, uint64_t bytes) const override {
    const uint64_t element = tensor.format == TENON_F32 ? sizeof(float) : sizeof(uint16_t);
    if (offset % (2 * element) != 0) return {};
    auto made = sdk::abi_struct<tenon_generated>();
    made.format = tensor.format;
    made.key = key_of(tensor);
    made.first = offset / element;
    made.count = bytes / element;
    const Values& which = values_of(tensor);
    made.table = tensor.format == TENON_F32 ? static_cast<const void*>(which.floats.data()) : which.halves.data();
    return made;
  }

 private:
  // This has the element that each sum of four bytes stands for.
  struct Values {
    std::array<uint16_t, kSums> halves;
    std::array<float, kSums> floats;

    void put(int sum, float value, tenon_format format) {
      floats[static_cast<size_t>(sum)] = value;
      halves[static_cast<size_t>(sum)] = format == TENON_F16 ? to_f16(value) : to_bf16(value);
    }
  };

  uint64_t key_of(const WeightTensor& tensor) const { return mix(seed_ + kGolden) ^ name_hash(tensor.name); }
  const Values& values_of(const WeightTensor& tensor) const { return tensor.shape.size() == 1 ? norm_ : matrix_; }

  template <class Element>
  const std::array<Element, kSums>& values(const WeightTensor& tensor) const {
    const Values& which = values_of(tensor);
    if constexpr (sizeof(Element) == sizeof(float)) {
      return which.floats;
    } else {
      return which.halves;
    }
  }

  // Makes whole pairs in a buffer, of which the bytes asked for are copied.
  template <class Element>
  void generate(const WeightTensor& tensor, uint64_t offset, std::span<std::byte> out) const {
    constexpr uint64_t kPairBytes = 2 * sizeof(Element);
    const std::array<Element, kSums>& table = values<Element>(tensor);
    const uint64_t key = key_of(tensor);
    std::array<Element, 1024> buffer;
    while (!out.empty()) {
      const uint64_t first = offset / kPairBytes, skip = offset % kPairBytes;
      const uint64_t count = std::min<uint64_t>(buffer.size() / 2, (skip + out.size() + kPairBytes - 1) / kPairBytes);
      for (uint64_t i = 0; i < count; ++i) {
        const uint64_t word = mix(key + (first + i + 1) * kGolden);
        const uint64_t twos = (word & 0x00ff00ff00ff00ff) + ((word >> 8) & 0x00ff00ff00ff00ff);
        const uint64_t fours = (twos & 0x0000ffff0000ffff) + ((twos >> 16) & 0x0000ffff0000ffff);
        buffer[2 * i] = table[fours & 0xffff];
        buffer[2 * i + 1] = table[fours >> 32];
      }
      const uint64_t bytes = std::min<uint64_t>(out.size(), count * kPairBytes - skip);
      std::memcpy(out.data(), reinterpret_cast<const std::byte*>(buffer.data()) + skip, bytes);
      out = out.subspan(bytes);
      offset += bytes;
    }
  }

  uint64_t seed_;
  Values matrix_, norm_;
};

}  // namespace

bool claims_synthetic(const std::string& path) {
  return path.starts_with(kPrefix);
}

std::unique_ptr<Weights> open_synthetic(const std::string& path, const WeightsOptions& options) {
  const std::string name = path.substr(kPrefix.size());
  if (options.format != TENON_BF16 && options.format != TENON_F16 && options.format != TENON_F32) {
    throw Error(ErrorCode::kConfig,
                path + ": synthetic weights can be bf16, f16 or f32, not " + tenon_format_name(options.format));
  }
  std::vector<std::string> known;
  for (const SyntheticShape& shape : synthetic_shapes()) {
    if (shape.name == name) return std::make_unique<SyntheticWeights>(shape, options);
    known.emplace_back(shape.name);
  }
  const std::string nearest = nearest_name(name, known);
  std::string message = "no synthetic model " + in_quotes(name);
  message += nearest.empty() ? "." : "; did you mean " + in_quotes(nearest) + "?";
  message += " There are";
  for (size_t i = 0; i < known.size(); ++i) message += (i > 0 ? ", " : " ") + known[i];
  throw Error(ErrorCode::kModel, message);
}

}  // namespace tenon::weights
