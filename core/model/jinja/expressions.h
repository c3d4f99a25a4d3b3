// These are the expressions of a template. The parser makes them, and they never change.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "callable.h"
#include "operators.h"
#include "run.h"

namespace tenon::jinja {

struct Filter;
struct Test;

class Expression {
 public:
  explicit Expression(uint32_t at) : offset(at) {}
  Expression(const Expression&) = delete;
  Expression& operator=(const Expression&) = delete;
  virtual ~Expression() = default;

  // Throws Failure; the run knows the place.
  Value evaluate(Run& run) const {
    const Run::Level level(run);
    return compute(run);
  }

  const uint32_t offset;  // in the source

 private:
  virtual Value compute(Run& run) const = 0;
};
using ExpressionPtr = std::unique_ptr<const Expression>;
using Expressions = std::vector<ExpressionPtr>;

class Constant : public Expression {
 public:
  Constant(uint32_t at, Value a_value) : Expression(at), value(std::move(a_value)) {}
  const Value value;

 private:
  Value compute(Run&) const override { return value; }
};

class Name : public Expression {
 public:
  Name(uint32_t at, uint32_t a_number, std::string a_name)
      : Expression(at), number(a_number), name(std::move(a_name)) {}
  const uint32_t number;  // the program's
  const std::string name;

 private:
  Value compute(Run& run) const override;
};

// This makes a list or a tuple.
class SequenceLiteral : public Expression {
 public:
  SequenceLiteral(uint32_t at, Sequence::Kind kind, Expressions some)
      : Expression(at), items(std::move(some)), kind_(kind) {}
  const Expressions items;

 private:
  Value compute(Run& run) const override;
  Sequence::Kind kind_;
};

class DictLiteral : public Expression {
 public:
  using Entries = std::vector<std::pair<ExpressionPtr, ExpressionPtr>>;
  DictLiteral(uint32_t at, Entries entries) : Expression(at), entries_(std::move(entries)) {}

 private:
  Value compute(Run& run) const override;
  Entries entries_;
};

class Calculation : public Expression {
 public:
  Calculation(uint32_t at, Operator op, ExpressionPtr left, ExpressionPtr right)
      : Expression(at), op_(op), left_(std::move(left)), right_(std::move(right)) {}

 private:
  Value compute(Run& run) const override;
  Operator op_;
  ExpressionPtr left_, right_;
};

enum class Prefix : uint8_t { kMinus, kPlus, kNot };
class Prefixed : public Expression {
 public:
  Prefixed(uint32_t at, Prefix prefix, ExpressionPtr of) : Expression(at), prefix_(prefix), of_(std::move(of)) {}

 private:
  Value compute(Run& run) const override;
  Prefix prefix_;
  ExpressionPtr of_;
};

// This is a < b <= c: each operand is compared with the next.
class Comparing : public Expression {
 public:
  using Comparisons = std::vector<std::pair<Comparison, ExpressionPtr>>;
  Comparing(uint32_t at, ExpressionPtr first, Comparisons comparisons)
      : Expression(at), first_(std::move(first)), comparisons_(std::move(comparisons)) {}

 private:
  Value compute(Run& run) const override;
  ExpressionPtr first_;
  Comparisons comparisons_;
};

// This is `and` or `or`.
class Logic : public Expression {
 public:
  Logic(uint32_t at, bool all, ExpressionPtr left, ExpressionPtr right)
      : Expression(at), all_(all), left_(std::move(left)), right_(std::move(right)) {}

 private:
  Value compute(Run& run) const override;
  bool all_;
  ExpressionPtr left_, right_;
};

// This is a ~ b ~ c: the operands are joined as text.
class Concatenation : public Expression {
 public:
  Concatenation(uint32_t at, Expressions parts) : Expression(at), parts_(std::move(parts)) {}

 private:
  Value compute(Run& run) const override;
  Expressions parts_;
};

// This is `then if condition else otherwise`, whose `otherwise` may be missing.
class Conditional : public Expression {
 public:
  Conditional(uint32_t at, ExpressionPtr condition, ExpressionPtr then, ExpressionPtr otherwise)
      : Expression(at), condition_(std::move(condition)), then_(std::move(then)), otherwise_(std::move(otherwise)) {}

 private:
  Value compute(Run& run) const override;
  ExpressionPtr condition_, then_, otherwise_;
};

// This is of.name.
class Attribute : public Expression {
 public:
  Attribute(uint32_t at, ExpressionPtr an_object, std::string_view a_name)
      : Expression(at), of(std::move(an_object)), name(a_name, Origin::kTemplate) {}
  const ExpressionPtr of;
  const Text name;

 private:
  Value compute(Run& run) const override;
};

// This is of[key].
class Element : public Expression {
 public:
  Element(uint32_t at, ExpressionPtr of, ExpressionPtr key)
      : Expression(at), of_(std::move(of)), key_(std::move(key)) {}

 private:
  Value compute(Run& run) const override;
  ExpressionPtr of_, key_;
};

// This is of[start:stop:step], each of which may be missing.
class Slice : public Expression {
 public:
  struct Bounds {
    ExpressionPtr start, stop, step;
  };
  Slice(uint32_t at, ExpressionPtr of, Bounds bounds)
      : Expression(at), of_(std::move(of)), bounds_(std::move(bounds)) {}

 private:
  Value compute(Run& run) const override;
  ExpressionPtr of_;
  Bounds bounds_;
};

struct ArgumentExpressions {
  Arguments evaluate(Run& run) const;

  Expressions positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr all_positional, all_named;  // *list and **dictionary; they may be missing
};

class Call : public Expression {
 public:
  Call(uint32_t at, ExpressionPtr of, ArgumentExpressions arguments)
      : Expression(at), of_(std::move(of)), arguments_(std::move(arguments)) {}

  // `caller` is what a call block gives the macro, or nullptr.
  Value call(Run& run, std::shared_ptr<const Callable> caller) const;

 private:
  Value compute(Run& run) const override { return call(run, nullptr); }
  ExpressionPtr of_;
  ArgumentExpressions arguments_;
};

// This is `of | name(arguments)`. filter_ is nullptr for a name that Jinja does not know: it fails when it is reached.
class Filtered : public Expression {
 public:
  Filtered(uint32_t at, const Filter* filter, std::string name, ArgumentExpressions arguments, ExpressionPtr of)
      : Expression(at), filter_(filter), name_(std::move(name)), arguments_(std::move(arguments)), of_(std::move(of)) {}

  Value apply(Run& run, const Value& input) const;

 private:
  Value compute(Run& run) const override { return apply(run, of_->evaluate(run)); }
  const Filter* filter_;
  std::string name_;
  ArgumentExpressions arguments_;
  ExpressionPtr of_;  // nullptr in a block of its own, which calls apply()
};

// This applies a test: `of is name(arguments)`.
class Tested : public Expression {
 public:
  Tested(uint32_t at, const Test* test, std::string name, ArgumentExpressions arguments, ExpressionPtr of)
      : Expression(at), test_(test), name_(std::move(name)), arguments_(std::move(arguments)), of_(std::move(of)) {}

 private:
  Value compute(Run& run) const override;
  const Test* test_;
  std::string name_;
  ArgumentExpressions arguments_;
  ExpressionPtr of_;
};

}  // namespace tenon::jinja
