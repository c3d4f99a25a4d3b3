// This is TOML as the layers are merged: plain values, each with the position of its key and its own. It is independent
// of the parser, whose nodes lose their positions when they are copied.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "tenon/core/error.h"

namespace tenon::config {

struct Node;
using Array = std::vector<Node>;
using Table = std::map<std::string, Node>;
struct Date {};

struct Node {
  SourcePosition key_where;  // an element of an array has no key: this is equal to where
  SourcePosition where;
  std::variant<bool, int64_t, double, std::string, Date, Array, Table> value;

  const std::string* text() const { return std::get_if<std::string>(&value); }
  const Array* array() const { return std::get_if<Array>(&value); }
  const Table* table() const { return std::get_if<Table>(&value); }
};

// Lays the sections of `above` over those of `below`: of a key the upper one holds, arrays are replaced whole, and
// where a section names another component, what `below` says to the former one is dropped.
void merge_sections(Table& below, Table above);

// Describes a value for messages: 'the string "64"', "the int 64", "an array".
std::string describe_found(const Node& node);
// Quotes a text for messages: control characters are escaped, and a long text is shortened.
std::string quote(const std::string& text);
// Returns a TOML string of exactly that text.
std::string toml_string(const std::string& text);
std::string toml_real(double value);

// Throws Error(kConfig) at the position of the syntax error. Nesting is bounded.
Table parse_toml(const std::string& name, const std::string& text);
// Parses "a.b=value", the value in TOML or a bare word: nested tables down to that one key. Throws Error(kConfig).
Table parse_override(const std::string& option);

}  // namespace tenon::config
