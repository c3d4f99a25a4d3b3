#include "quantized_tensors.h"

#include "tenon/core/quantized_rows.h"

namespace tenon::weights {
namespace {

constexpr std::string_view kKeyPrefix = "__metadata__.tenon.format.";
constexpr uint64_t kScaleBytes = 4;  // of int8 rows

uint64_t groups_of(uint64_t columns, uint32_t group) {
  return (columns + group - 1) / group;
}

}  // namespace

std::vector<StoredPart> stored_parts(const WeightTensor& m) {
  const int64_t rows = m.shape.front(), columns = m.shape.back();
  const uint32_t group = sdk::int4_group(m.format);
  if (group == 0) {
    return {{m.name, TENON_I8, {rows, columns}}, {m.name + "_scale", TENON_F32, {rows}}};
  }
  const auto groups = static_cast<int64_t>(groups_of(static_cast<uint64_t>(columns), group));
  return {{m.name, TENON_U8, {rows, groups * group / 2}},
          {m.name + "_scale", TENON_BF16, {rows, groups}},
          {m.name + "_zero", TENON_BF16, {rows, groups}}};
}

std::pair<std::string, std::string> format_entry(const WeightTensor& m) {
  const uint32_t group = sdk::int4_group(m.format);
  const std::string scheme = group == 0 ? "int8wo" : "int4wo group_size=" + std::to_string(group);
  return {std::string(kKeyPrefix) + m.name, scheme + " columns=" + std::to_string(m.shape.back())};
}

void split_rows(tenon_format format, uint64_t columns, std::span<const std::byte> rows,
                std::vector<std::vector<std::byte>>& parts) {
  const uint64_t row_bytes = sdk::row_bytes(format, columns);
  const uint32_t group = sdk::int4_group(format);
  for (auto& part : parts) part.clear();
  const auto take = [&](size_t part, const std::byte* from, uint64_t n) {
    parts[part].insert(parts[part].end(), from, from + n);
  };
  for (const std::byte *row = rows.data(), *end = row + rows.size(); row != end; row += row_bytes) {
    if (group == 0) {
      take(0, row + kScaleBytes, columns);
      take(1, row, kScaleBytes);
      continue;
    }
    for (const std::byte *at = row, *last = row + row_bytes; at != last; at += 4 + group / 2) {
      take(0, at + 4, group / 2);
      take(1, at, 2);
      take(2, at + 2, 2);
    }
  }
}

}  // namespace tenon::weights
