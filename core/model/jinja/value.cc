// Here are comparisons, truth, names of types and look-ups in dictionaries, as Python has them. check_size() bounds the
// depth and the weight of a new list or dictionary, so that walking through a value always ends soon.
#include "value.h"

#include <algorithm>

#include "callable.h"

namespace tenon::jinja {
namespace {

void check_size(uint32_t depth, uint64_t weight) {
  constexpr uint32_t kDeepest = 100;
  constexpr uint64_t kHeaviest = uint64_t{1} << 32;  // Sums of such weights do not overflow.
  if (depth > kDeepest)
    throw Failure("lists and dictionaries are nested more than " + std::to_string(kDeepest) + " deep");
  if (weight > kHeaviest) throw Failure("a list or dictionary holds too much");
}

}  // namespace

Value Value::undefined(std::string why) {
  Value value;
  value.storage_ = Undefined{std::make_shared<const std::string>(std::move(why))};
  return value;
}

bool Value::same(const Value& other) const {
  if (storage_.index() != other.storage_.index()) return false;
  return std::visit(
      [&]<class T>(const T& mine) {
        const T& theirs = std::get<T>(other.storage_);
        if constexpr (std::is_same_v<T, None>) {
          return true;
        } else if constexpr (std::is_same_v<T, Undefined>) {
          return mine.why == theirs.why;
        } else if constexpr (std::is_same_v<T, std::shared_ptr<const Text>>) {
          return mine->bytes() == theirs->bytes();
        } else {
          return mine == theirs;
        }
      },
      storage_);
}

std::string_view Value::type() const {
  if (is_none()) return "NoneType";
  if (as_undefined() != nullptr) return "Undefined";
  if (as_bool() != nullptr) return "bool";
  if (as_integer() != nullptr) return "int";
  if (as_double() != nullptr) return "float";
  if (as_text() != nullptr) return as_text()->safe() ? "Markup" : "str";
  if (as_dict() != nullptr) return "dict";
  if (as_loop() != nullptr) return "LoopContext";
  if (as_namespace() != nullptr) return "Namespace";
  if (as_callable() != nullptr) return as_callable()->type();
  return type_name(as_sequence()->kind);
}

std::string_view type_name(Sequence::Kind kind) {
  switch (kind) {
    case Sequence::Kind::kList:
      return "list";
    case Sequence::Kind::kTuple:
      return "tuple";
    case Sequence::Kind::kIterator:
      return "generator";
    case Sequence::Kind::kRange:
      return "range";
    case Sequence::Kind::kItems:
      return "dict_items";
    case Sequence::Kind::kKeys:
      return "dict_keys";
    case Sequence::Kind::kValues:
      return "dict_values";
  }
  return "object";
}

uint32_t Value::depth() const {
  if (as_sequence() != nullptr) return as_sequence()->depth;
  if (as_dict() != nullptr) return as_dict()->depth;
  if (as_loop() != nullptr) return as_loop()->items->depth + 1;
  return as_callable() != nullptr ? as_callable()->depth() : 0;
}

uint64_t Value::weight() const {
  constexpr size_t kBytesOfAStep = 256;
  if (as_text() != nullptr) return 1 + as_text()->size() / kBytesOfAStep;
  return as_sequence() != nullptr ? as_sequence()->weight : as_dict() != nullptr ? as_dict()->weight : 1;
}

Sequence::Sequence(Kind a_kind, Values some) : kind(a_kind), items(std::move(some)) {
  for (const Value& item : items) {
    depth = std::max(depth, item.depth() + 1);
    weight += item.weight();
  }
  check_size(depth, weight);
}

Value make_list(Values items) {
  return std::make_shared<const Sequence>(Sequence::Kind::kList, std::move(items));
}
Value make_tuple(Values items) {
  return std::make_shared<const Sequence>(Sequence::Kind::kTuple, std::move(items));
}
Value make_iterator(Values items) {
  return std::make_shared<const Sequence>(Sequence::Kind::kIterator, std::move(items));
}

void Dict::set(Value key, Value value) {
  if (!hashable(key)) throw Failure("unhashable type: '" + std::string(key.type()) + "'");
  depth = std::max({depth, key.depth() + 1, value.depth() + 1});
  weight += steps_to_find(key) + value.weight();
  check_size(depth, weight);
  if (const Value* known = find(key)) {
    *const_cast<Value*>(known) = std::move(value);
    return;
  }
  if (key.as_text() != nullptr) {
    by_text.emplace(key.as_text()->bytes(), entries.size());
  } else {
    other_keys_weight += key.weight();
  }
  entries.emplace_back(std::move(key), std::move(value));
}

uint64_t Dict::steps_to_find(const Value& key) const {
  return key.weight() + (key.as_text() != nullptr ? 0 : other_keys_weight);
}

const Value* Dict::find(const Value& key) const {
  if (key.as_text() != nullptr) return find(key.as_text()->bytes());
  for (const auto& [known, value] : entries) {
    if (known.as_text() == nullptr && equal(known, key)) return &value;
  }
  return nullptr;
}

const Value* Dict::find(std::string_view key) const {
  const auto found = by_text.find(key);
  return found == by_text.end() ? nullptr : &entries[found->second].second;
}

Values Dict::keys() const {
  Values keys;
  for (const auto& entry : entries) keys.push_back(entry.first);
  return keys;
}

namespace {

bool equal_sequences(const Sequence& a, const Sequence& b) {
  if (&a == &b) return true;
  return a.kind == b.kind && a.kind != Sequence::Kind::kIterator && a.kind != Sequence::Kind::kValues &&
         std::equal(a.items.begin(), a.items.end(), b.items.begin(), b.items.end(), equal);
}

bool equal_dicts(const Dict& a, const Dict& b) {
  if (&a == &b) return true;
  if (a.entries.size() != b.entries.size()) return false;
  return std::all_of(a.entries.begin(), a.entries.end(), [&](const auto& entry) {
    const Value* other = b.find(entry.first);
    return other != nullptr && equal(entry.second, *other);
  });
}

}  // namespace

bool equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    return a.is_integral() && b.is_integral() ? a.integral() == b.integral() : a.number() == b.number();
  }
  if (a.as_undefined() != nullptr) return b.as_undefined() != nullptr;
  if (a.as_sequence() != nullptr && b.as_sequence() != nullptr)
    return equal_sequences(*a.as_sequence(), *b.as_sequence());
  if (a.as_dict() != nullptr && b.as_dict() != nullptr) return equal_dicts(*a.as_dict(), *b.as_dict());
  return a.same(b);
}

bool truth(const Value& value) {
  if (value.is_none() || value.as_undefined() != nullptr) return false;
  if (value.is_number()) return value.number() != 0;
  if (value.as_text() != nullptr) return !value.as_text()->empty();
  if (value.as_sequence() != nullptr) return !value.as_sequence()->has_length() || !value.as_sequence()->items.empty();
  if (value.as_dict() != nullptr) return !value.as_dict()->entries.empty();
  return true;
}

bool hashable(const Value& value) {
  if (value.as_dict() != nullptr) return false;
  const Sequence* sequence = value.as_sequence();
  if (sequence == nullptr) return true;
  return sequence->kind == Sequence::Kind::kTuple &&
         std::all_of(sequence->items.begin(), sequence->items.end(), hashable);
}

}  // namespace tenon::jinja
