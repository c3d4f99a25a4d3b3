// Parses the metadata section of GGUF. No number of the file is trusted: a count or a length is compared with the bytes
// that are left before anything is made of it.
#include "gguf_metadata.h"

#include <utility>

#include "layout.h"

namespace tenon::weights {
namespace {

constexpr uint64_t kMaxPairs = uint64_t{1} << 20;
constexpr uint64_t kMaxArrayElements = uint64_t{1}
                                       << 26;  // one array of metadata has so many at most; vocabularies have some 2^18
constexpr uint64_t kMaxNestedArrays = 4096;    // one array has so many at most
constexpr uint64_t kMinPairBytes = 8 + 4 + 1;  // key length, type, the smallest value
constexpr int kMaxNesting = 3;

enum class ValueType : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };

// A value of each type has so many bytes in the file; strings and arrays have at least so many.
constexpr uint64_t kValueBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};

class MetadataParser {
 public:
  MetadataParser(GgufCursor& cursor, MetadataMap& metadata) : cursor_(cursor), metadata_(metadata) {}

  // Returns the key.
  std::string parse_pair(uint64_t index) {
    const uint64_t start = cursor_.at();
    const std::string key(cursor_.take_string("the key of metadata entry " + std::to_string(index)));
    if (key.empty()) cursor_.fail(start, "metadata entry " + std::to_string(index) + " has an empty key");
    parse_value(key, take_type(key), 0);
    return key;
  }

 private:
  static std::string value_of(const std::string& key) { return "the value of " + in_quotes(key); }

  ValueType take_type(const std::string& key) {
    const uint64_t start = cursor_.at();
    const auto type = cursor_.take<uint32_t>("the type of " + in_quotes(key));
    if (type >= std::size(kValueBytes)) {
      cursor_.fail(start, "metadata " + in_quotes(key) + " has type " + std::to_string(type) + "; types are 0 to " +
                              std::to_string(std::size(kValueBytes) - 1));
    }
    return ValueType{type};
  }

  void put(const std::string& key, MetadataValue value) {
    if (metadata_.size() >= kMaxPairs) {
      cursor_.fail(cursor_.at(),
                   "more than " + std::to_string(kMaxPairs) + " metadata entries, counting nested arrays");
    }
    if (!metadata_.emplace(key, std::move(value)).second) {
      cursor_.fail(cursor_.at(), "metadata " + in_quotes(key) + " ends here and was there before");
    }
  }

  template <class Stored>
  MetadataValue integer(const std::string& key) {
    const auto value = cursor_.take<Stored>(value_of(key));
    if (std::in_range<int64_t>(value)) return static_cast<int64_t>(value);
    return static_cast<uint64_t>(value);
  }

  // They are one byte each, 0 or 1.
  std::vector<int64_t> booleans(uint64_t count, const std::string& key) {
    const uint64_t start = cursor_.at();
    std::vector<int64_t> values = numbers<uint8_t, int64_t>(count, key);
    const auto odd = std::find_if(values.begin(), values.end(), [](int64_t value) { return value > 1; });
    if (odd != values.end()) {
      cursor_.fail(start + static_cast<uint64_t>(odd - values.begin()),
                   in_quotes(key) + " holds a boolean of " + std::to_string(*odd) + "; booleans are 0 or 1");
    }
    return values;
  }

  void parse_value(const std::string& key, ValueType type, int depth) {
    switch (type) {
      case ValueType::kU8:
        return put(key, integer<uint8_t>(key));
      case ValueType::kI8:
        return put(key, integer<int8_t>(key));
      case ValueType::kU16:
        return put(key, integer<uint16_t>(key));
      case ValueType::kI16:
        return put(key, integer<int16_t>(key));
      case ValueType::kU32:
        return put(key, integer<uint32_t>(key));
      case ValueType::kI32:
        return put(key, integer<int32_t>(key));
      case ValueType::kU64:
        return put(key, integer<uint64_t>(key));
      case ValueType::kI64:
        return put(key, integer<int64_t>(key));
      case ValueType::kF32:
        return put(key, double{cursor_.take<float>(value_of(key))});
      case ValueType::kF64:
        return put(key, cursor_.take<double>(value_of(key)));
      case ValueType::kBool:
        return put(key, booleans(1, key).front() == 1);
      case ValueType::kString:
        return put(key, std::string(cursor_.take_string(value_of(key))));
      case ValueType::kArray:
        return parse_array(key, depth);
    }
  }

  template <class Stored, class Kept>
  std::vector<Kept> numbers(uint64_t count, const std::string& key) {
    const uint64_t start = cursor_.at();
    const std::byte* source = cursor_.take_bytes(count * sizeof(Stored), value_of(key)).data();
    std::vector<Kept> values(count);
    for (uint64_t i = 0; i < count; ++i) {
      Stored value;
      std::memcpy(&value, source + i * sizeof(Stored), sizeof(Stored));
      if constexpr (std::is_same_v<Stored, uint64_t>) {
        if (!std::in_range<Kept>(value)) {
          cursor_.fail(start + i * sizeof(Stored), "element " + std::to_string(i) + " of " + in_quotes(key) + " is " +
                                                       std::to_string(value) + "; at most 2^63 - 1 is read in arrays");
        }
      }
      values[i] = static_cast<Kept>(value);
    }
    return values;
  }

  void parse_array(const std::string& key, int depth) {
    const ValueType type = take_type(key);
    const uint64_t most = type == ValueType::kArray ? kMaxNestedArrays : kMaxArrayElements;
    const uint64_t count =
        cursor_.take_count({kValueBytes[static_cast<uint32_t>(type)], most}, "elements of array " + in_quotes(key));
    switch (type) {
      case ValueType::kU8:
        return put(key, numbers<uint8_t, int64_t>(count, key));
      case ValueType::kI8:
        return put(key, numbers<int8_t, int64_t>(count, key));
      case ValueType::kU16:
        return put(key, numbers<uint16_t, int64_t>(count, key));
      case ValueType::kI16:
        return put(key, numbers<int16_t, int64_t>(count, key));
      case ValueType::kU32:
        return put(key, numbers<uint32_t, int64_t>(count, key));
      case ValueType::kI32:
        return put(key, numbers<int32_t, int64_t>(count, key));
      case ValueType::kU64:
        return put(key, numbers<uint64_t, int64_t>(count, key));
      case ValueType::kI64:
        return put(key, numbers<int64_t, int64_t>(count, key));
      case ValueType::kF32:
        return put(key, numbers<float, double>(count, key));
      case ValueType::kF64:
        return put(key, numbers<double, double>(count, key));
      case ValueType::kBool:
        return put(key, booleans(count, key));
      case ValueType::kString:
        return put(key, strings(count, key));
      case ValueType::kArray:
        return parse_nested(count, key, depth + 1);
    }
  }

  std::vector<std::string> strings(uint64_t count, const std::string& key) {
    const std::string what = value_of(key);
    std::vector<std::string> values;
    values.reserve(count);
    for (uint64_t i = 0; i < count; ++i) values.emplace_back(cursor_.take_string(what));
    return values;
  }

  void parse_nested(uint64_t count, const std::string& key, int depth) {
    if (depth > kMaxNesting) {
      cursor_.fail(cursor_.at(),
                   "array " + in_quotes(key) + " is nested more than " + std::to_string(kMaxNesting) + " levels deep");
    }
    for (uint64_t i = 0; i < count; ++i) parse_array(key + "." + std::to_string(i), depth);
  }

  GgufCursor& cursor_;
  MetadataMap& metadata_;
};

}  // namespace

GgufMetadata parse_gguf_metadata(GgufCursor& cursor) {
  const uint64_t count = cursor.take_count({kMinPairBytes, kMaxPairs}, "metadata entries");
  GgufMetadata metadata;
  MetadataParser parser(cursor, metadata.values);
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t begin = cursor.at();
    std::string key = parser.parse_pair(i);
    metadata.pairs.push_back({std::move(key), begin, cursor.at()});
  }
  return metadata;
}

}  // namespace tenon::weights
