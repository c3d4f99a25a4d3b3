#include "run.h"

namespace tenon::jinja {

Run::Run(const Program& program, const Limits& limits) : program_(program), limits_(limits) {}

void Run::charge(uint64_t steps) {
  steps_ += steps;
  if (steps_ > limits_.steps) {
    throw Failure("the template takes more than " + std::to_string(limits_.steps) + " steps");
  }
}

void Run::charge_bytes(uint64_t bytes) {
  bytes_ += bytes;
  if (bytes_ > limits_.bytes) {
    throw Failure("the template makes more than " + std::to_string(limits_.bytes) + " bytes of text");
  }
}

Value Run::made(Text text) {
  charge_bytes(text.size());
  return {std::move(text)};
}

const Value* Run::find(uint32_t name) {
  for (Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    if (const Value* value = find_in(*scope, name)) return value;
  }
  return nullptr;
}

// Templates have few names. One that has thousands pays for the search.
Value* Run::find_in(Scope& scope, uint32_t name) {
  constexpr size_t kNamesOfAStep = 32;
  charge(scope.variables.size() / kNamesOfAStep);
  for (auto& [known, value] : scope.variables) {
    if (known == name) return &value;
  }
  return nullptr;
}

void Run::set(uint32_t name, Value value) {
  if (Value* old = find_in(*scope_, name)) {
    *old = std::move(value);
  } else {
    scope_->variables.emplace_back(name, std::move(value));
  }
}

void Run::set_if_new(uint32_t name, const Value& value) {
  if (find_in(*scope_, name) == nullptr) scope_->variables.emplace_back(name, value);
}

Scope* Run::keep_scope() {
  for (Scope* scope = scope_; scope != nullptr && !scope->kept; scope = scope->parent) scope->kept = true;
  return scope_;
}

Namespace* Run::make_namespace() {
  return &namespaces_.emplace_back();
}

Run::Level::Level(Run& run) : run_(run) {
  run.charge(1);
  if (++run.depth_ <= run.limits_.depth) return;
  --run.depth_;  // No destructor will do so.
  throw Failure("the template nests expressions, blocks and calls of macros more than " +
                std::to_string(run.limits_.depth) + " deep");
}

Run::Inner::Inner(Run& run, Scope* around) : run_(run), before_(run.scope_), scope_(std::make_unique<Scope>(around)) {
  run.scope_ = scope_.get();
}

Run::Inner::~Inner() {
  run_.scope_ = before_;
  if (scope_->kept) run_.kept_.push_back(std::move(scope_));
}

}  // namespace tenon::jinja
