// perform() runs one statement and says how the block goes on: to the next statement, or out of a loop (break,
// continue). Names are the run's; blocks that have names of their own put back what was there before.
#include "statements.h"

#include <algorithm>

#include "python_text.h"

namespace tenon::jinja {
namespace {

// This is a macro with the names that were around its definition.
class MacroValue : public Callable {
 public:
  MacroValue(const MacroBody& body, Scope* around) : body_(body), around_(around) {}
  std::string_view type() const override { return "Macro"; }

  Value call(Run& run, const Arguments& arguments) const override {
    const Run::Level level(run);
    run.charge((1 + body_.parameters.size()) * arguments.named.size());
    check(arguments);
    const Run::Inner inner(run, around_);
    for (size_t i = 0; i < body_.parameters.size(); ++i)
      run.set(body_.parameters[i].number, argument(run, arguments, i));
    set_rest(run, arguments);
    Run::Capture capture(run);
    execute(run, body_.block);
    return capture.take();
  }

 private:
  bool is_parameter(std::string_view name) const {
    return std::any_of(body_.parameters.begin(), body_.parameters.end(), [&](const auto& p) { return p.name == name; });
  }

  void check(const Arguments& arguments) const {
    if (!body_.varargs && arguments.positional.size() > body_.parameters.size()) {
      throw Failure("macro '" + body_.name + "' takes not more than " + std::to_string(body_.parameters.size()) +
                    " argument(s)");
    }
    for (size_t i = 0; i < arguments.named.size(); ++i) {
      const std::string& name = arguments.named[i].first;
      const auto given = std::min(arguments.positional.size(), body_.parameters.size());
      const bool twice =
          std::any_of(body_.parameters.begin(), body_.parameters.begin() + static_cast<std::ptrdiff_t>(given),
                      [&](const auto& p) { return p.name == name; });
      const bool taken = is_parameter(name) || body_.kwargs || (name == "caller" && body_.caller);
      if (twice || !taken) throw Failure("macro '" + body_.name + "' takes no keyword argument '" + name + "'");
    }
  }

  Value argument(Run& run, const Arguments& arguments, size_t index) const {
    const MacroBody::Parameter& parameter = body_.parameters[index];
    if (index < arguments.positional.size()) return arguments.positional[index];
    if (const Value* named = arguments.find(parameter.name)) return *named;
    if (parameter.otherwise != nullptr) return parameter.otherwise->evaluate(run);
    return Value::undefined("parameter '" + parameter.name + "' was not provided");
  }

  void set_rest(Run& run, const Arguments& arguments) const {
    if (body_.varargs) {
      const auto given = std::min(arguments.positional.size(), body_.parameters.size());
      const auto first = arguments.positional.begin() + static_cast<std::ptrdiff_t>(given);
      run.set(*body_.varargs, make_tuple(Values(first, arguments.positional.end())));
    }
    if (body_.caller) {
      const Value* caller = arguments.find("caller");
      run.set(*body_.caller, caller != nullptr ? *caller : Value::undefined("No caller defined"));
    }
    if (!body_.kwargs) return;
    auto rest = std::make_shared<Dict>();
    for (const auto& [name, value] : arguments.named) {
      if (!is_parameter(name) && !(name == "caller" && body_.caller)) rest->set(Text(name, Origin::kTemplate), value);
    }
    run.set(*body_.kwargs, std::shared_ptr<const Dict>(std::move(rest)));
  }

  const MacroBody& body_;
  Scope* around_;
};

}  // namespace

Flow execute(Run& run, const Block& block) {
  for (const StatementPtr& statement : block) {
    const Flow flow = statement->execute(run);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Flow execute(Run& run, const ScopedBlock& block) {
  for (const auto& [name, value] : *block.undefined) run.set_if_new(name, value);
  return execute(run, block.statements);
}

Flow Data::perform(Run& run) const {
  run.at(offset);
  run.charge_bytes(text_.size());
  run.out().append(text_);
  return Flow::kNext;
}

Flow Output::perform(Run& run) const {
  const Value value = what_->evaluate(run);
  run.at(offset);
  append_text(run, run.out(), value);
  return Flow::kNext;
}

Flow If::perform(Run& run) const {
  for (const Branch& branch : branches_) {
    if (truth(branch.condition->evaluate(run))) return jinja::execute(run, branch.block);
  }
  return jinja::execute(run, otherwise_);
}

void Target::set(Run& run, const Value& value) const {
  if (const auto* variable = std::get_if<Variable>(&what_)) {
    run.set(variable->number, value);
  } else if (const auto* member = std::get_if<Member>(&what_)) {
    run.at(member->offset);
    const Value* space = run.find(member->number);
    if (space == nullptr) throw Failure("'" + member->space + "' is undefined");
    if (space->as_namespace() == nullptr) throw Failure("cannot assign attribute on non-namespace object");
    space->as_namespace()->attributes[member->name] = value;
  } else {
    const auto& targets = std::get<Several>(what_);
    const auto items = items_of(run, value);
    if (items->items.size() != targets.size()) {
      throw Failure("cannot unpack " + std::to_string(items->items.size()) + " values to " +
                    std::to_string(targets.size()) + " names");
    }
    for (size_t i = 0; i < targets.size(); ++i) targets[i].set(run, items->items[i]);
  }
}

std::shared_ptr<const Sequence> For::wanted_items(Run& run) const {
  const Value value = parts_.items->evaluate(run);
  run.at(parts_.items->offset);
  auto items = items_of(run, value);
  if (parts_.condition == nullptr) return items;
  Values wanted;
  for (const Value& item : items->items) {
    const Run::Inner inner(run);
    parts_.target.set(run, item);
    if (truth(parts_.condition->evaluate(run))) wanted.push_back(item);
  }
  return std::make_shared<const Sequence>(Sequence::Kind::kList, std::move(wanted));
}

Flow For::perform(Run& run) const {
  const auto loop = std::make_shared<Loop>();
  loop->items = wanted_items(run);
  const Values& items = loop->items->items;
  for (size_t i = 0; i < items.size(); ++i) {
    run.charge(1);
    const Run::Inner inner(run);
    run.at(offset);
    loop->index = i;
    parts_.target.set(run, items[i]);
    run.set(parts_.loop, loop);
    if (jinja::execute(run, parts_.block) == Flow::kBreak) break;
  }
  if (!items.empty() || !parts_.otherwise) return Flow::kNext;
  const Run::Inner inner(run);
  return jinja::execute(run, *parts_.otherwise);
}

Flow Set::perform(Run& run) const {
  const Value value = value_->evaluate(run);
  run.at(offset);
  target_.set(run, value);
  return Flow::kNext;
}

Flow Captured::perform(Run& run) const {
  Value value;
  {
    const Run::Inner inner(run);
    Run::Capture capture(run);
    jinja::execute(run, block_);
    value = capture.take();
  }
  for (const auto& filter : filters_) value = filter->apply(run, value);
  run.at(offset);
  if (target_) {
    target_->set(run, value);
  } else {
    append_text(run, run.out(), value);
  }
  return Flow::kNext;
}

Flow With::perform(Run& run) const {
  Values values;
  for (const auto& setting : settings_) values.push_back(setting.second->evaluate(run));
  const Run::Inner inner(run);
  for (size_t i = 0; i < values.size(); ++i) settings_[i].first.set(run, values[i]);
  return jinja::execute(run, block_);
}

Flow Macro::perform(Run& run) const {
  run.set(number_, std::shared_ptr<const Callable>(std::make_shared<MacroValue>(body_, run.keep_scope())));
  return Flow::kNext;
}

Flow CallBlock::perform(Run& run) const {
  const Value value = call_->call(run, std::make_shared<MacroValue>(body_, run.keep_scope()));
  run.at(offset);
  append_text(run, run.out(), value);
  return Flow::kNext;
}

}  // namespace tenon::jinja
