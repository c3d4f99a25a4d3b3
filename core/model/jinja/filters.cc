// These filters take texts, numbers and single values; list_filters.cc has those that go through lists. Each does what
// Jinja's does (jinja2/filters.py), and tojson does what transformers makes of it. A filter fails where it lacks
// something, such as int's bases, and never gives another result. It charges the run before it makes a long text.
// kFilters names them all.
#include "filters.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "operators.h"
#include "python_text.h"
#include "string_ops.h"

namespace tenon::jinja {
namespace {

// Returns the input as text, as most filters of texts take it.
Text text_of(Run& run, const Value& input) {
  run.charge_bytes(input.as_text() != nullptr ? input.as_text()->size() : 0);
  return *to_text(run, input).as_text();
}

Value string_filter(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p("the filter string", arguments, {}, 0);
  return to_text(run, input);
}

Value safe_filter(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p("the filter safe", arguments, {}, 0);
  Text text = text_of(run, input);
  text.set_safe(true);
  return text;
}

Value escape_filter(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p("the filter escape", arguments, {}, 0);
  return run.made(html_escaped(text_of(run, input)));
}

template <Case kTo>
Value case_filter(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p("the filter lower", arguments, {}, 0);
  return with_case(text_of(run, input), kTo);
}

Value title_filter(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p("the filter title", arguments, {}, 0);
  return titled(text_of(run, input), [](char32_t before) {
    return is_space(before) ||
           (before < 0x80 && std::string_view("-({[<").find(static_cast<char>(before)) != std::string_view::npos);
  });
}

Value trim_filter(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p("the filter trim", arguments, {"chars"}, 0);
  return strip(run, text_of(run, input), true, true, p.missing(0) ? nullptr : &p.text(0));
}

Value replace_filter(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p("the filter replace", arguments, {"old", "new", "count"}, 2);
  Text text =
      replace(run, text_of(run, input), text_of(run, p[0]), text_of(run, p[1]), p.missing(2) ? -1 : p.integer(2, -1));
  text.set_safe(false);
  return text;
}

Value center_filter(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p("the filter center", arguments, {"width"}, 0);
  const Text text = text_of(run, input);
  const auto length = static_cast<int64_t>(count_characters(text.bytes())),
             width = std::max<int64_t>(p.integer(0, 80), 0);
  const int64_t blanks = std::max<int64_t>(width - length, 0);
  const int64_t left = blanks / 2 + (blanks & width & 1);
  return pad(run, text, static_cast<uint64_t>(left), static_cast<uint64_t>(blanks - left));
}

Value indent_filter(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p("the filter indent", arguments, {"width", "first", "blank"}, 0);
  if (input.as_undefined() != nullptr) fail_undefined(*input.as_undefined());
  if (input.as_text() == nullptr) throw Failure("the filter indent takes a str; found " + std::string(input.type()));
  const bool text_width = p.has(0) && p[0].as_text() != nullptr;
  const Text indent =
      text_width ? p.text(0) : pad(run, Text(), 0, static_cast<uint64_t>(std::max<int64_t>(p.integer(0, 4), 0)));
  const bool first = p.flag(1, false), blank = p.flag(2, false);
  Text ended = text_of(run, input);
  ended.append("\n", Origin::kTemplate);
  Text out;
  const std::vector<Text> lines = split_lines(run, ended, false);
  for (size_t i = 0; i < lines.size(); ++i) {
    run.charge_bytes(indent.size() + 1);
    if (i > 0) out.append("\n", Origin::kTemplate);
    if (i == 0 ? first : blank || !lines[i].empty()) out.append(indent);
    out.append(lines[i]);
  }
  out.set_safe(input.as_text()->safe());
  return out;
}

Value truncate_filter(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p("the filter truncate", arguments, {"length", "killwords", "end", "leeway"}, 0);
  const Text text = text_of(run, input), end = p.has(2) ? p.text(2) : Text("...", Origin::kTemplate);
  const int64_t most = p.integer(0, 255), leeway = p.missing(3) ? 5 : p.integer(3, 5);
  const auto end_length = static_cast<int64_t>(count_characters(end.bytes()));
  if (most < end_length || leeway < 0) throw Failure("the filter truncate needs a length of at least that of its end");
  if (static_cast<int64_t>(count_characters(text.bytes())) - leeway <= most) return input;
  Text out = text.part(0, character_start(text.bytes(), static_cast<size_t>(most - end_length)));
  const size_t blank = out.bytes().rfind(' ');
  if (!p.flag(1, false) && blank != std::string::npos) out = out.part(0, blank);
  out.append(end);
  return out;
}

Value wordcount_filter(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p("the filter wordcount", arguments, {}, 0);
  const Text text = text_of(run, input);
  int64_t words = 0;
  bool inside = false;
  for (size_t byte = 0; byte < text.size(); byte += character_length(text.bytes(), byte)) {
    const Text character = text.part(byte, byte + character_length(text.bytes(), byte));
    const bool word = character.bytes() == "_" || is_all(character, Class::kLettersAndDigits);
    words += word && !inside ? 1 : 0;
    inside = word;
  }
  return words;
}

Value format_filter(Run& run, const Value& input, const Arguments& arguments) {
  const Text text = text_of(run, input);
  if (arguments.named.empty()) return percent_format(run, text, make_tuple(arguments.positional));
  if (!arguments.positional.empty()) throw Failure("can't handle positional and keyword arguments at the same time");
  auto dict = std::make_shared<Dict>();
  for (const auto& [name, value] : arguments.named) dict->set(Text(name, Origin::kTemplate), value);
  return percent_format(run, text, std::shared_ptr<const Dict>(std::move(dict)));
}

Value tojson_filter(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p("the filter tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"}, 0);
  JsonStyle style;
  style.ascii = p.flag(0, false);
  style.sorted = p.flag(3, false);
  if (!p.missing(1)) {
    style.broken = true;
    style.between_items = Text(",", Origin::kTemplate);
    style.indent = p[1].as_text() != nullptr
                       ? p.text(1)
                       : pad(run, Text(), 0, static_cast<uint64_t>(std::max<int64_t>(p.integer(1, 0), 0)));
  }
  if (!p.missing(2)) {
    const auto separators = items_of(run, p[2]);
    const Values& two = separators->items;
    if (two.size() != 2 || two[0].as_text() == nullptr || two[1].as_text() == nullptr)
      throw Failure("the argument separators of the filter tojson is not two str");
    style.between_items = *two[0].as_text();
    style.after_key = *two[1].as_text();
  }
  return to_json(run, input, style);
}

Value default_filter(Run&, const Value& input, const Arguments& arguments) {
  const Parameters p("the filter default", arguments, {"default_value", "boolean"}, 0);
  const bool missing = input.as_undefined() != nullptr || (p.flag(1, false) && !truth(input));
  return !missing ? input : p.has(0) ? p[0] : Value(Text());
}

Value length_filter(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p("the filter length", arguments, {}, 0);
  return length_of(run, input);
}

Value abs_filter(Run&, const Value& input, const Arguments& arguments) {
  const Parameters p("the filter abs", arguments, {}, 0);
  if (!input.is_number()) throw Failure("bad operand type for abs(): '" + std::string(input.type()) + "'");
  return input.number() < 0 ? negate(input) : input.as_bool() != nullptr ? Value(input.integral()) : input;
}

// Returns a number that a text states, with blanks around it, or nothing.
std::optional<double> read_double(const std::string& bytes) {
  const Range rest = stripped(bytes, true, true);
  std::string_view digits = std::string_view(bytes).substr(rest.begin, rest.end - rest.begin);
  if (digits.starts_with('+') && !digits.starts_with("+-")) digits.remove_prefix(1);
  double number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return number;
}

Value int_filter(Run&, const Value& input, const Arguments& arguments) {
  const Parameters p("the filter int", arguments, {"default", "base"}, 0);
  const Value otherwise = p.has(0) ? p[0] : Value(int64_t{0});
  if (p.integer(1, 10) != 10) throw Failure("the filter int has the base 10 here");
  if (input.as_undefined() != nullptr) fail_undefined(*input.as_undefined());
  if (input.is_integral()) return input.integral();
  if (input.as_double() != nullptr)
    return std::isfinite(input.number()) ? Value(to_integer(input.number())) : otherwise;
  if (input.as_text() == nullptr) return otherwise;
  const std::string& bytes = input.as_text()->bytes();
  const Range rest = stripped(bytes, true, true);
  std::string_view digits = std::string_view(bytes).substr(rest.begin, rest.end - rest.begin);
  if (digits.starts_with('+') && !digits.starts_with("+-")) digits.remove_prefix(1);
  int64_t integer = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), integer);
  if (digits.find('_') != std::string_view::npos) throw Failure("the filter int takes no underscores here");
  if (error == std::errc::result_out_of_range) throw Failure("a number is beyond 64 bits");
  if (error == std::errc() && end == digits.data() + digits.size()) return integer;
  const std::optional<double> number = read_double(bytes);
  return number && std::isfinite(*number) ? Value(to_integer(*number)) : otherwise;
}

Value float_filter(Run&, const Value& input, const Arguments& arguments) {
  const Parameters p("the filter float", arguments, {"default"}, 0);
  if (input.as_undefined() != nullptr) fail_undefined(*input.as_undefined());
  if (input.is_number()) return input.number();
  const std::optional<double> number =
      input.as_text() == nullptr ? std::nullopt : read_double(input.as_text()->bytes());
  return number ? Value(*number) : p.has(0) ? p[0] : Value(0.0);
}

// Half goes to even, as Python's round() has it.
Value round_filter(Run&, const Value& input, const Arguments& arguments) {
  const Parameters p("the filter round", arguments, {"precision", "method"}, 0);
  if (!input.is_number()) throw Failure("the filter round takes a number; found " + std::string(input.type()));
  const std::string method = p.has(1) ? p.text(1).bytes() : "common";
  const int64_t precision = p.integer(0, 0);
  if (precision < 0 || precision > 15) throw Failure("the filter round has precisions from 0 to 15 here");
  if (method == "common") {
    if (input.is_integral()) return input.integral();
    std::array<char, 400> buffer{};
    const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), input.number(),
                                   std::chars_format::fixed, static_cast<int>(precision))
                         .ptr;
    double rounded = 0;
    std::from_chars(buffer.data(), end, rounded);
    return rounded;
  }
  if (method != "ceil" && method != "floor") throw Failure("method must be common, ceil or floor");
  const double scale = std::pow(10.0, static_cast<double>(precision)), scaled = input.number() * scale;
  return (method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale;
}

Value join_filter(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p("the filter join", arguments, {"d", "attribute"}, 0);
  const auto items = items_of(run, input);
  const Text separator = p.has(0) ? text_of(run, p[0]) : Text();
  Text out;
  for (size_t i = 0; i < items->items.size(); ++i) {
    if (i > 0) out.append(separator);
    run.charge_bytes(separator.size());
    append_text(run, out, p.missing(1) ? items->items[i] : attribute_path(run, items->items[i], p[1]));
  }
  return out;
}

Value list_filter(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p("the filter list", arguments, {}, 0);
  return make_list(items_of(run, input)->items);
}

Value items_filter(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p("the filter items", arguments, {}, 0);
  if (input.as_undefined() != nullptr) return make_iterator({});
  if (input.as_dict() == nullptr) throw Failure("Can only get item pairs from a mapping.");
  Values items;
  for (const auto& [key, value] : input.as_dict()->entries) items.push_back(make_tuple({key, value}));
  run.charge(items.size());
  return make_iterator(std::move(items));
}

Value first_filter(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p("the filter first", arguments, {}, 0);
  const auto items = items_of(run, input);
  return items->items.empty() ? Value::undefined("No first item, sequence was empty.") : items->items.front();
}

Value last_filter(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p("the filter last", arguments, {}, 0);
  if (input.as_sequence() != nullptr && !input.as_sequence()->has_length())
    throw Failure("'generator' object is not reversible");
  const auto items = items_of(run, input);
  return items->items.empty() ? Value::undefined("No last item, sequence was empty.") : items->items.back();
}

Value reverse_filter(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p("the filter reverse", arguments, {}, 0);
  Values items = items_of(run, input)->items;
  std::reverse(items.begin(), items.end());
  if (input.as_text() == nullptr) return make_iterator(std::move(items));
  Text out;
  for (const Value& character : items) out.append(*character.as_text());
  return out;
}

Value attr_filter(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p("the filter attr", arguments, {"name"}, 1);
  if (input.as_dict() != nullptr && input.as_dict()->find(p.text(0).bytes()) != nullptr) {
    throw Failure("the filter attr of a dict is not supported");
  }
  return attribute_of(run, input, p.text(0));
}

Value urlencode_filter(Run& run, const Value& input, const Arguments& arguments) {
  const Parameters p("the filter urlencode", arguments, {}, 0);
  if (input.as_dict() != nullptr || input.as_sequence() != nullptr)
    throw Failure("the filter urlencode takes a text here; found " + std::string(input.type()));
  const Text text = text_of(run, input);
  Text out;
  for (size_t byte = 0; byte < text.size(); ++byte) {
    const char c = text.bytes()[byte];
    const bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                       std::string_view("_.-~/").find(c) != std::string_view::npos;
    const auto code = static_cast<unsigned char>(c);
    const std::string escaped{'%', "0123456789ABCDEF"[code >> 4U], "0123456789ABCDEF"[code & 15U]};
    out.append(plain ? std::string(1, c) : escaped, text.origin_at(byte));
  }
  return run.made(std::move(out));
}

constexpr Filter kFilters[] = {
    {"abs", abs_filter},
    {"attr", attr_filter},
    {"batch", batch_filter},
    {"capitalize", case_filter<Case::kCapitalized>},
    {"center", center_filter},
    {"count", length_filter},
    {"d", default_filter},
    {"default", default_filter},
    {"dictsort", dictsort_filter},
    {"e", escape_filter},
    {"escape", escape_filter},
    {"first", first_filter},
    {"float", float_filter},
    {"format", format_filter},
    {"indent", indent_filter},
    {"int", int_filter},
    {"items", items_filter},
    {"join", join_filter},
    {"last", last_filter},
    {"length", length_filter},
    {"list", list_filter},
    {"lower", case_filter<Case::kLower>},
    {"map", map_filter},
    {"max", max_filter},
    {"min", min_filter},
    {"reject", reject_filter},
    {"rejectattr", rejectattr_filter},
    {"replace", replace_filter},
    {"reverse", reverse_filter},
    {"round", round_filter},
    {"safe", safe_filter},
    {"select", select_filter},
    {"selectattr", selectattr_filter},
    {"slice", slice_filter},
    {"sort", sort_filter},
    {"string", string_filter},
    {"sum", sum_filter},
    {"title", title_filter},
    {"tojson", tojson_filter},
    {"trim", trim_filter},
    {"truncate", truncate_filter},
    {"unique", unique_filter},
    {"upper", case_filter<Case::kUpper>},
    {"urlencode", urlencode_filter},
    {"wordcount", wordcount_filter},
};

}  // namespace

const Filter* find_filter(std::string_view name) {
  const auto found =
      std::find_if(std::begin(kFilters), std::end(kFilters), [&](const Filter& f) { return f.name == name; });
  return found == std::end(kFilters) ? nullptr : found;
}

bool is_unsupported_filter(std::string_view name) {
  constexpr std::string_view kUnsupported[] = {"filesizeformat", "forceescape", "groupby",  "pprint", "random",
                                               "striptags",      "urlize",      "wordwrap", "xmlattr"};
  return std::find(std::begin(kUnsupported), std::end(kUnsupported), name) != std::end(kUnsupported);
}

}  // namespace tenon::jinja
