// GGUF is read from memory. Whatever is accepted must lie inside the file, apart and aligned as promised.
#include <cstdlib>

#include "model/weights/gguf_parser.h"
#include "tenon/core/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  try {
    const tenon::weights::GgufFile file = tenon::weights::parse_gguf(bytes, "fuzz.gguf");
    for (const tenon::WeightTensor& t : file.tensors) {
      if (t.offset > size || t.bytes > size - t.offset) std::abort();
    }
  } catch (const tenon::Error&) {
  }
  return 0;
}
