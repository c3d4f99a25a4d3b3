// A callable is a macro, a method, or one of the functions that every template has.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "value.h"

namespace tenon::jinja {

class Run;

// These are the arguments that a call gives.
struct Arguments {
  Values positional;
  std::vector<std::pair<std::string, Value>> named;

  const Value* find(std::string_view name) const;
};

// Thread: the one of the run.
class Callable {
 public:
  Callable() = default;
  Callable(const Callable&) = delete;
  Callable& operator=(const Callable&) = delete;
  virtual ~Callable() = default;
  // Throws Failure.
  virtual Value call(Run& run, const Arguments& arguments) const = 0;
  virtual std::string_view type() const { return "builtin_function_or_method"; }
  // Returns how many levels of values it holds (see Value::depth).
  virtual uint32_t depth() const { return 0; }
};

// Puts arguments in the order of parameters. Throws Failure for one too many, one of an unknown name, one that is given
// twice, and for one of the first `required` that is missing.
class Parameters {
 public:
  // `function` is its name for errors; `names` are those of the parameters.
  Parameters(std::string_view function, const Arguments& arguments, std::initializer_list<std::string_view> names,
             size_t required);

  bool has(size_t index) const { return values_[index] != nullptr; }
  // Returns nullptr for one that was not given.
  const Value* find(size_t index) const { return values_[index]; }
  const Value& operator[](size_t index) const { return *values_[index]; }
  // These throw Failure for a value of another type; they return `otherwise` for one that was not given.
  const Text& text(size_t index) const;
  int64_t integer(size_t index, int64_t otherwise) const;
  bool flag(size_t index, bool otherwise) const { return has(index) ? truth(*values_[index]) : otherwise; }
  // This is true for a value that was not given, and for none.
  bool missing(size_t index) const { return !has(index) || values_[index]->is_none(); }

 private:
  std::string function_;
  std::vector<std::string_view> names_;
  std::vector<const Value*> values_;
};

}  // namespace tenon::jinja
