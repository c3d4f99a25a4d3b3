#include "gguf_writer.h"

#include <bit>

#include "gguf_parser.h"
#include "layout.h"

namespace tenon::weights {
namespace {

constexpr uint32_t kVersion = 3;
constexpr uint32_t kTypeU32 = 4;  // of a metadata value

static_assert(std::endian::native == std::endian::little);

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void put_string(std::string& out, std::string_view text) {
  put<uint64_t>(out, text.size());
  out += text;
}

}  // namespace

void GgufPairs::add_raw(std::string_view pair) {
  bytes_ += pair;
  ++count_;
}

void GgufPairs::add_u32(std::string_view key, uint32_t value) {
  put_string(bytes_, key);
  put(bytes_, kTypeU32);
  put(bytes_, value);
  ++count_;
}

GgufLayout lay_out_gguf(const GgufPairs& metadata, uint64_t alignment, std::vector<WeightTensor>& tensors) {
  GgufLayout result;
  std::string& out = result.header;
  put(out, kGgufMagic);
  put(out, kVersion);
  put<uint64_t>(out, tensors.size());
  put(out, metadata.count());
  out += metadata.bytes();
  uint64_t end = 0;  // of the data so far, from the start of the data
  for (WeightTensor& t : tensors) {
    const auto type = gguf_type_number(t.format);
    const auto bytes = stored_bytes(t.format, t.shape);
    if (!type || !bytes) throw Error(ErrorCode::kModel, "tensor " + describe(t) + " cannot be stored in GGUF");
    t.file = 0, t.bytes = *bytes, t.offset = aligned(end, alignment);
    end = t.offset + t.bytes;
    put_string(out, t.name);
    put(out, static_cast<uint32_t>(t.shape.size()));
    for (auto dim = t.shape.rbegin(); dim != t.shape.rend(); ++dim) put<uint64_t>(out, static_cast<uint64_t>(*dim));
    put(out, *type);
    put(out, t.offset);
  }
  if (!tensors.empty()) out.resize(aligned(out.size(), alignment));
  for (WeightTensor& t : tensors) t.offset += out.size();
  result.file_bytes = out.size() + end;
  return result;
}

}  // namespace tenon::weights
