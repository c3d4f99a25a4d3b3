// This lays out a GGUF file of version 3, little endian: header, metadata, directory, and for each tensor where its
// data go (ggml's docs/gguf.md). The data themselves are written by others. Invariants: a tensor begins at a multiple
// of the alignment after the one before it; the directory has shapes innermost first and offsets from where the data
// begin, while the tensors get offsets from the file's start.
#include "gguf_writer.h"

#include <bit>
#include <utility>

#include "gguf_parser.h"
#include "layout.h"

namespace tenon::weights {
namespace {

constexpr uint32_t kWrittenVersion = 3;
// These are the types of metadata values.
constexpr uint32_t kTypeU32 = 4, kTypeI32 = 5, kTypeF32 = 6, kTypeBool = 7, kTypeString = 8, kTypeArray = 9,
                   kTypeU64 = 10, kTypeI64 = 11;

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

void GgufPairs::begin(std::string_view key, uint32_t type) {
  put_string(bytes_, key);
  put(bytes_, type);
  ++count_;
}

void GgufPairs::add_u32(std::string_view key, uint32_t value) {
  begin(key, kTypeU32);
  put(bytes_, value);
}

void GgufPairs::add(std::string_view key, const MetadataValue& value) {
  const auto array = [&]<class T>(uint32_t type, const std::vector<T>& values, auto&& put_one) {
    begin(key, kTypeArray);
    put(bytes_, type);
    put<uint64_t>(bytes_, values.size());
    for (const T& one : values) put_one(one);
  };
  const auto scalar = [&](uint32_t type, auto number) {
    begin(key, type);
    put(bytes_, number);
  };
  if (const auto* flag = std::get_if<bool>(&value)) return scalar(kTypeBool, static_cast<uint8_t>(*flag ? 1 : 0));
  if (const auto* whole = std::get_if<int64_t>(&value)) {
    if (std::in_range<uint32_t>(*whole)) return scalar(kTypeU32, static_cast<uint32_t>(*whole));
    return scalar(kTypeI64, *whole);
  }
  if (const auto* large = std::get_if<uint64_t>(&value)) return scalar(kTypeU64, *large);
  if (const auto* real = std::get_if<double>(&value)) return scalar(kTypeF32, static_cast<float>(*real));
  if (const auto* text = std::get_if<std::string>(&value)) {
    begin(key, kTypeString);
    return put_string(bytes_, *text);
  }
  if (const auto* all = std::get_if<std::vector<int64_t>>(&value)) {
    return array(kTypeI32, *all, [&](int64_t one) { put(bytes_, static_cast<int32_t>(one)); });
  }
  if (const auto* all = std::get_if<std::vector<double>>(&value)) {
    return array(kTypeF32, *all, [&](double one) { put(bytes_, static_cast<float>(one)); });
  }
  array(kTypeString, std::get<std::vector<std::string>>(value),
        [&](const std::string& one) { put_string(bytes_, one); });
}

GgufLayout lay_out_gguf(const GgufPairs& metadata, uint64_t alignment, std::vector<WeightTensor>& tensors) {
  GgufLayout result;
  std::string& out = result.header;
  put(out, kGgufMagic);
  put(out, kWrittenVersion);
  put<uint64_t>(out, tensors.size());
  put(out, metadata.count());
  out += metadata.bytes();
  uint64_t end = 0;  // the data so far ends there, counted from its start
  for (WeightTensor& t : tensors) {
    const auto type = gguf_type_number(t.format);
    const auto bytes = stored_bytes(t.format, t.shape);
    if (!type || !bytes) throw Error(ErrorCode::kModel, "tensor " + describe(t) + " cannot be stored in GGUF");
    t.file = 0;
    t.bytes = *bytes;
    t.offset = aligned(end, alignment);
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
