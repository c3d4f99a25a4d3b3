// These filters go through lists. Those that Python makes generators of give iterators, whose items are known at once.
#include <algorithm>
#include <charconv>
#include <optional>

#include "filters.h"
#include "operators.h"
#include "string_ops.h"
#include "tests.h"

namespace tenon::jinja {
namespace {

// Items are compared by a key: themselves or an attribute of theirs, in small letters if case does not matter.
class Key {
 public:
  Key(const Parameters& p, size_t case_index, size_t attribute_index)
      : attribute_(p.missing(attribute_index) ? nullptr : &p[attribute_index]),
        keeps_case_(p.flag(case_index, false)) {}

  Value of(Run& run, const Value& item) const {
    const Value value = attribute_ == nullptr ? item : attribute_path(run, item, *attribute_);
    if (keeps_case_ || value.as_text() == nullptr) return value;
    run.charge(value.weight());
    return with_case(*value.as_text(), Case::kLower);
  }

 private:
  const Value* attribute_;
  bool keeps_case_;
};

struct Keyed {
  Value key, item;
};

std::vector<Keyed> keyed(Run& run, const Values& items, const Key& key) {
  std::vector<Keyed> result;
  for (const Value& item : items) result.push_back({key.of(run, item), item});
  return result;
}

Values sorted(Run& run, std::vector<Keyed> items, bool reverse) {
  std::stable_sort(items.begin(), items.end(), [&](const Keyed& a, const Keyed& b) {
    return reverse ? less(run, b.key, a.key) : less(run, a.key, b.key);
  });
  Values result;
  for (Keyed& one : items) result.push_back(std::move(one.item));
  return result;
}

Arguments without_first(const Arguments& arguments, size_t count) {
  Arguments rest;
  rest.positional.assign(arguments.positional.begin() + static_cast<std::ptrdiff_t>(count), arguments.positional.end());
  rest.named = arguments.named;
  return rest;
}

const Text& name_argument(const Arguments& arguments, size_t index, const char* who) {
  if (arguments.positional.size() <= index) throw Failure(std::string(who) + " needs a name");
  const Text* name = arguments.positional[index].as_text();
  if (name == nullptr)
    throw Failure(std::string(who) + " needs a name; found " + std::string(arguments.positional[index].type()));
  return *name;
}

// Keeps items, or an attribute of them, for which a test holds, or does not.
Value selected(Run& run, const Value& input, const Arguments& arguments, bool by_attribute, bool wanted) {
  if (!truth(input)) return make_iterator({});
  const size_t used = by_attribute ? 1 : 0;
  const Test* test = nullptr;
  Arguments rest;
  if (by_attribute && arguments.positional.empty()) throw Failure("Missing parameter for attribute name");
  if (arguments.positional.size() > used) {
    const Text& name = name_argument(arguments, used, "the filter select");
    test = find_test(name.bytes());
    if (test == nullptr) throw Failure("No test named '" + name.bytes() + "'.");
    rest = without_first(arguments, used + 1);
  }
  Values kept;
  const auto items = items_of(run, input);
  for (const Value& item : items->items) {
    const Value value = by_attribute ? attribute_path(run, item, arguments.positional[0]) : item;
    if ((test == nullptr ? truth(value) : test->holds(run, value, rest)) == wanted) kept.push_back(item);
  }
  return make_iterator(std::move(kept));
}

Value extreme(Run& run, const Value& input, const Arguments& arguments, bool largest) {
  const Parameters p("the filters min and max", arguments, {"case_sensitive", "attribute"}, 0);
  const auto items = items_of(run, input);
  if (items->items.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  const std::vector<Keyed> all = keyed(run, items->items, Key(p, 0, 1));
  const Keyed* best = &all.front();
  for (const Keyed& one : all) {
    if (largest ? less(run, best->key, one.key) : less(run, one.key, best->key)) best = &one;
  }
  return best->item;
}

}  // namespace

Value attribute_path(Run& run, Value item, const Value& path) {
  if (path.as_text() == nullptr) return item_of(run, item, path);
  const Text& name = *path.as_text();
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.bytes().find('.', begin), name.size());
    const Text part = name.part(begin, end);
    int64_t number = 0;
    const char* last = part.bytes().data() + part.size();
    const auto read = std::from_chars(part.bytes().data(), last, number);
    const bool is_number = read.ec == std::errc() && read.ptr == last && number >= 0;
    item = item_of(run, item, is_number ? Value(number) : Value(part));
    begin = end + 1;
  }
  return item;
}

Value map_filter(Run& run, const Value& input, const Arguments& arguments) {
  if (!truth(input)) return make_iterator({});
  Values results;
  const Value* attribute = arguments.positional.empty() ? arguments.find("attribute") : nullptr;
  if (attribute != nullptr) {
    const Parameters p("the filter map", arguments, {"attribute", "default"}, 0);
    const auto items = items_of(run, input);
    for (const Value& item : items->items) {
      const Value value = attribute_path(run, item, *attribute);
      results.push_back(value.as_undefined() != nullptr && !p.missing(1) ? p[1] : value);
    }
    return make_iterator(std::move(results));
  }
  const Text& name = name_argument(arguments, 0, "the filter map");
  const Filter* filter = find_filter(name.bytes());
  if (filter == nullptr) {
    throw Failure("No filter named '" + name.bytes() + "'" + (is_unsupported_filter(name.bytes()) ? " here" : "") +
                  ".");
  }
  const Arguments rest = without_first(arguments, 1);
  const Run::Level level(run);  // map may map by map.
  const auto items = items_of(run, input);
  for (const Value& item : items->items) results.push_back(filter->apply(run, item, rest));
  return make_iterator(std::move(results));
}

Value select_filter(Run& run, const Value& input, const Arguments& arguments) {
  return selected(run, input, arguments, false, true);
}
Value reject_filter(Run& run, const Value& input, const Arguments& arguments) {
  return selected(run, input, arguments, false, false);
}
Value selectattr_filter(Run& run, const Value& input, const Arguments& arguments) {
  return selected(run, input, arguments, true, true);
}
Value rejectattr_filter(Run& run, const Value& input, const Arguments& arguments) {
  return selected(run, input, arguments, true, false);
}

Value sort_filter(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p("the filter sort", arguments, {"reverse", "case_sensitive", "attribute"}, 0);
  if (!p.missing(2) && p[2].as_text() != nullptr && p[2].as_text()->bytes().find(',') != std::string::npos)
    throw Failure("the filter sort takes one attribute here");
  return make_list(sorted(run, keyed(run, items_of(run, input)->items, Key(p, 1, 2)), p.flag(0, false)));
}

Value unique_filter(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p("the filter unique", arguments, {"case_sensitive", "attribute"}, 0);
  Dict seen;
  Values kept;
  for (const Keyed& one : keyed(run, items_of(run, input)->items, Key(p, 0, 1))) {
    run.charge(seen.steps_to_find(one.key));
    if (hashable(one.key) && seen.find(one.key) != nullptr) continue;
    seen.set(one.key, Value());
    kept.push_back(one.item);
  }
  return make_iterator(std::move(kept));
}

Value min_filter(Run& run, const Value& input, const Arguments& arguments) {
  return extreme(run, input, arguments, false);
}
Value max_filter(Run& run, const Value& input, const Arguments& arguments) {
  return extreme(run, input, arguments, true);
}

Value sum_filter(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p("the filter sum", arguments, {"attribute", "start"}, 0);
  Value sum = p.has(1) ? p[1] : Value(int64_t{0});
  if (sum.as_text() != nullptr) throw Failure("sum() can't sum strings");
  const auto items = items_of(run, input);
  for (const Value& item : items->items)
    sum = calculate(run, Operator::kAdd, sum, p.missing(0) ? item : attribute_path(run, item, p[0]));
  return sum;
}

Value dictsort_filter(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p("the filter dictsort", arguments, {"case_sensitive", "by", "reverse"}, 0);
  if (input.as_undefined() != nullptr) fail_undefined(*input.as_undefined());
  if (input.as_dict() == nullptr) throw Failure("'" + std::string(input.type()) + "' object has no attribute 'items'");
  const std::string by = p.has(1) ? p.text(1).bytes() : "key";
  if (by != "key" && by != "value") throw Failure("You can only sort by either \"key\" or \"value\"");
  run.charge(input.as_dict()->entries.size());
  std::vector<Keyed> entries;
  for (const auto& [key, value] : input.as_dict()->entries) {
    const Value& sorts = by == "key" ? key : value;
    const bool lowers = !p.flag(0, false) && sorts.as_text() != nullptr;
    entries.push_back({lowers ? Value(with_case(*sorts.as_text(), Case::kLower)) : sorts, make_tuple({key, value})});
  }
  return make_list(sorted(run, std::move(entries), p.flag(2, false)));
}

Value batch_filter(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p("the filter batch", arguments, {"linecount", "fill_with"}, 1);
  const auto items = items_of(run, input);
  const auto count = static_cast<size_t>(std::max<int64_t>(p.integer(0, 1), 1));
  Values batches, batch;
  for (const Value& item : items->items) {
    if (batch.size() == count) batches.push_back(make_list(std::exchange(batch, {})));
    batch.push_back(item);
  }
  if (!batch.empty()) {
    if (!p.missing(1)) run.charge(count);
    while (!p.missing(1) && batch.size() < count) batch.push_back(p[1]);
    batches.push_back(make_list(std::move(batch)));
  }
  return make_iterator(std::move(batches));
}

Value slice_filter(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p("the filter slice", arguments, {"slices", "fill_with"}, 1);
  const auto items = items_of(run, input);
  const int64_t slices = p.integer(0, 1), length = static_cast<int64_t>(items->items.size());
  if (slices <= 0) throw Failure("the filter slice needs a number of slices above 0");
  run.charge(static_cast<uint64_t>(slices));
  Values result;
  auto next = items->items.begin();
  for (int64_t slice = 0; slice < slices; ++slice) {
    const bool extra = slice < length % slices;
    const auto end = next + length / slices + (extra ? 1 : 0);
    Values part(next, end);
    if (!extra && !p.missing(1)) part.push_back(p[1]);
    result.push_back(make_list(std::move(part)));
    next = end;
  }
  return make_iterator(std::move(result));
}

}  // namespace tenon::jinja
