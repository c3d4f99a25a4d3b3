// This is one rendering of a template: it has the variables, the output, and how much of the limits is used.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "value.h"

namespace tenon::jinja {

struct Program;

struct Limits {
  uint64_t steps = 10'000'000;         // nodes that are evaluated, and items that are walked over
  uint64_t bytes = uint64_t{1} << 29;  // all texts that are made on the way may have so many
  uint32_t depth = 1000;               // nodes within nodes, through calls of macros
};

// This holds variables by the numbers that the program gives their names.
struct Scope {
  explicit Scope(Scope* around) : parent(around) {}

  Scope* parent;
  std::vector<std::pair<uint32_t, Value>> variables;
  bool kept = false;  // a macro was defined in it, or in one within: it lives as long as the run
};

class Run {
 public:
  Run(const Program& program, const Limits& limits);
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  const Program& program() const { return program_; }

  // These throw Failure where a limit is passed.
  void charge(uint64_t steps);
  void charge_bytes(uint64_t bytes);
  // Takes a text that was made.
  Value made(Text text);

  // A failure names this place in the source.
  void at(uint32_t offset) { offset_ = offset; }
  uint32_t offset() const { return offset_; }

  // Returns nullptr for a name that was not set.
  const Value* find(uint32_t name);
  // Sets the name in the innermost scope.
  void set(uint32_t name, Value value);
  // Does the same, unless the scope has the name.
  void set_if_new(uint32_t name, const Value& value);
  Scope* scope() const { return scope_; }
  // The innermost scope, and those around it, live as long as the run.
  Scope* keep_scope();

  Namespace* make_namespace();
  Text& out() { return *out_; }

  // While one of these lives, evaluation is one level deeper. Throws Failure.
  class Level {
   public:
    explicit Level(Run& run);
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    ~Level() { --run_.depth_; }

   private:
    Run& run_;
  };

  // While one of these lives, names are set in a scope of its own, within the present one or another.
  class Inner {
   public:
    explicit Inner(Run& run) : Inner(run, run.scope_) {}
    Inner(Run& run, Scope* around);
    Inner(const Inner&) = delete;
    Inner& operator=(const Inner&) = delete;
    ~Inner();

   private:
    Run& run_;
    Scope* before_;
    std::unique_ptr<Scope> scope_;
  };

  // While one of these lives, output goes to a text of its own.
  class Capture {
   public:
    explicit Capture(Run& run) : run_(run), before_(run.out_) { run.out_ = &text_; }
    Capture(const Capture&) = delete;
    Capture& operator=(const Capture&) = delete;
    ~Capture() { run_.out_ = before_; }
    Text take() { return std::move(text_); }

   private:
    Run& run_;
    Text* before_;
    Text text_;
  };

 private:
  Value* find_in(Scope& scope, uint32_t name);

  const Program& program_;
  const Limits limits_;
  uint64_t steps_ = 0, bytes_ = 0;
  uint32_t depth_ = 0, offset_ = 0;
  std::deque<Namespace> namespaces_;
  std::vector<std::unique_ptr<Scope>> kept_;
  Scope root_{nullptr};
  Scope* scope_ = &root_;
  Text* out_ = nullptr;
};

}  // namespace tenon::jinja
