// These are the statements of a template: what stands between {% and %}, and the text around. The parser makes them,
// and they never change.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "expressions.h"

namespace tenon::jinja {

// A statement ends with this: a loop around it goes on, or not.
enum class Flow : uint8_t { kNext, kContinue, kBreak };

class Statement {
 public:
  explicit Statement(uint32_t at) : offset(at) {}
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;
  virtual ~Statement() = default;

  // Throws Failure; the run knows the place.
  Flow execute(Run& run) const {
    const Run::Level level(run);
    return perform(run);
  }

  const uint32_t offset;

 private:
  virtual Flow perform(Run& run) const = 0;
};
using StatementPtr = std::unique_ptr<const Statement>;
using Block = std::vector<StatementPtr>;

Flow execute(Run& run, const Block& block);

// This is a block with names of its own. Jinja decides before a block runs which names are its own: one that it sets
// before it reads it is undefined from its beginning, whatever the name means outside.
struct ScopedBlock {
  using Undefineds = std::vector<std::pair<uint32_t, Value>>;

  Block statements;
  std::shared_ptr<const Undefineds> undefined;
};
// The scope is the run's innermost.
Flow execute(Run& run, const ScopedBlock& block);

class Data : public Statement {
 public:
  Data(uint32_t at, std::string_view text) : Statement(at), text_(text, Origin::kTemplate) {}

 private:
  Flow perform(Run& run) const override;
  Text text_;
};

// This is {{ what }}: it writes a value to the output.
class Output : public Statement {
 public:
  Output(uint32_t at, ExpressionPtr what) : Statement(at), what_(std::move(what)) {}

 private:
  Flow perform(Run& run) const override;
  ExpressionPtr what_;
};

class If : public Statement {
 public:
  struct Branch {
    ExpressionPtr condition;
    Block block;
  };
  If(uint32_t at, std::vector<Branch> branches, Block otherwise)
      : Statement(at), branches_(std::move(branches)), otherwise_(std::move(otherwise)) {}

 private:
  Flow perform(Run& run) const override;
  std::vector<Branch> branches_;
  Block otherwise_;
};

// A target is what is set: a name, an attribute of a namespace, or several of them.
class Target {
 public:
  struct Variable {
    uint32_t number;
  };
  struct Member {
    uint32_t offset, number;
    std::string space, name;
  };
  using Several = std::vector<Target>;
  explicit Target(std::variant<Variable, Member, Several> what) : what_(std::move(what)) {}

  // Throws Failure.
  void set(Run& run, const Value& value) const;

 private:
  std::variant<Variable, Member, Several> what_;
};

class For : public Statement {
 public:
  struct Parts {
    Target target;
    ExpressionPtr items, condition;  // there may be no condition
    ScopedBlock block;
    std::optional<ScopedBlock> otherwise;
    uint32_t loop;  // the number of the name "loop"
  };
  For(uint32_t at, Parts parts) : Statement(at), parts_(std::move(parts)) {}

 private:
  Flow perform(Run& run) const override;
  std::shared_ptr<const Sequence> wanted_items(Run& run) const;
  Parts parts_;
};

// This is {% set target = value %}.
class Set : public Statement {
 public:
  Set(uint32_t at, Target target, ExpressionPtr value)
      : Statement(at), target_(std::move(target)), value_(std::move(value)) {}

 private:
  Flow perform(Run& run) const override;
  Target target_;
  ExpressionPtr value_;
};

// This is a block with names of its own, whose output goes through filters, if there are any, and then to a target or
// to the output: {% set target %}, {% filter name %}, {% generation %}.
class Captured : public Statement {
 public:
  Captured(uint32_t at, std::optional<Target> target, std::vector<std::unique_ptr<const Filtered>> filters,
           ScopedBlock block)
      : Statement(at), target_(std::move(target)), filters_(std::move(filters)), block_(std::move(block)) {}

 private:
  Flow perform(Run& run) const override;
  std::optional<Target> target_;
  std::vector<std::unique_ptr<const Filtered>> filters_;
  ScopedBlock block_;
};

class With : public Statement {
 public:
  using Settings = std::vector<std::pair<Target, ExpressionPtr>>;
  With(uint32_t at, Settings settings, ScopedBlock block)
      : Statement(at), settings_(std::move(settings)), block_(std::move(block)) {}

 private:
  Flow perform(Run& run) const override;
  Settings settings_;
  ScopedBlock block_;
};

// This holds the parameters and the text of a macro or of a call block.
struct MacroBody {
  struct Parameter {
    uint32_t number;
    std::string name;
    ExpressionPtr otherwise;  // if nullptr, it is undefined
  };

  std::string name;
  std::vector<Parameter> parameters;
  ScopedBlock block;
  // These are the numbers of the names varargs, kwargs and caller if the macro mentions them.
  std::optional<uint32_t> varargs, kwargs, caller;
};

class Macro : public Statement {
 public:
  Macro(uint32_t at, uint32_t number, MacroBody body) : Statement(at), number_(number), body_(std::move(body)) {}

 private:
  Flow perform(Run& run) const override;
  uint32_t number_;
  MacroBody body_;
};

// This is {% call(parameters) macro(arguments) %}.
class CallBlock : public Statement {
 public:
  CallBlock(uint32_t at, std::unique_ptr<const Call> call, MacroBody body)
      : Statement(at), call_(std::move(call)), body_(std::move(body)) {}

 private:
  Flow perform(Run& run) const override;
  std::unique_ptr<const Call> call_;
  MacroBody body_;
};

// This is {% break %} or {% continue %}.
class Jump : public Statement {
 public:
  Jump(uint32_t at, Flow flow) : Statement(at), flow_(flow) {}

 private:
  Flow perform(Run&) const override { return flow_; }
  Flow flow_;
};

}  // namespace tenon::jinja
