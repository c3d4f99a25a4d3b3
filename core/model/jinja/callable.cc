#include "callable.h"

#include <algorithm>

namespace tenon::jinja {

const Value* Arguments::find(std::string_view name) const {
  const auto found = std::find_if(named.begin(), named.end(), [&](const auto& one) { return one.first == name; });
  return found == named.end() ? nullptr : &found->second;
}

Parameters::Parameters(std::string_view function, const Arguments& arguments,
                       std::initializer_list<std::string_view> names, size_t required)
    : function_(function), names_(names), values_(names.size(), nullptr) {
  if (arguments.positional.size() > names_.size()) {
    throw Failure(function_ + " takes at most " + std::to_string(names_.size()) + " arguments; found " +
                  std::to_string(arguments.positional.size()));
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto known = std::find(names_.begin(), names_.end(), name);
    if (known == names_.end()) throw Failure(function_ + " has no argument \"" + name + "\"");
    const Value*& place = values_[static_cast<size_t>(known - names_.begin())];
    if (place != nullptr) throw Failure(function_ + " is given the argument \"" + name + "\" twice");
    place = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (values_[i] == nullptr) throw Failure(function_ + " needs the argument \"" + std::string(names_[i]) + "\"");
  }
}

const Text& Parameters::text(size_t index) const {
  const Text* text = values_[index]->as_text();
  if (text != nullptr) return *text;
  const Undefined* undefined = values_[index]->as_undefined();
  if (undefined != nullptr) throw Failure(*undefined->why);
  throw Failure(function_ + ": the argument \"" + std::string(names_[index]) + "\" has to be a str; found " +
                std::string(values_[index]->type()));
}

int64_t Parameters::integer(size_t index, int64_t otherwise) const {
  if (!has(index)) return otherwise;
  if (values_[index]->is_integral()) return values_[index]->integral();
  throw Failure(function_ + ": the argument \"" + std::string(names_[index]) + "\" has to be an int; found " +
                std::string(values_[index]->type()));
}

}  // namespace tenon::jinja
