// These write JSON that stays valid whatever the values are.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tenon/core/trace.h"

namespace tenon::profiler {

// Appends a text in quotes: control characters are escaped, and each byte that is no UTF-8 becomes U+FFFD.
void append_string(std::string& out, std::string_view text);

// Appends `ns` >= 0 as microseconds with three decimals.
void append_micros(std::string& out, int64_t ns);

void append_integer(std::string& out, int64_t value);

// Appends a number, above INT64_MAX as a string in hex: importers read numbers as int64.
void append_unsigned(std::string& out, uint64_t value);
void append_hex(std::string& out, uint64_t value);

// Appends a figure that people read, with three decimals; it is 0 to 1e15.
void append_figure(std::string& out, double value);

// Appends a number; one that is not finite is a string.
void append_double(std::string& out, double value);

// Appends "name":value,"name":value without the braces around.
void append_args(std::string& out, std::span<const trace::Arg> args);

// Returns the length of the well-formed UTF-8 sequence at the front of `text`, or 0 if there is none.
size_t utf8_length(std::string_view text);

}  // namespace tenon::profiler
