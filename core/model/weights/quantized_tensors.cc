#include "quantized_tensors.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <optional>
#include <unordered_set>

#include "layout.h"
#include "tenon/sdk/quantized_rows.h"

namespace tenon::weights {
namespace {

constexpr std::string_view kKeyPrefix = "__metadata__.tenon.format.";
constexpr uint64_t kScaleBytes = 4;  // of int8 rows

uint64_t groups_of(uint64_t columns, uint32_t group) {
  return (columns + group - 1) / group;
}

struct RowKind {
  tenon_format format;
  int64_t columns;
};

std::optional<uint32_t> number_behind(std::string_view& text, std::string_view key) {
  if (!text.starts_with(key)) return std::nullopt;
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data() + key.size(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

std::optional<RowKind> parse_kind(std::string_view text) {
  std::optional<uint32_t> group = 0;
  if (text.starts_with("int4wo ")) {
    text.remove_prefix(7);
    group = number_behind(text, "group_size=");
    if (!group || sdk::int4_group(sdk::int4_rows(*group)) == 0 || !text.starts_with(" ")) return std::nullopt;
    text.remove_prefix(1);
  } else if (text.starts_with("int8wo ")) {
    text.remove_prefix(7);
  } else {
    return std::nullopt;
  }
  const auto columns = number_behind(text, "columns=");
  if (!columns || *columns == 0 || *columns > INT32_MAX || !text.empty()) return std::nullopt;
  return RowKind{*group == 0 ? sdk::kInt8Rows : sdk::int4_rows(*group), *columns};
}

// A matrix of rows over the tensors that hold its parts.
struct Joined {
  WeightTensor matrix;
  std::vector<WeightTensor> parts;
};

class JoinedWeights final : public FileWeights {
 public:
  JoinedWeights(Contents contents, std::vector<MappedFile> files, std::map<std::string, Joined> joined)
      : FileWeights(std::move(contents), std::move(files)), joined_(std::move(joined)) {}

  const std::byte* mapped(const WeightTensor& tensor) const override {
    return joined_.contains(tensor.name) ? nullptr : FileWeights::mapped(tensor);
  }
  void read(const WeightTensor& tensor, uint64_t offset, std::span<std::byte> out) const override {
    const auto found = joined_.find(tensor.name);
    if (found == joined_.end()) return FileWeights::read(tensor, offset, out);
    check_range(tensor, offset, out.size());
    const auto columns = static_cast<uint64_t>(tensor.shape.back());
    const uint64_t row_bytes = sdk::row_bytes(tensor.format, columns);
    std::vector<std::byte> row(row_bytes);
    while (!out.empty()) {
      const uint64_t begin = offset % row_bytes, n = std::min<uint64_t>(row_bytes - begin, out.size());
      join(found->second, offset / row_bytes, columns, row.data());
      std::copy_n(row.data() + begin, n, out.data());
      out = out.subspan(n), offset += n;
    }
  }
  void prefetch(const WeightTensor& tensor) const override {
    const auto found = joined_.find(tensor.name);
    if (found == joined_.end()) return FileWeights::prefetch(tensor);
    for (const WeightTensor& part : found->second.parts) FileWeights::prefetch(part);
  }

 private:
  void join(const Joined& joined, uint64_t row, uint64_t columns, std::byte* out) const {
    const std::byte* at[3] = {};
    for (size_t i = 0; i < joined.parts.size(); ++i) {
      const WeightTensor& part = joined.parts[i];
      at[i] = bytes_of(part) + row * (part.bytes / static_cast<uint64_t>(part.shape.front()));
    }
    join_row(joined.matrix.format, columns, std::span(at).first(joined.parts.size()), out);
  }

  std::map<std::string, Joined> joined_;  // by name
};

}  // namespace

std::vector<StoredPart> stored_parts(const WeightTensor& m) {
  const int64_t rows = m.shape.front(), columns = m.shape.back();
  const uint32_t group = sdk::int4_group(m.format);
  if (group == 0) {
    return {{m.name, TENON_I8, {rows, columns}, static_cast<uint64_t>(columns)},
            {m.name + "_scale", TENON_F32, {rows}, kScaleBytes}};
  }
  const auto groups = static_cast<int64_t>(groups_of(static_cast<uint64_t>(columns), group));
  const int64_t packed = groups * group / 2;
  const auto pair_bytes = static_cast<uint64_t>(groups) * 2;
  return {{m.name, TENON_U8, {rows, packed}, static_cast<uint64_t>(packed)},
          {m.name + "_scale", TENON_BF16, {rows, groups}, pair_bytes},
          {m.name + "_zero", TENON_BF16, {rows, groups}, pair_bytes}};
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

void join_row(tenon_format format, uint64_t columns, std::span<const std::byte* const> parts, std::byte* row) {
  const uint32_t group = sdk::int4_group(format);
  if (group == 0) {
    std::memcpy(row, parts[1], kScaleBytes);
    std::memcpy(row + kScaleBytes, parts[0], columns);
    std::fill(row + kScaleBytes + columns, row + sdk::row_bytes(format, columns), std::byte{0});
    return;
  }
  for (uint64_t g = 0; g < groups_of(columns, group); ++g, row += 4 + group / 2) {
    std::memcpy(row, parts[1] + 2 * g, 2);
    std::memcpy(row + 2, parts[2] + 2 * g, 2);
    std::memcpy(row + 4, parts[0] + g * (group / 2), group / 2);
  }
}

std::unique_ptr<Weights> open_tensors(Contents contents, std::vector<MappedFile> files) {
  std::map<std::string, Joined> joined;
  std::unordered_set<std::string> gone;  // parts that are no tensors of their own
  Findings findings(files.front().path().string());
  for (const auto& [key, value] : contents.metadata) {
    if (!key.starts_with(kKeyPrefix)) continue;
    const std::string name = key.substr(kKeyPrefix.size());
    const auto* text = std::get_if<std::string>(&value);
    const auto kind = parse_kind(text == nullptr ? "" : *text);
    if (!kind) {
      findings.add("__metadata__ " + in_quotes(key.substr(key.find('.') + 1)) + " is " +
                   in_quotes(text == nullptr ? "no text" : *text) +
                   "; expected \"int8wo columns=K\" or \"int4wo group_size=32|64|128|256 columns=K\"");
      continue;
    }
    const auto find = [&](const std::string& wanted) {
      return std::find_if(contents.tensors.begin(), contents.tensors.end(),
                          [&](const WeightTensor& t) { return t.name == wanted; });
    };
    const auto first = find(name);
    const int64_t rows = first == contents.tensors.end() || first->shape.empty() ? 0 : first->shape.front();
    Joined one{{.name = name, .format = kind->format, .shape = {rows, kind->columns}}, {}};
    for (const StoredPart& part : stored_parts(one.matrix)) {
      const auto found = find(part.name);
      WeightTensor expected{.name = part.name, .format = part.format, .shape = part.shape};
      if (found == contents.tensors.end()) {
        findings.add("tensor " + in_quotes(part.name) + " is missing, of " + in_quotes(name) + " in " + *text);
      } else if (found->format != part.format || found->shape != part.shape || rows == 0) {
        findings.add("tensor " + in_quotes(part.name) + " is " + describe(*found) + "; expected " + describe(expected) +
                     ", of " + in_quotes(name) + " in " + *text);
      } else {
        one.parts.push_back(*found);
        if (part.name != name) gone.insert(part.name);
      }
    }
    one.matrix.bytes = static_cast<uint64_t>(rows) * sdk::row_bytes(kind->format, static_cast<uint64_t>(kind->columns));
    if (!one.parts.empty()) one.matrix.file = one.parts.front().file, one.matrix.offset = one.parts.front().offset;
    joined.emplace(name, std::move(one));
  }
  findings.throw_if_any();
  if (joined.empty()) return std::make_unique<FileWeights>(std::move(contents), std::move(files));
  std::erase_if(contents.tensors, [&](const WeightTensor& t) { return gone.contains(t.name); });
  for (WeightTensor& t : contents.tensors) {
    if (const auto found = joined.find(t.name); found != joined.end()) t = found->second.matrix;
  }
  return std::make_unique<JoinedWeights>(std::move(contents), std::move(files), std::move(joined));
}

}  // namespace tenon::weights
