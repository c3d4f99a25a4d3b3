#include <charconv>

#include "readers.h"

namespace tenon::weights {
namespace {

constexpr size_t kDigits = 5;
constexpr std::string_view kOf = "-of-";

std::optional<uint32_t> parse_number(std::string_view digits) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

std::string padded(uint32_t value) {
  const std::string digits = std::to_string(value);
  return std::string(kDigits - std::min(kDigits, digits.size()), '0') + digits;
}

}  // namespace

std::optional<PartName> PartName::parse(const std::filesystem::path& path) {
  const std::string name = path.stem().string();
  constexpr size_t kTail = 1 + kDigits + kOf.size() + kDigits;  // "-00002-of-00003"
  if (name.size() <= kTail) return std::nullopt;
  const size_t stem = name.size() - kTail;
  const std::string_view tail = std::string_view(name).substr(stem);
  if (tail.front() != '-' || tail.substr(1 + kDigits, kOf.size()) != kOf) return std::nullopt;
  const auto which = parse_number(tail.substr(1, kDigits));
  const auto count = parse_number(tail.substr(1 + kDigits + kOf.size()));
  if (!which || !count || *which == 0 || *which > *count) return std::nullopt;
  return PartName{name.substr(0, stem), *which, *count};
}

std::string PartName::file_name(uint32_t which, const std::string& extension) const {
  return stem + "-" + padded(which) + std::string(kOf) + padded(count) + extension;
}

}  // namespace tenon::weights
