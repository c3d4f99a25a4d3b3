// These are the methods that chat templates call on texts, lists and maps, in a table by type and name. Each does what
// Python's does, since the templates are written for Python. It charges the run for its work before it does any, and
// numbers count characters of UTF-8, not bytes.
#include "methods.h"

#include <algorithm>
#include <array>

#include "operators.h"
#include "python_text.h"
#include "string_ops.h"

namespace tenon::jinja {
namespace {

using Apply = Value (*)(Run& run, const Value& self, const Arguments& arguments);
struct Method {
  std::string_view name;
  Apply apply;
};

Value list_of(std::vector<Text> texts) {
  Values items;
  for (Text& text : texts) items.emplace_back(std::move(text));
  return make_list(std::move(items));
}

const Text* text_or_none(const Parameters& p, size_t index) {
  return p.missing(index) ? nullptr : &p.text(index);
}

template <bool kLeft, bool kRight>
Value strip_method(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters p("str.strip", arguments, {"chars"}, 0);
  run.charge(self.weight());
  return run.made(strip(run, *self.as_text(), kLeft, kRight, text_or_none(p, 0)));
}

template <bool kFromRight>
Value split_method(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters p("str.split", arguments, {"sep", "maxsplit"}, 0);
  return list_of(split(run, *self.as_text(), text_or_none(p, 0), p.integer(1, -1), kFromRight));
}

template <bool kFromRight>
Value partition_method(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters p("str.partition", arguments, {"sep"}, 1);
  run.charge_bytes(self.as_text()->size());
  Values items;
  for (Text& text : partition(run, *self.as_text(), p.text(0), kFromRight)) items.emplace_back(std::move(text));
  return make_tuple(std::move(items));
}

Value splitlines_method(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters p("str.splitlines", arguments, {"keepends"}, 0);
  return list_of(split_lines(run, *self.as_text(), p.flag(0, false)));
}

// This is the part of a text that start and end of a method mean, and where it begins.
struct Searched {
  std::string_view bytes;
  size_t begin;
};
Searched searched(const Text& text, const Parameters& p) {
  const std::string& bytes = text.bytes();
  if (p.missing(1) && p.missing(2)) return {bytes, 0};
  const auto length = static_cast<int64_t>(count_characters(bytes));
  const auto place = [&](size_t index, int64_t otherwise) {
    int64_t character = p.missing(index) ? otherwise : p.integer(index, 0);
    if (character < 0) character += length;
    return character_start(bytes, static_cast<size_t>(std::clamp<int64_t>(character, 0, length)));
  };
  const size_t begin = place(1, 0), end = std::max(begin, place(2, length));
  return {std::string_view(bytes).substr(begin, end - begin), begin};
}

template <bool kEnd>
Value affix_method(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters p(kEnd ? "str.endswith" : "str.startswith", arguments, {"affix", "start", "end"}, 1);
  run.charge(self.weight() + p[0].weight());
  const std::string_view within = searched(*self.as_text(), p).bytes;
  const auto has = [&](const Text& affix) {
    return kEnd ? within.ends_with(affix.bytes()) : within.starts_with(affix.bytes());
  };
  const Sequence* several = p[0].as_sequence();
  if (several == nullptr || several->kind != Sequence::Kind::kTuple) return has(p.text(0));
  return std::any_of(several->items.begin(), several->items.end(), [&](const Value& one) {
    if (one.as_text() == nullptr) throw Failure("startswith and endswith take a str or a tuple of str");
    return has(*one.as_text());
  });
}

template <bool kFromRight, bool kFails>
Value find_in_text(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters p("str.find", arguments, {"sub", "start", "end"}, 1);
  run.charge(self.weight());
  const Searched within = searched(*self.as_text(), p);
  const std::string& wanted = p.text(0).bytes();
  const size_t at = kFromRight ? find_last(run, within.bytes, wanted) : find_first(within.bytes, wanted);
  if (at == std::string_view::npos) {
    if (kFails) throw Failure("substring not found");
    return int64_t{-1};
  }
  const std::string_view before = std::string_view(self.as_text()->bytes()).substr(0, within.begin + at);
  return static_cast<int64_t>(count_characters(before));
}

Value count_in_text(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters p("str.count", arguments, {"sub", "start", "end"}, 1);
  run.charge(self.weight());
  const std::string_view within = searched(*self.as_text(), p).bytes;
  const std::string& wanted = p.text(0).bytes();
  if (wanted.empty()) return static_cast<int64_t>(count_characters(within) + 1);
  int64_t count = 0;
  for (size_t at = 0; (at = find_first(within, wanted, at)) != std::string_view::npos; at += wanted.size()) ++count;
  return count;
}

Value replace_method(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters p("str.replace", arguments, {"old", "new", "count"}, 2);
  return replace(run, *self.as_text(), p.text(0), p.text(1), p.integer(2, -1));
}

Value join_method(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters p("str.join", arguments, {"iterable"}, 1);
  const auto items = items_of(run, p[0]);
  std::vector<const Text*> texts;
  for (const Value& item : items->items) {
    if (item.as_text() == nullptr) throw Failure("str.join takes items of str; found " + std::string(item.type()));
    texts.push_back(item.as_text());
  }
  return join(run, *self.as_text(), texts);
}

template <Case kTo>
Value case_method(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters p("str.lower", arguments, {}, 0);
  run.charge(self.weight());
  return run.made(with_case(*self.as_text(), kTo));
}

Value title_method(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters p("str.title", arguments, {}, 0);
  run.charge(self.weight());
  return run.made(titled(*self.as_text(), [](char32_t before) { return !is_cased(before); }));
}

template <Class kOf>
Value class_method(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters p("str.isalpha", arguments, {}, 0);
  run.charge(self.weight());
  return is_all(*self.as_text(), kOf);
}

template <bool kSuffix>
Value remove_affix(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters p(kSuffix ? "str.removesuffix" : "str.removeprefix", arguments, {"affix"}, 1);
  const Text &text = *self.as_text(), &affix = p.text(0);
  const bool has = kSuffix ? text.bytes().ends_with(affix.bytes()) : text.bytes().starts_with(affix.bytes());
  if (!has) return self;
  return run.made(kSuffix ? text.part(0, text.size() - affix.size()) : text.part(affix.size(), text.size()));
}

enum class Side : uint8_t { kLeft, kRight };
template <Side kBlanks>
Value justify(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters p("str.ljust", arguments, {"width", "fillchar"}, 1);
  const int64_t missing = std::max<int64_t>(std::max<int64_t>(p.integer(0, 0), 0) - length_of(run, self), 0);
  const std::string fill = p.has(1) ? p.text(1).bytes() : " ";
  if (count_characters(fill) != 1) throw Failure("The fill character must be exactly one character long");
  const auto blanks = static_cast<uint64_t>(missing);
  return pad(run, *self.as_text(), kBlanks == Side::kLeft ? blanks : 0, kBlanks == Side::kRight ? blanks : 0, fill);
}

Value zfill(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters p("str.zfill", arguments, {"width"}, 1);
  const Text& text = *self.as_text();
  const auto missing =
      static_cast<uint64_t>(std::max<int64_t>(std::max<int64_t>(p.integer(0, 0), 0) - length_of(run, self), 0));
  const size_t sign = text.bytes().starts_with('-') || text.bytes().starts_with('+') ? 1 : 0;
  Text out = text.part(0, sign);
  out.append(pad(run, text.part(sign, text.size()), missing, 0, "0"));
  return out;
}

Value format_method(Run& run, const Value& self, const Arguments& arguments) {
  if (self.as_text()->safe()) throw Failure("format() of a text that the filter safe made is not supported");
  return brace_format(run, *self.as_text(), arguments);
}

Value get_method(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters p("dict.get", arguments, {"key", "default"}, 1);
  run.charge(self.as_dict()->steps_to_find(p[0]));
  if (!hashable(p[0])) throw Failure("unhashable type: '" + std::string(p[0].type()) + "'");
  const Value* found = self.as_dict()->find(p[0]);
  return found != nullptr ? *found : p.has(1) ? p[1] : Value();
}

template <Sequence::Kind kKind>
Value view_method(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters p("dict.items", arguments, {}, 0);
  run.charge(self.as_dict()->entries.size());
  Values items;
  for (const auto& [key, value] : self.as_dict()->entries) {
    items.push_back(kKind == Sequence::Kind::kItems  ? make_tuple({key, value})
                    : kKind == Sequence::Kind::kKeys ? key
                                                     : value);
  }
  return std::make_shared<const Sequence>(kKind, std::move(items));
}

Value copy_method(Run&, const Value& self, const Arguments& arguments) {
  const Parameters p("copy", arguments, {}, 0);
  return self;
}

Value count_in_list(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters p("list.count", arguments, {"value"}, 1);
  const auto items = items_of(run, self);
  return static_cast<int64_t>(std::count_if(items->items.begin(), items->items.end(), [&](const Value& item) {
    return compare(run, Comparison::kEqual, item, p[0]);
  }));
}

Value index_in_list(Run& run, const Value& self, const Arguments& arguments) {
  const Parameters p("list.index", arguments, {"value"}, 1);
  const auto items = items_of(run, self);
  for (size_t i = 0; i < items->items.size(); ++i) {
    if (compare(run, Comparison::kEqual, items->items[i], p[0])) return static_cast<int64_t>(i);
  }
  throw Failure("list.index(x): x not in list");
}

constexpr Method kTextMethods[] = {{"capitalize", case_method<Case::kCapitalized>},
                                   {"count", count_in_text},
                                   {"endswith", affix_method<true>},
                                   {"find", find_in_text<false, false>},
                                   {"format", format_method},
                                   {"index", find_in_text<false, true>},
                                   {"isalnum", class_method<Class::kLettersAndDigits>},
                                   {"isalpha", class_method<Class::kLetters>},
                                   {"isascii", class_method<Class::kAscii>},
                                   {"isdecimal", class_method<Class::kDigits>},
                                   {"isdigit", class_method<Class::kDigits>},
                                   {"islower", class_method<Class::kLower>},
                                   {"isspace", class_method<Class::kSpaces>},
                                   {"isupper", class_method<Class::kUpper>},
                                   {"join", join_method},
                                   {"ljust", justify<Side::kRight>},
                                   {"lower", case_method<Case::kLower>},
                                   {"lstrip", strip_method<true, false>},
                                   {"partition", partition_method<false>},
                                   {"removeprefix", remove_affix<false>},
                                   {"removesuffix", remove_affix<true>},
                                   {"replace", replace_method},
                                   {"rfind", find_in_text<true, false>},
                                   {"rindex", find_in_text<true, true>},
                                   {"rjust", justify<Side::kLeft>},
                                   {"rpartition", partition_method<true>},
                                   {"rsplit", split_method<true>},
                                   {"rstrip", strip_method<false, true>},
                                   {"split", split_method<false>},
                                   {"splitlines", splitlines_method},
                                   {"startswith", affix_method<false>},
                                   {"strip", strip_method<true, true>},
                                   {"title", title_method},
                                   {"upper", case_method<Case::kUpper>},
                                   {"zfill", zfill}};
constexpr Method kListMethods[] = {{"copy", copy_method}, {"count", count_in_list}, {"index", index_in_list}};
constexpr Method kTupleMethods[] = {{"count", count_in_list}, {"index", index_in_list}};
constexpr Method kDictMethods[] = {{"copy", copy_method},
                                   {"get", get_method},
                                   {"items", view_method<Sequence::Kind::kItems>},
                                   {"keys", view_method<Sequence::Kind::kKeys>},
                                   {"values", view_method<Sequence::Kind::kValues>}};

// The sandbox keeps these from templates.
constexpr std::array<std::string_view, 8> kListChanges{"append", "clear",  "extend",  "insert",
                                                       "pop",    "remove", "reverse", "sort"};
constexpr std::array<std::string_view, 5> kDictChanges{"clear", "pop", "popitem", "setdefault", "update"};

constexpr std::array<std::string_view, 13> kTextUnsupported{
    "casefold",    "center",  "encode",    "expandtabs", "format_map", "isidentifier", "isnumeric",
    "isprintable", "istitle", "maketrans", "swapcase",   "translate",  "fromkeys"};
constexpr std::array<std::string_view, 13> kNumberUnsupported{
    "as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator", "from_bytes", "fromhex", "hex", "imag",
    "is_integer",       "numerator", "real",       "to_bytes"};

template <class Names>
bool has(const Names& names, std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

class Bound : public Callable {
 public:
  Bound(Apply apply, Value self) : apply_(apply), self_(std::move(self)) {}
  Value call(Run& run, const Arguments& arguments) const override { return apply_(run, self_, arguments); }
  uint32_t depth() const override { return self_.depth() + 1; }

 private:
  Apply apply_;
  Value self_;
};

template <size_t kSize>
std::optional<Value> bind(const Method (&methods)[kSize], const Value& self, std::string_view name) {
  const auto found =
      std::find_if(std::begin(methods), std::end(methods), [&](const Method& m) { return m.name == name; });
  if (found == std::end(methods)) return std::nullopt;
  return Value(std::shared_ptr<const Callable>(std::make_shared<Bound>(found->apply, self)));
}

[[noreturn]] void fail_unsupported(const Value& value, std::string_view name) {
  throw Failure(std::string(value.type()) + "." + std::string(name) + " is not supported");
}

Value unsafe(const Value& value, std::string_view name) {
  return Value::undefined("access to attribute '" + std::string(name) + "' of '" + std::string(value.type()) +
                          "' object is unsafe.");
}

class Cycle : public Callable {
 public:
  explicit Cycle(size_t index) : index_(index) {}
  Value call(Run&, const Arguments& arguments) const override {
    if (arguments.positional.empty()) throw Failure("no items for cycling given");
    return arguments.positional[index_ % arguments.positional.size()];
  }

 private:
  size_t index_;
};

}  // namespace

std::optional<Value> find_method(const Value& value, std::string_view name) {
  if (value.as_text() != nullptr) {
    if (has(kTextUnsupported, name)) fail_unsupported(value, name);
    return bind(kTextMethods, value, name);
  }
  if (value.as_dict() != nullptr) {
    if (name == "fromkeys") fail_unsupported(value, name);
    return has(kDictChanges, name) ? unsafe(value, name) : bind(kDictMethods, value, name);
  }
  if (value.as_sequence() != nullptr && value.as_sequence()->kind == Sequence::Kind::kList) {
    return has(kListChanges, name) ? unsafe(value, name) : bind(kListMethods, value, name);
  }
  if (value.as_sequence() != nullptr && value.as_sequence()->kind == Sequence::Kind::kTuple) {
    return bind(kTupleMethods, value, name);
  }
  if (value.is_number() && has(kNumberUnsupported, name)) fail_unsupported(value, name);
  return std::nullopt;
}

bool is_unsupported_method(std::string_view name) {
  return has(kTextUnsupported, name) || has(kNumberUnsupported, name);
}

bool is_unsupported_loop_attribute(std::string_view name) {
  return name == "changed" || name == "depth" || name == "depth0";
}

std::optional<Value> loop_attribute(Run&, const Loop& loop, std::string_view name) {
  const Values& items = loop.items->items;
  const auto index = static_cast<int64_t>(loop.index), length = static_cast<int64_t>(items.size());
  if (is_unsupported_loop_attribute(name)) throw Failure("loop." + std::string(name) + " is not supported");
  if (name == "index0") return index;
  if (name == "index") return index + 1;
  if (name == "first") return index == 0;
  if (name == "last") return index + 1 == length;
  if (name == "length") return length;
  if (name == "revindex") return length - index;
  if (name == "revindex0") return length - index - 1;
  if (name == "previtem") return index == 0 ? Value::undefined("there is no previous item") : items[loop.index - 1];
  if (name == "nextitem")
    return index + 1 == length ? Value::undefined("there is no next item") : items[loop.index + 1];
  if (name == "cycle") return Value(std::shared_ptr<const Callable>(std::make_shared<Cycle>(loop.index)));
  return std::nullopt;
}

}  // namespace tenon::jinja
