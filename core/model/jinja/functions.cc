// Each is a Callable that reads its arguments by name or position. range() gives 100000 numbers at most, as Jinja's
// sandbox does, and strftime_now tells the time that functions() was given.
#include "functions.h"

#include <array>

#include "operators.h"
#include "python_text.h"

namespace tenon::jinja {
namespace {

class RangeFunction : public Callable {
 public:
  Value call(Run& run, const Arguments& arguments) const override {
    const Parameters p("range", arguments, {"start", "stop", "step"}, 1);
    const int64_t start = p.has(1) ? p.integer(0, 0) : 0, stop = p.has(1) ? p.integer(1, 0) : p.integer(0, 0);
    const int64_t step = p.integer(2, 1);
    if (step == 0) throw Failure("range() arg 3 must not be zero");
    constexpr size_t kMost = 100000;
    Values items;
    for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
      if (items.size() == kMost)
        throw Failure("Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).");
      items.emplace_back(i);
      if (__builtin_add_overflow(i, step, &i)) break;
    }
    run.charge(items.size());
    return std::make_shared<const Sequence>(Sequence::Kind::kRange, std::move(items));
  }
};

// Returns the dictionary that dict() makes.
std::shared_ptr<Dict> dict_of(Run& run, std::string_view function, const Arguments& arguments) {
  auto dict = std::make_shared<Dict>();
  if (arguments.positional.size() > 1)
    throw Failure(std::string(function) + " takes at most one argument without a name");
  for (const Value& given : arguments.positional) {
    if (const Dict* other = given.as_dict()) {
      run.charge(other->weight);
      for (const auto& [key, value] : other->entries) dict->set(key, value);
      continue;
    }
    const auto pairs = items_of(run, given);
    for (const Value& pair : pairs->items) {
      const auto two = items_of(run, pair);
      if (two->items.size() != 2) throw Failure(std::string(function) + " takes a mapping or pairs");
      run.charge(dict->steps_to_find(two->items[0]));
      dict->set(two->items[0], two->items[1]);
    }
  }
  for (const auto& [name, value] : arguments.named) dict->set(Text(name, Origin::kTemplate), value);
  return dict;
}

class DictFunction : public Callable {
 public:
  Value call(Run& run, const Arguments& arguments) const override {
    return std::shared_ptr<const Dict>(dict_of(run, "dict", arguments));
  }
};

class NamespaceFunction : public Callable {
 public:
  Value call(Run& run, const Arguments& arguments) const override {
    const auto dict = dict_of(run, "namespace", arguments);
    Namespace* space = run.make_namespace();
    for (const auto& [key, value] : dict->entries) {
      if (key.as_text() == nullptr)
        throw Failure("the attributes of a namespace have names; found " + std::string(key.type()));
      space->attributes[key.as_text()->bytes()] = value;
    }
    return space;
  }
};

class RaiseException : public Callable {
 public:
  Value call(Run& run, const Arguments& arguments) const override {
    const Parameters p("raise_exception", arguments, {"message"}, 1);
    throw Failure(to_text(run, p[0]).as_text()->bytes());
  }
};

class StrftimeNow : public Callable {
 public:
  explicit StrftimeNow(const std::tm& now) : now_(now) {}
  Value call(Run& run, const Arguments& arguments) const override {
    const Parameters p("strftime_now", arguments, {"format"}, 1);
    constexpr size_t kLongest = 1000;
    std::array<char, 8 * kLongest> buffer{};
    const std::string& format = p.text(0).bytes();
    if (format.size() > kLongest) throw Failure("the format of strftime_now is too long");
    const size_t size = std::strftime(buffer.data(), buffer.size(), format.c_str(), &now_);
    return run.made(Text({buffer.data(), size}, Origin::kTemplate));
  }

 private:
  std::tm now_;
};

}  // namespace

std::vector<std::pair<std::string_view, std::shared_ptr<const Callable>>> functions(const std::tm& now) {
  return {{"range", std::make_shared<RangeFunction>()},
          {"dict", std::make_shared<DictFunction>()},
          {"namespace", std::make_shared<NamespaceFunction>()},
          {"raise_exception", std::make_shared<RaiseException>()},
          {"strftime_now", std::make_shared<StrftimeNow>(now)}};
}

bool is_unsupported_function(std::string_view name) {
  return name == "lipsum" || name == "cycler" || name == "joiner" || name == "self";
}

}  // namespace tenon::jinja
