// Model files for tests: GGUF and safetensors in memory or on disk. Writes what it is told, so that broken files can be
// had by asking for them or by editing the bytes.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tenon::testing {

using Bytes = std::string;

template <class T>
void append(Bytes& out, T value) {
  char raw[sizeof(T)];
  std::memcpy(raw, &value, sizeof(T));
  out.append(raw, sizeof(T));
}

inline void append_string(Bytes& out, std::string_view text) {
  append<uint64_t>(out, text.size());
  out += text;
}

template <class T>
Bytes bytes_of(const std::vector<T>& values) {
  Bytes out;
  for (const T value : values) append(out, value);
  return out;
}

inline void write_file(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

// These are GGUF's numbers of value types.
enum class GgufType : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };

template <class T>
constexpr GgufType gguf_type() {
  if constexpr (std::is_same_v<T, uint8_t>) return GgufType::kU8;
  if constexpr (std::is_same_v<T, int8_t>) return GgufType::kI8;
  if constexpr (std::is_same_v<T, uint16_t>) return GgufType::kU16;
  if constexpr (std::is_same_v<T, int16_t>) return GgufType::kI16;
  if constexpr (std::is_same_v<T, uint32_t>) return GgufType::kU32;
  if constexpr (std::is_same_v<T, int32_t>) return GgufType::kI32;
  if constexpr (std::is_same_v<T, float>) return GgufType::kF32;
  if constexpr (std::is_same_v<T, bool>) return GgufType::kBool;
  if constexpr (std::is_same_v<T, uint64_t>) return GgufType::kU64;
  if constexpr (std::is_same_v<T, int64_t>) return GgufType::kI64;
  if constexpr (std::is_same_v<T, double>) return GgufType::kF64;
}

class GgufWriter {
 public:
  uint32_t version = 3;
  uint32_t alignment = 32;  // it is the data's; write the key general.alignment as well where it is not 32
  std::optional<uint64_t> tensor_count, pair_count;  // the header claims these; the truth if not set

  template <class T>
  GgufWriter& add(std::string_view key, T value) {
    Bytes raw;
    append(raw, value);
    return add_raw(key, gguf_type<T>(), raw);
  }
  GgufWriter& add(std::string_view key, const char* text) { return add(key, std::string_view(text)); }
  GgufWriter& add(std::string_view key, const std::string& text) { return add(key, std::string_view(text)); }
  GgufWriter& add(std::string_view key, std::string_view text) {
    Bytes raw;
    append_string(raw, text);
    return add_raw(key, GgufType::kString, raw);
  }
  template <class T>
  GgufWriter& add(std::string_view key, const std::vector<T>& values) {
    return add_raw(key, GgufType::kArray, array(gguf_type<T>(), values.size(), bytes_of(values)));
  }
  GgufWriter& add(std::string_view key, const std::vector<std::string>& values) {
    Bytes raw;
    for (const std::string& value : values) append_string(raw, value);
    return add_raw(key, GgufType::kArray, array(GgufType::kString, values.size(), raw));
  }
  // `value` is the value as it stands in the file.
  GgufWriter& add_raw(std::string_view key, GgufType type, std::string_view value) {
    append_string(pairs_, key);
    append(pairs_, static_cast<uint32_t>(type));
    pairs_ += value;
    ++pairs_written_;
    return *this;
  }
  // Returns the value of an array: element type, count, elements.
  static Bytes array(GgufType type, uint64_t count, std::string_view elements) {
    Bytes raw;
    append(raw, static_cast<uint32_t>(type));
    append(raw, count);
    return raw.append(elements);
  }

  // `type` is ggml's number; `dims` outermost first; `offset` from the start of the data, the next free one if not
  // given.
  GgufWriter& tensor(std::string_view name, uint32_t type, std::vector<uint64_t> dims, std::string_view data,
                     std::optional<uint64_t> offset = {}) {
    data_.resize((data_.size() + alignment - 1) / alignment * alignment);
    append_string(directory_, name);
    append(directory_, static_cast<uint32_t>(dims.size()));
    for (auto dim = dims.rbegin(); dim != dims.rend(); ++dim) append(directory_, *dim);
    append(directory_, type);
    append<uint64_t>(directory_, offset.value_or(data_.size()));
    data_ += data;
    ++tensors_written_;
    return *this;
  }

  Bytes bytes() const {
    Bytes out = "GGUF";
    append(out, version);
    append<uint64_t>(out, tensor_count.value_or(tensors_written_));
    append<uint64_t>(out, pair_count.value_or(pairs_written_));
    out += pairs_ + directory_;
    if (tensors_written_ > 0) out.resize((out.size() + alignment - 1) / alignment * alignment);
    return out + data_;
  }

 private:
  Bytes pairs_, directory_, data_;
  uint64_t pairs_written_ = 0, tensors_written_ = 0;
};

class SafetensorsWriter {
 public:
  // `dtype` is its name in the format, such as "F32".
  SafetensorsWriter& tensor(const std::string& name, const std::string& dtype, const std::vector<uint64_t>& shape,
                            std::string_view data) {
    std::string dims;
    for (const uint64_t dim : shape) dims += (dims.empty() ? "" : ",") + std::to_string(dim);
    const uint64_t begin = data_.size();
    data_ += data;
    return entry(name, "{\"dtype\":\"" + dtype + "\",\"shape\":[" + dims + "],\"data_offsets\":[" +
                           std::to_string(begin) + "," + std::to_string(data_.size()) + "]}");
  }
  // Adds any header entry, its value as JSON.
  SafetensorsWriter& entry(const std::string& name, const std::string& json) {
    header_ += (header_.empty() ? "" : ",") + ("\"" + name + "\":") + json;
    return *this;
  }

  // Returns a header padded to `alignment` with spaces, then the data.
  Bytes bytes(size_t alignment = 8) const { return file("{" + header_ + "}", data_, alignment); }

  static Bytes file(std::string header, std::string_view data, size_t alignment = 1) {
    header.resize((header.size() + alignment - 1) / alignment * alignment, ' ');
    Bytes out;
    append<uint64_t>(out, header.size());
    return out.append(header).append(data);
  }

 private:
  std::string header_;
  Bytes data_;
};

// Returns the text of model.safetensors.index.json.
inline std::string index_json(const std::map<std::string, std::string>& weight_map) {
  std::string text;
  for (const auto& [tensor, file] : weight_map)
    text += (text.empty() ? "" : ",") + ("\"" + tensor + "\":\"" + file + "\"");
  return "{\"metadata\":{},\"weight_map\":{" + text + "}}";
}

// This is a folder of its own, removed with all in it at the end.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "tenon-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // Writes a file and returns its path.
  std::string put(const std::string& name, std::string_view bytes) const {
    write_file(path_ / name, bytes);
    return (path_ / name).string();
  }

 private:
  std::filesystem::path path_;
};

}  // namespace tenon::testing
