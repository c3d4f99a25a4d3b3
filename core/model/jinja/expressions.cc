// compute() evaluates a node: first its operands, from the left, then itself by a function of operators.h. `and`, `or`
// and conditionals evaluate only the operand that counts.
#include "expressions.h"

#include "filters.h"
#include "python_text.h"
#include "tests.h"

namespace tenon::jinja {

Value Name::compute(Run& run) const {
  const Value* value = run.find(number);
  return value != nullptr ? *value : Value::undefined("'" + name + "' is undefined");
}

Value SequenceLiteral::compute(Run& run) const {
  Values values;
  for (const ExpressionPtr& item : items) values.push_back(item->evaluate(run));
  run.at(offset);
  return std::make_shared<const Sequence>(kind_, std::move(values));
}

Value DictLiteral::compute(Run& run) const {
  auto dict = std::make_shared<Dict>();
  for (const auto& [key, value] : entries_) {
    Value name = key->evaluate(run);
    Value content = value->evaluate(run);
    run.at(key->offset);
    run.charge(dict->steps_to_find(name));
    dict->set(std::move(name), std::move(content));
  }
  return std::shared_ptr<const Dict>(std::move(dict));
}

Value Calculation::compute(Run& run) const {
  const Value left = left_->evaluate(run), right = right_->evaluate(run);
  run.at(offset);
  return calculate(run, op_, left, right);
}

Value Prefixed::compute(Run& run) const {
  const Value value = of_->evaluate(run);
  run.at(offset);
  if (prefix_ == Prefix::kNot) return !truth(value);
  const Value negative = negate(value);
  return prefix_ == Prefix::kMinus ? negative : value;
}

Value Comparing::compute(Run& run) const {
  Value left = first_->evaluate(run);
  for (const auto& [comparison, expression] : comparisons_) {
    Value right = expression->evaluate(run);
    run.at(offset);
    if (!compare(run, comparison, left, right)) return false;
    left = std::move(right);
  }
  return true;
}

Value Logic::compute(Run& run) const {
  Value left = left_->evaluate(run);
  return truth(left) == all_ ? right_->evaluate(run) : left;
}

Value Concatenation::compute(Run& run) const {
  Text text;
  for (const ExpressionPtr& part : parts_) {
    const Value value = part->evaluate(run);
    run.at(part->offset);
    append_text(run, text, value);
  }
  return text;
}

Value Conditional::compute(Run& run) const {
  if (truth(condition_->evaluate(run))) return then_->evaluate(run);
  if (otherwise_ != nullptr) return otherwise_->evaluate(run);
  return Value::undefined("the inline if-expression evaluated to false and no else section was defined");
}

Value Attribute::compute(Run& run) const {
  const Value object = of->evaluate(run);
  run.at(offset);
  return attribute_of(run, object, name);
}

Value Element::compute(Run& run) const {
  const Value object = of_->evaluate(run), key = key_->evaluate(run);
  run.at(offset);
  return item_of(run, object, key);
}

Value Slice::compute(Run& run) const {
  const Value object = of_->evaluate(run);
  const auto bound = [&](const ExpressionPtr& expression) -> std::optional<int64_t> {
    if (expression == nullptr) return std::nullopt;
    const Value value = expression->evaluate(run);
    run.at(expression->offset);
    if (value.is_none()) return std::nullopt;
    if (value.as_undefined() != nullptr) fail_undefined(*value.as_undefined());
    if (!value.is_integral())
      throw Failure("slice indices must be integers or None; found " + std::string(value.type()));
    return value.integral();
  };
  SliceBounds bounds;
  bounds.start = bound(bounds_.start);
  bounds.stop = bound(bounds_.stop);
  bounds.step = bound(bounds_.step);
  run.at(offset);
  return slice_of(run, object, bounds);
}

Arguments ArgumentExpressions::evaluate(Run& run) const {
  Arguments arguments;
  for (const ExpressionPtr& one : positional) arguments.positional.push_back(one->evaluate(run));
  for (const auto& [name, one] : named) arguments.named.emplace_back(name, one->evaluate(run));
  if (all_positional != nullptr) {
    const auto items = items_of(run, all_positional->evaluate(run));
    arguments.positional.insert(arguments.positional.end(), items->items.begin(), items->items.end());
  }
  if (all_named != nullptr) {
    const Value entries = all_named->evaluate(run);
    if (entries.as_dict() == nullptr)
      throw Failure("argument after ** must be a mapping, not " + std::string(entries.type()));
    run.charge(entries.as_dict()->entries.size());
    for (const auto& [key, value] : entries.as_dict()->entries) {
      if (key.as_text() == nullptr) throw Failure("keywords must be strings");
      arguments.named.emplace_back(key.as_text()->bytes(), value);
    }
  }
  return arguments;
}

Value Call::call(Run& run, std::shared_ptr<const Callable> caller) const {
  const Value function = of_->evaluate(run);
  Arguments arguments = arguments_.evaluate(run);
  if (caller != nullptr) arguments.named.emplace_back("caller", Value(std::move(caller)));
  run.at(offset);
  if (function.as_undefined() != nullptr) fail_undefined(*function.as_undefined());
  if (function.as_callable() == nullptr) throw Failure("'" + std::string(function.type()) + "' object is not callable");
  return function.as_callable()->call(run, arguments);
}

Value Filtered::apply(Run& run, const Value& input) const {
  const Arguments arguments = arguments_.evaluate(run);
  run.at(offset);
  if (filter_ == nullptr) throw Failure("No filter named '" + name_ + "'.");
  return filter_->apply(run, input, arguments);
}

Value Tested::compute(Run& run) const {
  const Value value = of_->evaluate(run);
  const Arguments arguments = arguments_.evaluate(run);
  run.at(offset);
  if (test_ == nullptr) throw Failure("No test named '" + name_ + "'.");
  return test_->holds(run, value, arguments);
}

}  // namespace tenon::jinja
