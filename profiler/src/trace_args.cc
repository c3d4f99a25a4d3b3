#include "tenon/profiler/trace_args.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace tenon::profiler {
namespace {

constexpr size_t kMaxArgs = 1024;
constexpr size_t kMaxShapes = 1U << 16U;

uint64_t hash_of(std::span<const uint32_t> words) {
  uint64_t hash = 0x9E3779B97F4A7C15U;
  for (const uint32_t word : words) {
    hash = (hash ^ word) * 0xFF51AFD7ED558CCDU;
    hash ^= hash >> 32U;
  }
  return hash;
}

constexpr std::array<double, 7> kPowers{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6};

struct Decimal {
  int32_t digits;
  uint8_t decimals;
};

std::optional<Decimal> exact_decimal(double value) {
  for (uint8_t i = 1; i < kPowers.size(); ++i) {
    const double digits = std::nearbyint(value * kPowers[i]);
    if (!(std::abs(digits) <= std::numeric_limits<int32_t>::max())) return std::nullopt;
    if (digits / kPowers[i] == value) return Decimal{static_cast<int32_t>(digits), i};
  }
  return std::nullopt;
}

}  // namespace

size_t TraceArgs::width(Code code) {
  if (code == Code::kInt64 || code == Code::kDouble) return 2;
  return code == Code::kNull ? 0 : 1;
}

uint32_t TraceArgs::intern(std::span<const TraceArg> args) {
  if (args.empty()) return 0;
  args = args.first(std::min(args.size(), kMaxArgs));
  shape_.clear();
  packed_.assign(1, 0);
  const auto push_wide = [this](uint64_t bits) {
    packed_.push_back(static_cast<uint32_t>(bits));
    packed_.push_back(static_cast<uint32_t>(bits >> 32U));
  };
  for (const TraceArg& arg : args) {
    Code code = Code::kNull;
    uint8_t decimals = 0;
    switch (arg.kind) {
      case TraceArg::Kind::kInteger:
        if (arg.integer >= std::numeric_limits<int32_t>::min() && arg.integer <= std::numeric_limits<int32_t>::max()) {
          code = Code::kInt32;
          packed_.push_back(static_cast<uint32_t>(arg.integer));
        } else {
          code = Code::kInt64;
          push_wide(static_cast<uint64_t>(arg.integer));
        }
        break;
      case TraceArg::Kind::kNumber:
        if (const std::optional<Decimal> decimal = exact_decimal(arg.number)) {
          code = Code::kDecimal;
          decimals = decimal->decimals;
          packed_.push_back(static_cast<uint32_t>(decimal->digits));
        } else {
          code = Code::kDouble;
          push_wide(std::bit_cast<uint64_t>(arg.number));
        }
        break;
      case TraceArg::Kind::kBool:
        code = Code::kBool;
        packed_.push_back(arg.integer != 0 ? 1 : 0);
        break;
      case TraceArg::Kind::kText:
      case TraceArg::Kind::kJson:
        code = arg.kind == TraceArg::Kind::kText ? Code::kText : Code::kJson;
        packed_.push_back(arg.text);
        break;
      case TraceArg::Kind::kNull:
        break;
    }
    shape_.push_back({arg.key, code, decimals});
  }
  if (shapes_.empty() || shapes_[last_shape_] != shape_) {
    if (shapes_.size() == kMaxShapes && !shape_ids_.contains(shape_)) {
      ++refused_;
      return 0;
    }
    const auto [at, is_new] = shape_ids_.try_emplace(shape_, static_cast<uint32_t>(shapes_.size()));
    if (is_new) shapes_.push_back(shape_);
    last_shape_ = at->second;
  }
  packed_[0] = last_shape_;

  if (slots_.empty() || (sets_ + 1) * 2 > slots_.size()) {
    const std::vector<uint32_t> old = std::move(slots_);
    slots_.assign(std::max<size_t>(1024, old.size() * 2), 0);
    for (const uint32_t set : old) {
      if (set == 0) continue;
      size_t size = 1;
      for (const Field& field : shapes_[*words(set)]) size += width(field.code);
      size_t slot = hash_of({words(set), size}) & (slots_.size() - 1);
      while (slots_[slot] != 0) slot = (slot + 1) & (slots_.size() - 1);
      slots_[slot] = set;
    }
  }
  size_t slot = hash_of(packed_) & (slots_.size() - 1);
  for (; slots_[slot] != 0; slot = (slot + 1) & (slots_.size() - 1)) {
    if (same(slots_[slot])) return slots_[slot];
  }
  const size_t room = kChunkWords - used_ % kChunkWords;
  if (room < packed_.size()) used_ += static_cast<uint32_t>(room);  // a set lies within one chunk
  if (used_ > std::numeric_limits<uint32_t>::max() - 2 * kChunkWords) {
    ++refused_;
    return 0;
  }
  while (chunks_.size() <= used_ / kChunkWords) {
    chunks_.push_back(std::make_unique_for_overwrite<uint32_t[]>(kChunkWords));
  }
  std::ranges::copy(packed_, chunks_.back().get() + used_ % kChunkWords);
  slots_[slot] = used_;
  used_ += static_cast<uint32_t>(packed_.size());
  ++sets_;
  return slots_[slot];
}

bool TraceArgs::same(uint32_t set) const {
  const uint32_t* at = words(set);
  return *at == packed_[0] && std::equal(packed_.begin(), packed_.end(), at);
}

size_t TraceArgs::bytes() const noexcept {
  size_t bytes = chunks_.size() * kChunkWords * sizeof(uint32_t) + slots_.capacity() * sizeof(uint32_t);
  for (const Shape& shape : shapes_) bytes += sizeof(shape) + shape.capacity() * sizeof(Field);
  return bytes;
}

void TraceArgs::freeze() {
  slots_ = {};
  shape_ids_.clear();
}

TraceArg TraceArgs::decode(Field field, const uint32_t* at) {
  TraceArg arg{.key = field.key};
  const auto wide = [at] { return uint64_t{at[0]} | uint64_t{at[1]} << 32U; };
  switch (field.code) {
    case Code::kInt32:
    case Code::kInt64:
      arg.kind = TraceArg::Kind::kInteger;
      arg.integer = field.code == Code::kInt32 ? static_cast<int32_t>(*at) : static_cast<int64_t>(wide());
      break;
    case Code::kDecimal:
      arg.kind = TraceArg::Kind::kNumber;
      arg.number = static_cast<int32_t>(*at) / kPowers[field.decimals];
      break;
    case Code::kDouble:
      arg.kind = TraceArg::Kind::kNumber;
      arg.number = std::bit_cast<double>(wide());
      break;
    case Code::kBool:
      arg.kind = TraceArg::Kind::kBool;
      arg.integer = *at;
      break;
    case Code::kText:
    case Code::kJson:
      arg.kind = field.code == Code::kText ? TraceArg::Kind::kText : TraceArg::Kind::kJson;
      arg.text = *at;
      break;
    case Code::kNull:
      break;
  }
  return arg;
}

std::vector<TraceArg> TraceArgs::all(uint32_t set) const {
  std::vector<TraceArg> args;
  if (set == 0) return args;
  const uint32_t* at = words(set);
  for (const Field& field : shapes_[*at++]) {
    args.push_back(decode(field, at));
    at += width(field.code);
  }
  return args;
}

std::optional<TraceArg> TraceArgs::find(uint32_t set, uint32_t key) const {
  if (set == 0) return std::nullopt;
  const uint32_t* at = words(set);
  for (const Field& field : shapes_[*at++]) {
    if (field.key == key) return decode(field, at);
    at += width(field.code);
  }
  return std::nullopt;
}

std::optional<double> TraceArgs::number(uint32_t set, uint32_t key) const {
  const std::optional<TraceArg> arg = find(set, key);
  if (!arg) return std::nullopt;
  if (arg->kind == TraceArg::Kind::kNumber) return arg->number;
  if (arg->kind == TraceArg::Kind::kInteger || arg->kind == TraceArg::Kind::kBool) {
    return static_cast<double>(arg->integer);
  }
  return std::nullopt;
}

std::optional<uint32_t> TraceArgs::text(uint32_t set, uint32_t key) const {
  const std::optional<TraceArg> arg = find(set, key);
  if (!arg || (arg->kind != TraceArg::Kind::kText && arg->kind != TraceArg::Kind::kJson)) return std::nullopt;
  return arg->text;
}

bool TraceArgs::has_text(uint32_t set, const std::vector<bool>& among) const {
  if (set == 0) return false;
  const uint32_t* at = words(set);
  for (const Field& field : shapes_[*at++]) {
    if ((field.code == Code::kText || field.code == Code::kJson) && among[*at]) return true;
    at += width(field.code);
  }
  return false;
}

}  // namespace tenon::profiler
