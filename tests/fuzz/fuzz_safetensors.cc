// This reads safetensors from memory, and the same bytes as a config.json. Whatever is accepted must lie inside the
// file.
#include <cstdlib>

#include "model/weights/json_text.h"
#include "model/weights/safetensors_parser.h"
#include "tenon/core/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  try {
    const tenon::weights::SafetensorsFile file = tenon::weights::parse_safetensors(bytes, "fuzz.safetensors");
    for (const tenon::WeightTensor& t : file.tensors) {
      if (t.offset > size || t.bytes > size - t.offset) std::abort();
    }
  } catch (const tenon::Error&) {
  }
  try {
    const auto value = tenon::weights::parse_json({reinterpret_cast<const char*>(data), size}, "fuzz.json");
    tenon::weights::MetadataMap metadata;
    if (value.is_object()) tenon::weights::flatten_json(value.get_object(), "", metadata);
  } catch (const tenon::Error&) {
  }
  return 0;
}
