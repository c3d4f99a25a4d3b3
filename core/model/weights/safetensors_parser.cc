// Parses the header of a safetensors file with Boost.JSON's incremental parser. Data must lie in the file without gaps
// or overlaps, as the format wants; everything that is wrong with tensors is collected.
#include "safetensors_parser.h"

#include <algorithm>
#include <bit>
#include <boost/json/basic_parser_impl.hpp>
#include <cstring>
#include <optional>

#include "layout.h"

namespace tenon::weights {
namespace {

static_assert(std::endian::native == std::endian::little, "the header's length is read in place");

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr size_t kMaxRank = 8;
constexpr std::string_view kMetadataName = "__metadata__";

struct Dtype {
  std::string_view name;
  tenon_format format;
};
constexpr Dtype kDtypes[] = {{"F32", TENON_F32},        {"F16", TENON_F16},      {"BF16", TENON_BF16},
                             {"F64", TENON_F64},        {"I8", TENON_I8},        {"I16", TENON_I16},
                             {"I32", TENON_I32},        {"I64", TENON_I64},      {"U8", TENON_U8},
                             {"U32", TENON_U32},        {"BOOL", TENON_BOOL},    {"F8_E4M3", TENON_F8E4M3},
                             {"F8_E5M2", TENON_F8E5M2}, {"F8_E8M0", TENON_E8M0}, {"F4", TENON_F4E2M1}};

// The header says this of one tensor; offsets count from the start of the data.
struct Entry {
  std::string name;
  std::optional<std::string> dtype;
  std::optional<std::vector<uint64_t>> shape, offsets;
};

// Receives the header from Boost.JSON's incremental parser. A document tree would cost several times the header's size
// and forget names that occur twice. Boost prescribes the members.
class HeaderHandler {
 public:
  static constexpr size_t max_object_size = size_t{1} << 20;
  static constexpr size_t max_array_size = size_t{1} << 20;
  static constexpr size_t max_key_size = size_t{1} << 16;
  static constexpr size_t max_string_size = kMaxHeaderBytes;

  explicit HeaderHandler(const std::string& file) : file_(file) {}

  using Code = boost::json::error_code;
  using Text = boost::json::string_view;

  bool on_document_begin(Code&) { return true; }
  bool on_document_end(Code&) { return true; }
  bool on_object_begin(Code&) {
    if (numbers_ || ++level_ > 2) fail("holds an object");
    return true;
  }
  bool on_object_end(size_t, Code&) {
    if (level_-- == 2 && !in_metadata()) entries_.push_back(std::exchange(entry_, {}));
    return true;
  }
  bool on_array_begin(Code&) {
    std::optional<std::vector<uint64_t>>* list = nullptr;
    if (level_ == 2 && !in_metadata() && !numbers_) {
      if (field_ == "shape") list = &entry_.shape;
      if (field_ == "data_offsets") list = &entry_.offsets;
    }
    if (!list || *list) fail("holds an array");
    numbers_ = &list->emplace();
    return true;
  }
  bool on_array_end(size_t, Code&) {
    numbers_ = nullptr;
    return true;
  }
  bool on_key_part(Text text, size_t, Code&) { return append(text); }
  bool on_key(Text text, size_t, Code&) {
    append(text);
    (level_ == 1 ? entry_.name : field_) = std::exchange(text_, {});
    if (level_ == 1) field_.clear();
    return true;
  }
  bool on_string_part(Text text, size_t, Code&) { return append(text); }
  bool on_string(Text text, size_t, Code&) {
    append(text);
    std::string value = std::exchange(text_, {});
    if (level_ == 2 && in_metadata()) {
      metadata_.emplace(std::string(kMetadataName) + "." + field_, std::move(value));
      return true;
    }
    if (level_ != 2 || numbers_ || field_ != "dtype" || entry_.dtype) fail("holds the text " + in_quotes(value));
    entry_.dtype = std::move(value);
    return true;
  }
  bool on_number_part(Text, Code&) { return true; }
  bool on_int64(int64_t value, Text, Code&) {
    if (value < 0) fail("holds " + std::to_string(value));
    return number(static_cast<uint64_t>(value));
  }
  bool on_uint64(uint64_t value, Text, Code&) { return number(value); }
  bool on_double(double value, Text, Code&) { fail("holds the fraction " + std::to_string(value)); }
  bool on_bool(bool, Code&) { fail("holds a boolean"); }
  bool on_null(Code&) { fail("holds null"); }
  bool on_comment_part(Text, Code&) { return true; }
  bool on_comment(Text, Code&) { return true; }

  std::vector<Entry>& entries() { return entries_; }
  MetadataMap& metadata() { return metadata_; }

 private:
  [[noreturn]] void fail(const std::string& found) const {
    std::string where = level_ == 0 ? "the header" : "header entry " + in_quotes(entry_.name);
    if (level_ >= 2) where += ", key " + in_quotes(field_);
    throw Error(ErrorCode::kModel, {file_},
                where + ": " + found +
                    "; a header maps each tensor to \"dtype\" (text), \"shape\" and \"data_offsets\" (lists of whole "
                    "numbers), each once, and __metadata__ to texts");
  }

  bool in_metadata() const { return entry_.name == kMetadataName; }

  bool append(Text text) {
    text_.append(text.data(), text.size());
    return true;
  }

  bool number(uint64_t value) {
    if (!numbers_ || numbers_->size() == kMaxRank) fail("holds the number " + std::to_string(value));
    numbers_->push_back(value);
    return true;
  }

  const std::string& file_;
  int level_ = 0;  // objects nest so deep
  Entry entry_;
  std::string field_;
  std::string text_;                          // a key or string that arrives in pieces
  std::vector<uint64_t>* numbers_ = nullptr;  // the list that is open
  std::vector<Entry> entries_;
  MetadataMap metadata_;
};

std::string listed(const std::vector<uint64_t>& numbers) {
  std::string text = "[";
  for (const uint64_t n : numbers) text += (text.size() > 1 ? ", " : "") + std::to_string(n);
  return text + "]";
}

// Returns nullopt, with a finding, for an entry that makes no tensor.
std::optional<WeightTensor> resolve(Entry& entry, uint64_t data_begin, Findings& findings) {
  const std::string who = "tensor " + in_quotes(entry.name);
  if (!entry.dtype || !entry.shape || !entry.offsets || entry.offsets->size() != 2) {
    findings.add(who + ": needs \"dtype\", \"shape\" and two \"data_offsets\"");
    return std::nullopt;
  }
  const auto dtype =
      std::find_if(std::begin(kDtypes), std::end(kDtypes), [&](const Dtype& d) { return d.name == *entry.dtype; });
  if (dtype == std::end(kDtypes)) {
    findings.add(who + " has dtype " + in_quotes(*entry.dtype) +
                 ", which is not read; read are F32, F16, BF16, F64, F8_E4M3, F8_E5M2, F8_E8M0, F4, I8 to I64, U8, U32 "
                 "and BOOL");
    return std::nullopt;
  }
  WeightTensor t;
  t.format = dtype->format;
  for (const uint64_t dim : *entry.shape) {
    t.shape.push_back(std::in_range<int64_t>(dim) ? static_cast<int64_t>(dim) : int64_t{-1});
  }
  const bool sized = std::find(t.shape.begin(), t.shape.end(), -1) == t.shape.end();
  std::optional<uint64_t> bytes;
  if (sized) bytes = stored_bytes(t.format, t.shape);
  const uint64_t begin = entry.offsets->front(), end = entry.offsets->back();
  if (!bytes || begin > end || end - begin != *bytes) {
    findings.add(who + ", " + *entry.dtype + " " + listed(*entry.shape) + ": data_offsets " + listed(*entry.offsets) +
                 " do not span the " + (bytes ? std::to_string(*bytes) + " bytes" : "size, which overflows,") +
                 " that dtype and shape take");
    return std::nullopt;
  }
  if (__builtin_add_overflow(begin, data_begin, &t.offset)) {
    findings.add(who + ": data_offsets " + listed(*entry.offsets) + " are beyond any file");
    return std::nullopt;
  }
  t.bytes = *bytes;
  t.name = std::move(entry.name);
  return t;
}

}  // namespace

std::string_view safetensors_dtype(tenon_format format) {
  for (const Dtype& dtype : kDtypes) {
    if (dtype.format == format) return dtype.name;
  }
  return {};
}

SafetensorsFile parse_safetensors(std::span<const std::byte> bytes, const std::string& file, uint32_t index) {
  const auto fail = [&](const std::string& message) { throw Error(ErrorCode::kModel, {file}, message); };
  if (bytes.empty()) fail("the file is empty");
  uint64_t length = 0;
  if (bytes.size() < kLengthBytes) fail("has " + std::to_string(bytes.size()) + " bytes; is it truncated?");
  std::memcpy(&length, bytes.data(), kLengthBytes);
  const uint64_t most = std::min<uint64_t>(bytes.size() - kLengthBytes, kMaxHeaderBytes);
  if (length > most) {
    fail("at byte 0: claims a header of " + std::to_string(length) + " bytes; at most " + std::to_string(most) +
         " are possible in this file of " + std::to_string(bytes.size()) +
         "; is it truncated, or no safetensors file?");
  }

  boost::json::basic_parser<HeaderHandler> parser(boost::json::parse_options{}, file);
  boost::json::error_code error;
  const char* text = reinterpret_cast<const char*>(bytes.data() + kLengthBytes);
  const size_t used = parser.write_some(false, text, length, error);
  if (!error && used < length) error = boost::json::error::extra_data;
  if (error)
    fail("at byte " + std::to_string(kLengthBytes + used) + ": the header is no valid JSON: " + error.message());

  const uint64_t data_begin = kLengthBytes + length;
  SafetensorsFile result;
  result.metadata = std::move(parser.handler().metadata());
  Findings findings(file);
  for (Entry& entry : parser.handler().entries()) {
    if (auto tensor = resolve(entry, data_begin, findings)) {
      tensor->file = index;
      result.tensors.push_back(std::move(*tensor));
    }
  }
  findings.throw_if_any();  // without every tensor the gaps say nothing
  check_layout(result.tensors, {.begin = data_begin, .file_bytes = bytes.size(), .alignment = 1}, findings);
  findings.throw_if_any();
  return result;
}

}  // namespace tenon::weights
