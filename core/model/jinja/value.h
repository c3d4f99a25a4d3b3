// These are the values of templates, with Python's types and rules. A value never changes: templates run in a sandbox
// that lets them change nothing but namespaces.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "failure.h"
#include "text.h"

namespace tenon::jinja {

class Value;
class Callable;
struct Sequence;
struct Dict;
struct Loop;
struct Namespace;
using Values = std::vector<Value>;

struct None {};
// This is a name, element or attribute that is not there. `why` says which, for the error of whoever needs it.
struct Undefined {
  std::shared_ptr<const std::string> why;
};

// Namespaces belong to the run (see run.h), since they may hold themselves;
// whatever else a value points to belongs to it.
class Value {
 public:
  Value() = default;
  Value(bool value) : storage_(value) {}                                              // NOLINT: values convert
  Value(int64_t value) : storage_(value) {}                                           // NOLINT
  Value(double value) : storage_(value) {}                                            // NOLINT
  Value(Text text) : storage_(std::make_shared<const Text>(std::move(text))) {}       // NOLINT
  Value(std::shared_ptr<const Sequence> items) : storage_(std::move(items)) {}        // NOLINT
  Value(std::shared_ptr<const Dict> dict) : storage_(std::move(dict)) {}              // NOLINT
  Value(std::shared_ptr<Loop> loop) : storage_(std::move(loop)) {}                    // NOLINT
  Value(std::shared_ptr<const Callable> callable) : storage_(std::move(callable)) {}  // NOLINT
  Value(Namespace* space) : storage_(space) {}                                        // NOLINT
  Value(const char*) = delete;
  static Value undefined(std::string why);

  bool is_none() const { return std::holds_alternative<None>(storage_); }
  const Undefined* as_undefined() const { return std::get_if<Undefined>(&storage_); }
  const bool* as_bool() const { return std::get_if<bool>(&storage_); }
  const double* as_double() const { return std::get_if<double>(&storage_); }
  // Booleans count as integers, as in Python.
  const int64_t* as_integer() const { return std::get_if<int64_t>(&storage_); }
  bool is_integral() const { return as_integer() != nullptr || as_bool() != nullptr; }
  bool is_number() const { return is_integral() || as_double() != nullptr; }
  int64_t integral() const { return as_bool() != nullptr ? int64_t{*as_bool()} : *as_integer(); }
  double number() const { return as_double() != nullptr ? *as_double() : static_cast<double>(integral()); }

  const Text* as_text() const { return get<std::shared_ptr<const Text>>(); }
  const Sequence* as_sequence() const { return get<std::shared_ptr<const Sequence>>(); }
  const Dict* as_dict() const { return get<std::shared_ptr<const Dict>>(); }
  Loop* as_loop() const { return get<std::shared_ptr<Loop>>(); }
  const Callable* as_callable() const { return get<std::shared_ptr<const Callable>>(); }
  Namespace* as_namespace() const { return get<Namespace*>(); }
  std::shared_ptr<const Sequence> shared_sequence() const {
    return std::get<std::shared_ptr<const Sequence>>(storage_);
  }

  // Returns whether both are the same object, as `is` of Python has it.
  bool same(const Value& other) const;
  // Returns Python's name of its type: "str", "NoneType".
  std::string_view type() const;
  // Returns how many levels of values that hold others it has; 0 for one that holds none.
  uint32_t depth() const;
  // Returns about how many steps it takes to walk through it.
  uint64_t weight() const;

 private:
  template <class Pointer>
  auto get() const -> decltype(&*std::declval<Pointer>()) {
    const Pointer* pointer = std::get_if<Pointer>(&storage_);
    return pointer == nullptr ? nullptr : &**pointer;
  }

  std::variant<None, Undefined, bool, int64_t, double, std::shared_ptr<const Text>, std::shared_ptr<const Sequence>,
               std::shared_ptr<const Dict>, std::shared_ptr<Loop>, std::shared_ptr<const Callable>, Namespace*>
      storage_;
};

struct Sequence {
  // The last four are what range(), items(), keys() and values() of a dictionary give. An iterator, which filters such
  // as `map` give, has no length and gives each item once.
  enum class Kind : uint8_t { kList, kTuple, kIterator, kRange, kItems, kKeys, kValues };
  // Throws Failure if it is nested too deeply.
  Sequence(Kind a_kind, Values some);

  bool has_length() const { return kind != Kind::kIterator; }
  bool has_elements() const { return kind == Kind::kList || kind == Kind::kTuple || kind == Kind::kRange; }

  Kind kind;
  Values items;
  uint32_t depth = 1;
  uint64_t weight = 1;
  mutable bool used_up = false;  // an iterator that gave its items
};

// Returns Python's name of the type.
std::string_view type_name(Sequence::Kind kind);

Value make_list(Values items);
Value make_tuple(Values items);
Value make_iterator(Values items);

// The entries are in the order in which their keys were first set. A key is a
// text, a number, a boolean, none or a tuple.
struct Dict {
  // Sets a key. It is for making a dictionary, which does not change once it is a value. Throws Failure for a key that
  // cannot be one.
  void set(Value key, Value value);
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  // Returns about how many steps find() takes: keys that are no texts are compared one by one.
  uint64_t steps_to_find(const Value& key) const;
  Values keys() const;

  std::vector<std::pair<Value, Value>> entries;
  std::map<std::string, size_t, std::less<>> by_text;  // the entries whose keys are texts
  uint32_t depth = 1;
  uint64_t weight = 1;
  uint64_t other_keys_weight = 0;  // the weight of the keys that are no texts
};

// Templates may write to nothing but this.
struct Namespace {
  std::map<std::string, Value, std::less<>> attributes;
};

// The name `loop` stands for this inside of a loop.
struct Loop {
  std::shared_ptr<const Sequence> items;
  size_t index = 0;
};

// This is the comparison == of Python.
bool equal(const Value& a, const Value& b);
// Returns whether `if` takes its branch for the value.
bool truth(const Value& value);
// Returns whether it can be a key of a dictionary.
bool hashable(const Value& value);

}  // namespace tenon::jinja
