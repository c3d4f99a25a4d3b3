// Quotes, brackets, numbers and the names of constants count as the template's; what is written for a character of the
// user, escaped or not, stays the user's.
#include "python_text.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "../tokenizer/utf8.h"
#include "operators.h"

namespace tenon::jinja {
namespace {

constexpr Origin kOwn = Origin::kTemplate;

std::string hex(char32_t c, int digits) {
  std::string text(static_cast<size_t>(digits), '0');
  for (auto digit = text.rbegin(); digit != text.rend(); ++digit, c >>= 4U) *digit = "0123456789abcdef"[c & 15U];
  return text;
}

// Returns what str.isprintable() of Python says of the character.
bool is_printable(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    case UTF8PROC_CATEGORY_ZS:
      return c == U' ';
    default:
      return true;
  }
}

std::string python_escape(char32_t c, char quote) {
  if (c == static_cast<unsigned char>(quote) || c == U'\\') return {'\\', static_cast<char>(c)};
  if (c == U'\n') return "\\n";
  if (c == U'\r') return "\\r";
  if (c == U'\t') return "\\t";
  if (is_printable(c)) return {};
  return c < 0x100 ? "\\x" + hex(c, 2) : c < 0x10000 ? "\\u" + hex(c, 4) : "\\U" + hex(c, 8);
}

std::string json_escape(char32_t c, bool ascii) {
  constexpr std::string_view kNamed = "\"\\\n\r\t\f\b", kNames = "\"\\nrtfb";
  const size_t named = c < 0x80 ? kNamed.find(static_cast<char>(c)) : std::string_view::npos;
  if (named != std::string_view::npos) return {'\\', kNames[named]};
  if (c >= 0x20 && (c < 0x7F || !ascii)) return {};
  if (c < 0x10000) return "\\u" + hex(c, 4);
  return "\\u" + hex(0xD800 + ((c - 0x10000) >> 10U), 4) + "\\u" + hex(0xDC00 + ((c - 0x10000) & 0x3FFU), 4);
}

// Appends the text with what `escape` gives in place of characters for which it gives something.
template <class Escape>
void append_escaped(Text& out, const Text& text, const Escape& escape) {
  const std::string& bytes = text.bytes();
  size_t plain = 0;
  for (size_t byte = 0; byte < bytes.size();) {
    const size_t length = character_length(bytes, byte);
    const std::string escaped = escape(code_point_at(bytes, byte));
    if (!escaped.empty()) {
      out.append_part(text, plain, byte);
      out.append(escaped, text.origin_at(byte));
      plain = byte + length;
    }
    byte += length;
  }
  out.append_part(text, plain, bytes.size());
}

void append_repr(Run& run, Text& out, const Value& value);

void append_repr(Text& out, const Text& text) {
  const bool doubles = text.bytes().find('\'') != std::string::npos && text.bytes().find('"') == std::string::npos;
  const char quote = doubles ? '"' : '\'';
  if (text.safe()) out.append("Markup(", kOwn);
  out.append({&quote, 1}, kOwn);
  append_escaped(out, text, [&](char32_t c) { return python_escape(c, quote); });
  out.append({&quote, 1}, kOwn);
  if (text.safe()) out.append(")", kOwn);
}

void append_repr(Run& run, Text& out, const Sequence& sequence) {
  if (sequence.kind == Sequence::Kind::kIterator) throw Failure("a generator cannot be printed; use the filter list");
  if (sequence.kind == Sequence::Kind::kRange) throw Failure("a range cannot be printed; use the filter list");
  const bool tuple = sequence.kind == Sequence::Kind::kTuple, plain = tuple || sequence.kind == Sequence::Kind::kList;
  const std::string name = plain ? std::string() : std::string(type_name(sequence.kind)) + "(";
  out.append(name + (tuple ? "(" : "["), kOwn);
  for (size_t i = 0; i < sequence.items.size(); ++i) {
    if (i > 0) out.append(", ", kOwn);
    append_repr(run, out, sequence.items[i]);
  }
  if (tuple && sequence.items.size() == 1) out.append(",", kOwn);
  out.append(tuple ? ")" : "]", kOwn);
  if (!plain) out.append(")", kOwn);
}

void append_repr(Run& run, Text& out, const Dict& dict) {
  out.append("{", kOwn);
  for (const auto& [key, value] : dict.entries) {
    if (&value != &dict.entries.front().second) out.append(", ", kOwn);
    append_repr(run, out, key);
    out.append(": ", kOwn);
    append_repr(run, out, value);
  }
  out.append("}", kOwn);
}

void append_repr(Run& run, Text& out, const Value& value) {
  run.charge(value.as_sequence() != nullptr || value.as_dict() != nullptr ? 1 : value.weight());
  if (value.as_text() != nullptr) {
    run.charge_bytes(value.as_text()->size());
    append_repr(out, *value.as_text());
  } else if (value.as_sequence() != nullptr) {
    append_repr(run, out, *value.as_sequence());
  } else if (value.as_dict() != nullptr) {
    append_repr(run, out, *value.as_dict());
  } else if (value.as_undefined() != nullptr) {
    out.append("Undefined", kOwn);
  } else if (value.is_none()) {
    out.append("None", kOwn);
  } else if (value.as_bool() != nullptr) {
    out.append(*value.as_bool() ? "True" : "False", kOwn);
  } else if (value.as_integer() != nullptr) {
    out.append(std::to_string(*value.as_integer()), kOwn);
  } else if (value.as_double() != nullptr) {
    out.append(float_text(*value.as_double()), kOwn);
  } else {
    throw Failure("a " + std::string(value.type()) + " cannot be printed");
  }
}

// This is json.dumps() of Python.
class JsonWriter {
 public:
  JsonWriter(Run& run, const JsonStyle& style) : run_(run), style_(style) {}

  void write(const Value& value, size_t level) {
    run_.charge(1);
    if (value.as_text() != nullptr) {
      text(*value.as_text());
    } else if (value.as_dict() != nullptr) {
      dict(*value.as_dict(), level);
    } else if (is_array(value)) {
      array(*value.as_sequence(), level);
    } else {
      out_.append(scalar(value), kOwn);
    }
  }
  Text take() { return std::move(out_); }

 private:
  static bool is_array(const Value& value) {
    const Sequence* sequence = value.as_sequence();
    return sequence != nullptr && (sequence->kind == Sequence::Kind::kList || sequence->kind == Sequence::Kind::kTuple);
  }

  static std::string scalar(const Value& value) {
    if (value.is_none()) return "null";
    if (value.as_bool() != nullptr) return *value.as_bool() ? "true" : "false";
    if (value.as_integer() != nullptr) return std::to_string(*value.as_integer());
    if (value.as_double() == nullptr) {
      throw Failure("Object of type " + std::string(value.type()) + " is not JSON serializable" +
                    (value.as_undefined() != nullptr ? ": " + *value.as_undefined()->why : ""));
    }
    const double number = *value.as_double();
    if (std::isnan(number)) return "NaN";
    return std::isinf(number) ? number > 0 ? "Infinity" : "-Infinity" : float_text(number);
  }

  void text(const Text& text) {
    run_.charge_bytes(text.size());
    out_.append("\"", kOwn);
    append_escaped(out_, text, [&](char32_t c) { return json_escape(c, style_.ascii); });
    out_.append("\"", kOwn);
  }

  void separator(const Text& separator) {
    run_.charge_bytes(separator.size());
    out_.append(separator);
  }

  void line(size_t level) {
    if (!style_.broken) return;
    run_.charge(level);
    run_.charge_bytes(level * style_.indent.size());
    out_.append("\n", kOwn);
    for (size_t i = 0; i < level; ++i) out_.append(style_.indent);
  }

  void key(const Value& key) {
    if (key.as_text() != nullptr) return text(*key.as_text());
    if (key.as_sequence() != nullptr || key.as_undefined() != nullptr || key.as_callable() != nullptr) {
      throw Failure("keys must be str, int, float, bool or None, not " + std::string(key.type()));
    }
    text(Text(scalar(key), kOwn));
  }

  void dict(const Dict& dict, size_t level) {
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sorted) {
      std::stable_sort(entries.begin(), entries.end(),
                       [&](const auto* a, const auto* b) { return less(run_, a->first, b->first); });
    }
    out_.append("{", kOwn);
    for (const auto* entry : entries) {
      if (entry != entries.front()) separator(style_.between_items);
      line(level + 1);
      key(entry->first);
      separator(style_.after_key);
      write(entry->second, level + 1);
    }
    if (!entries.empty()) line(level);
    out_.append("}", kOwn);
  }

  void array(const Sequence& array, size_t level) {
    out_.append("[", kOwn);
    for (const Value& item : array.items) {
      if (&item != &array.items.front()) separator(style_.between_items);
      line(level + 1);
      write(item, level + 1);
    }
    if (!array.items.empty()) line(level);
    out_.append("]", kOwn);
  }

  Run& run_;
  const JsonStyle& style_;
  Text out_;
};

}  // namespace

// Python writes an exponent below 1e-4 and from 1e16 on.
std::string float_text(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  std::array<char, 64> buffer{};
  const double size = std::abs(number);
  const bool fixed = size == 0 || (size >= 1e-4 && size < 1e16);
  const auto format = fixed ? std::chars_format::fixed : std::chars_format::scientific;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), number, format).ptr;
  std::string text(buffer.data(), end);
  if (fixed && text.find('.') == std::string::npos) text += ".0";
  return text;
}

void append_text(Run& run, Text& out, const Value& value) {
  const size_t before = out.size();
  if (value.as_text() != nullptr) {
    out.append(*value.as_text());
  } else if (value.as_undefined() == nullptr) {
    append_repr(run, out, value);
  }
  run.charge_bytes(out.size() - before);
}

Value to_text(Run& run, const Value& value) {
  if (value.as_text() != nullptr) return value;
  Text text;
  append_text(run, text, value);
  return text;
}

Value to_json(Run& run, const Value& value, const JsonStyle& style) {
  JsonWriter writer(run, style);
  writer.write(value, 0);
  return run.made(writer.take());
}

namespace {

// This is one field of the operator %: %[flags][width][.precision]type.
struct PercentField {
  std::string flags;
  int width = 0, precision = -1;
  char type = 0;
};

PercentField read_percent_field(std::string_view bytes, size_t& byte) {
  const auto number = [&] {
    int value = 0;
    for (; byte < bytes.size() && bytes[byte] >= '0' && bytes[byte] <= '9' && value < 1000; ++byte)
      value = value * 10 + (bytes[byte] - '0');
    return value;
  };
  PercentField field;
  while (byte < bytes.size() && std::string_view("-+ 0").find(bytes[byte]) != std::string_view::npos)
    field.flags += bytes[byte++];
  field.width = number();
  if (byte < bytes.size() && bytes[byte] == '.') field.precision = (++byte, number());
  if (byte == bytes.size()) throw Failure("incomplete format");
  field.type = bytes[byte++];
  return field;
}

void append_percent_number(Text& out, const PercentField& field, const Value& value) {
  if (!value.is_number()) {
    throw Failure(std::string("%") + field.type + " needs a number, not " + std::string(value.type()));
  }
  std::array<char, 2500> buffer{};
  const std::string width = field.flags.find('0') != std::string::npos ? std::to_string(field.width) : "";
  const std::string precision = field.precision >= 0 ? "." + std::to_string(field.precision) : "";
  const std::string format = "%" + field.flags + width + precision + (field.type == 'f' ? "f" : "lld");
  const int size =
      field.type == 'f'
          ? std::snprintf(buffer.data(), buffer.size(), format.c_str(), value.number())
          : std::snprintf(buffer.data(), buffer.size(), format.c_str(),
                          static_cast<long long>(value.is_integral() ? value.integral() : to_integer(value.number())));
  out.append({buffer.data(), std::min(buffer.size() - 1, static_cast<size_t>(size))}, kOwn);
}

Text format_percent_field(Run& run, const PercentField& field, const Value& value) {
  constexpr int kWidest = 999;
  if (field.width > kWidest || field.precision > kWidest) throw Failure("a width of the operator % is above 999");
  Text text;
  if (field.type == 's' || field.type == 'r') {
    if (field.type == 's') append_text(run, text, value);
    if (field.type == 'r') append_repr(run, text, value);
    if (field.precision >= 0) text = text.part(0, character_start(text.bytes(), static_cast<size_t>(field.precision)));
  } else if (field.type == 'd' || field.type == 'i' || field.type == 'f') {
    append_percent_number(text, field, value);
  } else {
    throw Failure(std::string("the operator % has %s, %r, %d, %i and %f here; found %") + field.type);
  }
  const size_t length = count_characters(text.bytes());
  const std::string blanks(static_cast<size_t>(field.width) > length ? static_cast<size_t>(field.width) - length : 0,
                           ' ');
  Text out;
  const bool left = field.flags.find('-') != std::string::npos;
  if (!left) out.append(blanks, kOwn);
  out.append(text);
  if (left) out.append(blanks, kOwn);
  return out;
}

}  // namespace

Value percent_format(Run& run, const Text& format, const Value& values) {
  run.charge_bytes(format.size());
  const std::string& bytes = format.bytes();
  const Sequence* tuple = values.as_sequence();
  if (tuple != nullptr && tuple->kind != Sequence::Kind::kTuple) tuple = nullptr;
  const size_t count = tuple != nullptr ? tuple->items.size() : 1;
  size_t next = 0;
  Text out;
  for (size_t byte = 0; byte < bytes.size();) {
    const size_t sign = std::min(bytes.find('%', byte), bytes.size());
    out.append_part(format, byte, sign);
    if (sign == bytes.size()) break;
    byte = sign + 1;
    const Value* value = nullptr;
    if (byte < bytes.size() && bytes[byte] == '(') {
      const size_t close = bytes.find(')', byte);
      if (close == std::string::npos || values.as_dict() == nullptr) throw Failure("format requires a mapping");
      value = values.as_dict()->find(std::string_view(bytes).substr(byte + 1, close - byte - 1));
      if (value == nullptr)
        throw Failure("the mapping of a format has no key '" + bytes.substr(byte + 1, close - byte - 1) + "'");
      byte = close + 1;
    }
    const PercentField field = read_percent_field(bytes, byte);
    if (field.type == '%') {
      out.append("%", kOwn);
      continue;
    }
    if (value == nullptr) {
      if (next == count) throw Failure("not enough arguments for format string");
      value = tuple != nullptr ? &tuple->items[next] : &values;
      ++next;
    }
    const Text written = format_percent_field(run, field, *value);
    run.charge_bytes(written.size());
    out.append(written);
  }
  if (next < count && values.as_dict() == nullptr && values.as_sequence() == tuple) {
    throw Failure("not all arguments converted during string formatting");
  }
  return run.made(std::move(out));
}

namespace {

// This is a field of str.format() without its braces: name[.attribute][[element]][!conversion].
class BraceField {
 public:
  BraceField(Run& run, const Arguments& arguments, size_t& next) : run_(run), arguments_(arguments), next_(next) {}

  Text format(std::string_view field) {
    if (field.find(':') != std::string_view::npos && field.back() != ':')
      throw Failure("str.format with a format specification is not supported; found {" + std::string(field) + "}");
    field = field.substr(0, field.find(':'));
    char conversion = 's';
    if (field.size() >= 2 && field[field.size() - 2] == '!') {
      conversion = field.back();
      field.remove_suffix(2);
    }
    const size_t end = std::min(field.find_first_of(".["), field.size());
    Value value = first(field.substr(0, end));
    for (field.remove_prefix(end); !field.empty();) value = inner(value, field);
    Text text;
    if (conversion == 's') {
      append_text(run_, text, value);
    } else if (conversion == 'r') {
      append_repr(run_, text, value);
    } else {
      throw Failure("str.format has the conversions !s and !r here");
    }
    return text;
  }

 private:
  Value first(std::string_view name) {
    if (name.empty()) return positional(next_++);
    size_t number = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (error == std::errc() && end == name.data() + name.size()) return positional(number);
    if (const Value* value = arguments_.find(name)) return *value;
    throw Failure("str.format is not given \"" + std::string(name) + "\"");
  }

  Value positional(size_t number) const {
    if (number < arguments_.positional.size()) return arguments_.positional[number];
    throw Failure("Replacement index " + std::to_string(number) + " out of range for positional args tuple");
  }

  Value inner(const Value& value, std::string_view& rest) {
    const bool element = rest.front() == '[';
    const size_t end = element ? rest.find(']') : std::min(rest.find_first_of(".[", 1), rest.size());
    if (end == std::string_view::npos) throw Failure("Missing ']' in format string");
    const Text name(rest.substr(1, end - 1), kOwn);
    rest.remove_prefix(end + (element ? 1 : 0));
    if (!element) return attribute_of(run_, value, name);
    int64_t number = 0;
    const char* last = name.bytes().data() + name.size();
    const auto read = std::from_chars(name.bytes().data(), last, number);
    return item_of(run_, value, read.ec == std::errc() && read.ptr == last ? Value(number) : Value(name));
  }

  Run& run_;
  const Arguments& arguments_;
  size_t& next_;
};

}  // namespace

Value brace_format(Run& run, const Text& format, const Arguments& arguments) {
  run.charge_bytes(format.size());
  const std::string& bytes = format.bytes();
  size_t next = 0;
  Text out;
  for (size_t byte = 0; byte < bytes.size();) {
    const size_t brace = std::min(bytes.find_first_of("{}", byte), bytes.size());
    out.append_part(format, byte, brace);
    if (brace == bytes.size()) break;
    if (brace + 1 < bytes.size() && bytes[brace + 1] == bytes[brace]) {
      out.append_part(format, brace, brace + 1);
      byte = brace + 2;
      continue;
    }
    const size_t close = bytes.find_first_of("{}", brace + 1);
    if (bytes[brace] == '}' || close == std::string::npos || bytes[close] == '{')
      throw Failure("Single '" + std::string(1, bytes[brace]) + "' encountered in format string");
    out.append(BraceField(run, arguments, next).format(std::string_view(bytes).substr(brace + 1, close - brace - 1)));
    byte = close + 1;
  }
  return run.made(std::move(out));
}

}  // namespace tenon::jinja
