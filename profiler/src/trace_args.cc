// A set is stored as the number of its shape and its values as varints, in chunks that never move. Equal sets are found
// by a hash table of the packed bytes. A set that has a shape and texts of an earlier one stores a bit for each value
// that differs, and those values.
#include "tenon/profiler/trace_args.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace tenon::profiler {
namespace {

constexpr size_t kMaxArgs = 1024;
constexpr size_t kMaxShapes = 1U << 16U;
constexpr size_t kMaxFirsts = 1U << 16U;
constexpr size_t kMaxDiffering = 64;  // a set that is told by its difference has so many values at most

uint64_t mixed(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0xFF51AFD7ED558CCDU;
  return hash ^ hash >> 32U;
}

uint64_t hash_of(const uint8_t* bytes, size_t size) {
  uint64_t hash = 0x9E3779B97F4A7C15U + size;
  for (; size >= 8; bytes += 8, size -= 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes, 8);
    hash = mixed(hash, word);
  }
  uint64_t rest = 0;
  std::memcpy(&rest, bytes, size);
  return mixed(hash, rest);
}

// A byte has seven bits, the lowest first; its top bit says that there are more.
void push_varint(std::vector<uint8_t>& bytes, uint64_t value) {
  for (; value >= 0x80; value >>= 7U) bytes.push_back(static_cast<uint8_t>(value | 0x80U));
  bytes.push_back(static_cast<uint8_t>(value));
}

uint64_t varint(const uint8_t*& at) {
  uint64_t value = 0;
  for (unsigned shift = 0;; shift += 7) {
    const uint8_t byte = *at++;
    value |= uint64_t{byte & 0x7FU} << shift;
    if (byte < 0x80) return value;
  }
}

// Numbers near zero become small ones, whatever their sign.
uint64_t zigzag(int64_t value) {
  return static_cast<uint64_t>(value) << 1U ^ static_cast<uint64_t>(value >> 63);
}
int64_t unzigzag(uint64_t value) {
  return static_cast<int64_t>(value >> 1U ^ (~(value & 1U) + 1U));
}

constexpr std::array<double, 7> kPowers{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6};
constexpr double kMostDigits = 0x1p45;  // beyond it a double takes no more bytes

// The code has the integer, and after it in three bits the power of ten.
std::optional<uint64_t> exact_decimal(double value) {
  for (uint32_t i = 1; i < kPowers.size(); ++i) {
    const double digits = std::nearbyint(value * kPowers[i]);
    if (!(std::abs(digits) <= kMostDigits)) return std::nullopt;
    if (digits / kPowers[i] == value) return zigzag(static_cast<int64_t>(digits)) << 3U | i;
  }
  return std::nullopt;
}

}  // namespace

const uint8_t* TraceArgs::skip(Code code, const uint8_t* at) {
  if (code == Code::kNull) return at;
  if (code == Code::kDouble) return at + sizeof(double);
  while (*at >= 0x80) ++at;
  return at + 1;
}

void TraceArgs::pack(const TraceArg& arg) {
  Code code = Code::kNull;
  switch (arg.kind) {
    case TraceArg::Kind::kInteger:
      code = Code::kInteger;
      push_varint(values_, zigzag(arg.integer));
      break;
    case TraceArg::Kind::kNumber:
      if (const std::optional<uint64_t> decimal = exact_decimal(arg.number)) {
        code = Code::kDecimal;
        push_varint(values_, *decimal);
      } else {
        code = Code::kDouble;
        const auto bytes = std::bit_cast<std::array<uint8_t, sizeof(double)>>(arg.number);
        values_.insert(values_.end(), bytes.begin(), bytes.end());
      }
      break;
    case TraceArg::Kind::kBool:
      code = Code::kBool;
      values_.push_back(arg.integer != 0 ? 1 : 0);
      break;
    case TraceArg::Kind::kText:
    case TraceArg::Kind::kJson:
      code = arg.kind == TraceArg::Kind::kText ? Code::kText : Code::kJson;
      push_varint(values_, arg.text);
      sort_ = mixed(sort_, arg.text);
      break;
    case TraceArg::Kind::kNull:
      break;
  }
  shape_.push_back({arg.key, code});
}

void TraceArgs::grow() {
  const std::vector<uint32_t> old = std::move(slots_);
  slots_.assign(std::max<size_t>(1024, old.size() * 2), 0);
  for (const uint32_t set : old) {
    if (set == 0) continue;
    Values values(*this, set);
    for (const Field& field : values.shape()) values.next(field.code);
    size_t slot = hash_of(at(set), static_cast<size_t>(values.end() - at(set))) & (slots_.size() - 1);
    while (slots_[slot] != 0) slot = (slot + 1) & (slots_.size() - 1);
    slots_[slot] = set;
  }
}

bool TraceArgs::find_shape() {
  if (!shapes_.empty() && shapes_[last_shape_] == shape_) return true;
  if (shapes_.size() == kMaxShapes && !shape_ids_.contains(shape_)) return false;
  const auto [shape, is_new] = shape_ids_.try_emplace(shape_, static_cast<uint32_t>(shapes_.size()));
  if (is_new) shapes_.push_back(shape_);
  last_shape_ = shape->second;
  return true;
}

uint32_t TraceArgs::intern(std::span<const TraceArg> args) {
  if (args.empty()) return 0;
  shape_.clear();
  values_.clear();
  packed_.clear();
  sort_ = 0;
  for (const TraceArg& arg : args.first(std::min(args.size(), kMaxArgs))) pack(arg);
  if (!find_shape()) {
    ++refused_;
    return 0;
  }
  sort_ = mixed(sort_, last_shape_);
  const auto first = first_ids_.find(sort_);
  if (first != first_ids_.end() && shape_.size() <= kMaxDiffering) {
    if (const uint32_t same = pack_difference(first->second); same != 0) return same;
  }
  if (packed_.empty()) {
    push_varint(packed_, uint64_t{last_shape_} << 1U);
    packed_.insert(packed_.end(), values_.begin(), values_.end());
  }
  const uint32_t set = keep();
  if (set != 0 && first == first_ids_.end() && firsts_.size() < kMaxFirsts) {
    first_ids_.emplace(sort_, static_cast<uint32_t>(firsts_.size()));
    firsts_.push_back(set);
  }
  return set;
}

uint32_t TraceArgs::pack_difference(uint32_t first) {
  Values others(*this, firsts_[first]);
  if (&others.shape() != &shapes_[last_shape_]) return 0;
  uint64_t differing = 0;
  differences_.clear();
  const uint8_t* mine = values_.data();
  for (size_t i = 0; i < shape_.size(); ++i) {
    const Code code = shape_[i].code;
    const uint8_t *const other = others.next(code), *const after = skip(code, mine);
    if (after - mine != skip(code, other) - other || !std::equal(mine, after, other)) {
      differing |= uint64_t{1} << i;
      differences_.insert(differences_.end(), mine, after);
    }
    mine = after;
  }
  push_varint(packed_, uint64_t{last_shape_} << 1U | 1U);
  push_varint(packed_, first);
  push_varint(packed_, differing);
  packed_.insert(packed_.end(), differences_.begin(), differences_.end());
  return differing == 0 ? firsts_[first] : 0;
}

uint32_t TraceArgs::keep() {
  if ((sets_ + 1) * 2 > slots_.size()) grow();
  size_t slot = hash_of(packed_.data(), packed_.size()) & (slots_.size() - 1);
  for (; slots_[slot] != 0; slot = (slot + 1) & (slots_.size() - 1)) {
    if (same(slots_[slot])) return slots_[slot];
  }
  const size_t room = kChunk - used_ % kChunk;
  if (room < packed_.size()) used_ += static_cast<uint32_t>(room);  // a set lies within one chunk
  if (used_ > std::numeric_limits<uint32_t>::max() - 2 * kChunk) {
    ++refused_;
    return 0;
  }
  while (chunks_.size() <= used_ / kChunk) chunks_.push_back(std::make_unique<uint8_t[]>(kChunk));
  std::ranges::copy(packed_, chunks_.back().get() + used_ % kChunk);
  slots_[slot] = used_;
  used_ += static_cast<uint32_t>(packed_.size());
  ++sets_;
  return slots_[slot];
}

TraceArgs::Values::Values(const TraceArgs& args, uint32_t set)
    : own_(args.at(set)), head_(varint(own_)), shape_(args.shapes_[head_ >> 1U]) {
  if ((head_ & 1U) == 0) return;
  first_ = args.at(args.firsts_[varint(own_)]);
  varint(first_);
  differing_ = varint(own_);
}

const uint8_t* TraceArgs::Values::next(Code code) {
  const bool is_own = first_ == nullptr || (differing_ & 1U) != 0;
  const uint8_t* const value = is_own ? own_ : first_;
  if (is_own) own_ = skip(code, own_);
  if (first_ != nullptr) first_ = skip(code, first_);
  differing_ >>= 1U;
  return value;
}

bool TraceArgs::same(uint32_t set) const {
  return set % kChunk + packed_.size() <= kChunk && std::memcmp(at(set), packed_.data(), packed_.size()) == 0;
}

size_t TraceArgs::bytes() const noexcept {
  size_t bytes = chunks_.size() * kChunk + (slots_.capacity() + firsts_.capacity()) * sizeof(uint32_t);
  for (const Shape& shape : shapes_) bytes += sizeof(Shape) + shape.capacity() * sizeof(Field);
  return bytes;
}

void TraceArgs::freeze() {
  slots_ = std::vector<uint32_t>();  // `= {}` would keep the memory
  shape_ids_.clear();
  first_ids_ = decltype(first_ids_)();
}

TraceArg TraceArgs::decode(Field field, const uint8_t* at) {
  TraceArg arg{.key = field.key};
  switch (field.code) {
    case Code::kInteger:
      arg.kind = TraceArg::Kind::kInteger;
      arg.integer = unzigzag(varint(at));
      break;
    case Code::kDecimal: {
      const uint64_t decimal = varint(at);
      arg.kind = TraceArg::Kind::kNumber;
      arg.number = static_cast<double>(unzigzag(decimal >> 3U)) / kPowers[decimal & 7U];
      break;
    }
    case Code::kDouble:
      arg.kind = TraceArg::Kind::kNumber;
      std::memcpy(&arg.number, at, sizeof(arg.number));
      break;
    case Code::kBool:
      arg.kind = TraceArg::Kind::kBool;
      arg.integer = *at;
      break;
    case Code::kText:
    case Code::kJson:
      arg.kind = field.code == Code::kText ? TraceArg::Kind::kText : TraceArg::Kind::kJson;
      arg.text = static_cast<uint32_t>(varint(at));
      break;
    case Code::kNull:
      break;
  }
  return arg;
}

std::vector<TraceArg> TraceArgs::all(uint32_t set) const {
  std::vector<TraceArg> args;
  if (set == 0) return args;
  Values values(*this, set);
  for (const Field& field : values.shape()) args.push_back(decode(field, values.next(field.code)));
  return args;
}

std::optional<TraceArg> TraceArgs::find(uint32_t set, uint32_t key) const {
  if (set == 0) return std::nullopt;
  Values values(*this, set);
  for (const Field& field : values.shape()) {
    const uint8_t* value = values.next(field.code);
    if (field.key == key) return decode(field, value);
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
  Values values(*this, set);
  for (const Field& field : values.shape()) {
    const uint8_t* value = values.next(field.code);
    if ((field.code == Code::kText || field.code == Code::kJson) && among[varint(value)]) return true;
  }
  return false;
}

}  // namespace tenon::profiler
