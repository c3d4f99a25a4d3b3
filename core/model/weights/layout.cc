// The readers of weight files share this: findings, sizes, and the check of where tensors lie. No number of a file is
// trusted: sizes are computed with a check before every product, and text from a file is made fit before it stands in a
// message. Tensors lie within the file, none over another, with no gap but that of alignment.
#include "layout.h"

#include <algorithm>
#include <limits>

namespace tenon::weights {
namespace {

constexpr size_t kFindingsShown = 20;
constexpr size_t kNameShown = 100;

std::string range(const WeightTensor& t) {
  return "bytes " + std::to_string(t.offset) + " to " + std::to_string(t.offset + t.bytes);
}

}  // namespace

void Findings::add(std::string message) {
  Diagnostic finding;
  finding.where.file = file_;
  finding.message = std::move(message);
  add(std::move(finding));
}

void Findings::add(Diagnostic finding) {
  if (shown_.size() < kFindingsShown) {
    shown_.push_back(std::move(finding));
  } else {
    ++more_;
  }
}

void Findings::throw_if_any() {
  if (shown_.empty()) return;
  if (more_ > 0)
    shown_.emplace_back().message = "and " + std::to_string(more_) + " more" + (file_.empty() ? "" : " in " + file_);
  throw Error(ErrorCode::kModel, std::move(shown_));
}

std::string in_quotes(std::string_view name) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string text = "\"";
  for (const char c : name.substr(0, kNameShown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      text += c;
    } else {
      text += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return text + (name.size() > kNameShown ? "...\"" : "\"");
}

std::optional<uint64_t> stored_bytes(tenon_format format, std::span<const int64_t> shape) {
  const tenon_block block = tenon_format_block(format);
  int64_t elements = 1;
  for (const int64_t dim : shape) {
    if (__builtin_mul_overflow(elements, dim, &elements)) return std::nullopt;
  }
  const int64_t innermost = shape.empty() ? 1 : shape.back();
  if (innermost % block.elements != 0) return std::nullopt;
  int64_t bytes = 0;
  if (__builtin_mul_overflow(elements / block.elements, int64_t{block.bytes}, &bytes)) return std::nullopt;
  return static_cast<uint64_t>(bytes);
}

uint64_t natural_alignment(tenon_format format) {
  const uint64_t bytes = tenon_format_block(format).bytes;
  return std::clamp<uint64_t>(bytes & -bytes, 1, 8);
}

std::string describe(const WeightTensor& t) {
  std::string text = std::string(tenon_format_name(t.format)) + " (";
  for (size_t i = 0; i < t.shape.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(t.shape[i]);
  return text + ")";
}

void check_layout(std::span<const WeightTensor> tensors, const DataRegion& region, Findings& findings) {
  std::vector<const WeightTensor*> order;
  std::vector<const WeightTensor*> beyond;
  for (const WeightTensor& t : tensors) {
    uint64_t end = 0;
    const bool outside = __builtin_add_overflow(t.offset, t.bytes, &end) || end > region.file_bytes;
    if (outside) beyond.push_back(&t);
    if (!outside && t.bytes > 0) order.push_back(&t);
  }
  if (!beyond.empty()) {
    const WeightTensor& t = *beyond.front();
    findings.add("tensor " + in_quotes(t.name) + ", " + describe(t) + ": needs " + std::to_string(t.bytes) +
                 " bytes from byte " + std::to_string(t.offset) + " on, but the file ends at byte " +
                 std::to_string(region.file_bytes) +
                 (beyond.size() > 1 ? "; " + std::to_string(beyond.size() - 1) + " more tensors reach beyond" : "") +
                 "; is it truncated?");
  }
  std::sort(order.begin(), order.end(),
            [](const WeightTensor* a, const WeightTensor* b) { return a->offset < b->offset; });

  const auto aligned = [&](uint64_t at) { return (at + region.alignment - 1) / region.alignment * region.alignment; };
  const std::string allowed = region.alignment > 1
                                  ? "expected gaps up to the alignment of " + std::to_string(region.alignment) + " only"
                                  : "this format has no gaps";
  uint64_t covered = region.begin;  // all bytes before it belong to a tensor
  const WeightTensor* last = nullptr;
  for (const WeightTensor* t : order) {
    if (last && t->offset < covered) {
      findings.add("tensors " + in_quotes(last->name) + " (" + range(*last) + ") and " + in_quotes(t->name) + " (" +
                   range(*t) + ") overlap");
    } else if (region.alignment > 0 && t->offset > aligned(covered)) {
      findings.add("bytes " + std::to_string(covered) + " to " + std::to_string(t->offset) + ", before tensor " +
                   in_quotes(t->name) + ", belong to no tensor; " + allowed);
    }
    if (!last || t->offset + t->bytes > covered) {
      covered = t->offset + t->bytes;
      last = t;
    }
  }
  if (region.alignment > 0 && beyond.empty() && aligned(covered) < region.file_bytes) {
    findings.add("the last tensor ends at byte " + std::to_string(covered) + ", but the file at byte " +
                 std::to_string(region.file_bytes) + "; the bytes between belong to no tensor; " + allowed);
  }
}

}  // namespace tenon::weights
