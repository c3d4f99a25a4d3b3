// Parses a GGUF file up to its tensors. Everything that is wrong with tensors is collected; sizes are computed without
// overflow, and each tensor must lie within the file, aligned, and beside the others.
#include "gguf_parser.h"

#include <algorithm>
#include <bit>

#include "gguf_cursor.h"
#include "gguf_metadata.h"
#include "layout.h"

namespace tenon::weights {
namespace {

constexpr uint64_t kMaxHeaderBytes = uint64_t{1} << 30;  // metadata and tensor directory
constexpr uint64_t kMaxAlignment = uint64_t{1} << 30;
constexpr uint32_t kMaxRank = 4;
constexpr uint64_t kMaxTensors = uint64_t{1} << 20;
constexpr uint64_t kMinTensorBytes = 8 + 4 + 4 + 8;  // name length, rank, type, offset

// These are ggml's numbers of tensor types, for messages about those that no format stands for.
struct NamedType {
  uint32_t number;
  std::string_view name;
};
constexpr NamedType kUnreadTypes[] = {
    {4, "Q4_2"},      {5, "Q4_3"},        {9, "Q8_1"},        {16, "IQ2_XXS"},    {17, "IQ2_XS"},   {18, "IQ3_XXS"},
    {19, "IQ1_S"},    {21, "IQ3_S"},      {22, "IQ2_S"},      {29, "IQ1_M"},      {31, "Q4_0_4_4"}, {32, "Q4_0_4_8"},
    {33, "Q4_0_8_8"}, {36, "IQ4_NL_4_4"}, {37, "IQ4_NL_4_8"}, {38, "IQ4_NL_8_8"}, {40, "NVFP4"},    {41, "Q1_0"}};

struct PlainType {
  uint32_t number;
  tenon_format format;
};
constexpr PlainType kPlainTypes[] = {{0, TENON_F32},  {1, TENON_F16},  {24, TENON_I8},  {25, TENON_I16},
                                     {26, TENON_I32}, {27, TENON_I64}, {28, TENON_F64}, {30, TENON_BF16}};

tenon_format format_of(uint32_t type) {
  for (const PlainType& plain : kPlainTypes) {
    if (plain.number == type) return plain.format;
  }
  if (type > uint32_t{TENON_MXFP4} - TENON_GGUF_FORMATS) return TENON_FORMAT_NONE;
  const tenon_format block = TENON_GGUF_FORMATS + type;
  return tenon_format_block(block).elements > 0 ? block : tenon_format{TENON_FORMAT_NONE};
}

std::string type_name(uint32_t type) {
  const auto known = std::find_if(std::begin(kUnreadTypes), std::end(kUnreadTypes),
                                  [&](const NamedType& t) { return t.number == type; });
  return std::to_string(type) + (known == std::end(kUnreadTypes) ? "" : " (" + std::string(known->name) + ")");
}

// The directory says this of one tensor; the offset counts from the start of the data.
struct Entry {
  WeightTensor tensor;
  uint32_t type = 0;
};

Entry parse_entry(GgufCursor& cursor, uint64_t index) {
  Entry entry;
  WeightTensor& t = entry.tensor;
  uint64_t start = cursor.at();
  t.name = cursor.take_string("the name of tensor " + std::to_string(index));
  if (t.name.empty()) cursor.fail(start, "tensor " + std::to_string(index) + " has no name");
  const std::string what = "the entry of tensor " + in_quotes(t.name);
  start = cursor.at();
  const auto rank = cursor.take<uint32_t>(what);
  if (rank > kMaxRank) {
    cursor.fail(start, "tensor " + in_quotes(t.name) + " has " + std::to_string(rank) + " dimensions; at most " +
                           std::to_string(kMaxRank) + " are possible");
  }
  for (uint32_t i = 0; i < rank; ++i) {
    start = cursor.at();
    const auto dim = cursor.take<uint64_t>(what);
    if (!std::in_range<int64_t>(dim)) {
      cursor.fail(start, "dimension " + std::to_string(i) + " of tensor " + in_quotes(t.name) + " is " +
                             std::to_string(dim) + "; at most 2^63 - 1 is possible");
    }
    t.shape.insert(t.shape.begin(), static_cast<int64_t>(dim));  // the file has the innermost first
  }
  entry.type = cursor.take<uint32_t>(what);
  t.format = format_of(entry.type);
  t.offset = cursor.take<uint64_t>(what);
  return entry;
}

// Resolves sizes and offsets. Returns false, with a finding, for an entry that cannot be.
bool resolve(Entry& entry, uint64_t data_begin, uint64_t alignment, Findings& findings) {
  WeightTensor& t = entry.tensor;
  const std::string who = "tensor " + in_quotes(t.name);
  if (t.format == TENON_FORMAT_NONE) {
    findings.add(who + " has type " + type_name(entry.type) +
                 ", which is not read; read are F32, F16, BF16, F64, I8 to I64, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K "
                 "to Q8_K, IQ4_NL, IQ4_XS, TQ1_0, TQ2_0 and MXFP4");
    return false;
  }
  const auto bytes = stored_bytes(t.format, t.shape);
  if (!bytes) {
    findings.add(who + ", " + describe(t) + ": the size overflows or rows are no whole number of blocks of " +
                 std::to_string(tenon_format_block(t.format).elements));
    return false;
  }
  t.bytes = *bytes;
  if (t.offset % alignment != 0) {
    findings.add(who + ": offset " + std::to_string(t.offset) + " is no multiple of the alignment " +
                 std::to_string(alignment));
    return false;
  }
  if (__builtin_add_overflow(t.offset, data_begin, &t.offset)) {
    findings.add(who + ": offset " + std::to_string(t.offset - data_begin) + " is beyond any file");
    return false;
  }
  return true;
}

uint64_t parse_alignment(const MetadataMap& metadata, const std::string& file) {
  constexpr std::string_view kKey = "general.alignment";
  const auto found = metadata.find(kKey);
  if (found == metadata.end()) return 32;
  const auto* value = std::get_if<int64_t>(&found->second);
  const auto alignment = value ? static_cast<uint64_t>(*value) : 0;
  if (!std::has_single_bit(alignment) || alignment > kMaxAlignment) {
    throw Error(ErrorCode::kModel, {file},
                std::string(kKey) + " is " + (value ? std::to_string(*value) : "no integer") +
                    "; it must be a power of two up to 2^30");
  }
  return alignment;
}

}  // namespace

std::optional<uint32_t> gguf_type_number(tenon_format format) {
  for (const PlainType& plain : kPlainTypes) {
    if (plain.format == format) return plain.number;
  }
  if (format < TENON_GGUF_FORMATS || tenon_format_block(format).elements == 0) return std::nullopt;
  return format - TENON_GGUF_FORMATS;
}

GgufFile parse_gguf(std::span<const std::byte> bytes, const std::string& file, uint32_t index) {
  GgufCursor cursor(bytes.first(std::min<uint64_t>(bytes.size(), kMaxHeaderBytes)), file);
  if (bytes.empty()) cursor.fail(0, "the file is empty");
  if (const auto magic = cursor.take<uint32_t>("the magic number"); magic != kGgufMagic) {
    cursor.fail(0, "not a GGUF file: it starts with " +
                       in_quotes({reinterpret_cast<const char*>(bytes.data()), sizeof(magic)}) +
                       " instead of \"GGUF\"");
  }
  const auto version = cursor.take<uint32_t>("the version");
  if (version != 2 && version != 3) {
    const bool swapped = __builtin_bswap32(version) == 2 || __builtin_bswap32(version) == 3;
    cursor.fail(4, swapped ? "the file is big-endian; only little-endian GGUF is read"
                           : "GGUF version " + std::to_string(version) + "; versions 2 and 3 are read");
  }
  const uint64_t tensor_count = cursor.take_count({kMinTensorBytes, kMaxTensors}, "tensors");
  GgufFile result;
  GgufMetadata metadata = parse_gguf_metadata(cursor);
  result.metadata = std::move(metadata.values);
  result.pairs = std::move(metadata.pairs);
  const uint64_t alignment = result.alignment = parse_alignment(result.metadata, file);

  std::vector<Entry> entries;
  for (uint64_t i = 0; i < tensor_count; ++i) entries.push_back(parse_entry(cursor, i));
  const uint64_t data_begin = (cursor.at() + alignment - 1) / alignment * alignment;

  Findings findings(file);
  for (Entry& entry : entries) {
    entry.tensor.file = index;
    if (resolve(entry, data_begin, alignment, findings)) result.tensors.push_back(std::move(entry.tensor));
  }
  const bool all = result.tensors.size() == entries.size();  // a gap may be a tensor that is not read
  check_layout(result.tensors, {.begin = data_begin, .file_bytes = bytes.size(), .alignment = all ? alignment : 0},
               findings);
  findings.throw_if_any();
  return result;
}

}  // namespace tenon::weights
