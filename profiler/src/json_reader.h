// This is a pull reader of JSON (RFC 8259) over a stream: memory does not grow with the text. It is strict, save for
// what importers swallow in silence: that is reported and read on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "byte_source.h"
#include "finding_list.h"

namespace tenon::profiler {

// Ends the reading. Every function of JsonReader throws it.
struct SyntaxError {
  Place at;
  std::string found;
  std::string right;
  bool cut = false;    // the text ended too early
  bool limit = false;  // it is beyond CheckLimits
};

enum class JsonKind : uint8_t { kObject, kArray, kString, kNumber, kBool, kNull, kNonFinite };

// It is used by `for (in.begin_object(); in.next_member(key);) value;` and `for (in.begin_array(); in.next_element();)
// value;`, where a value is one of these, string(), number(), word() or skip().
class JsonReader {
 public:
  JsonReader(ByteSource& source, FindingList& findings, const CheckLimits& limits);

  // Returns where the next value begins, and what it is.
  Place place();
  JsonKind peek();

  void begin_object();
  bool next_member(std::string& key);
  void begin_array();
  bool next_element();

  // Reads a string, unescaped; one longer than `max` bytes is cut.
  void string(std::string& out, size_t max = 4096);
  // Reads a number as it is written; it has 400 characters at most.
  void number(std::string& text);
  // Consumes true, false, null or a non-finite word, which it reports; `text` gets the word, if wanted.
  JsonKind word(std::string* text = nullptr);
  // Appends any value as compact JSON; once that has more than `max` bytes, what follows is left out.
  void raw(std::string& out, size_t max);
  // Consumes any value. Reports numbers that cannot be read as what they say.
  void skip();

  // Nothing but blanks may follow.
  void expect_end();

 private:
  static constexpr int kEnd = -1;

  int peek_char();
  int peek_second();
  int take_char();
  int after_blanks();
  bool next_item(char close);
  void escape(std::string& out);
  uint32_t hex4();
  void utf8(std::string& out, int first);
  void digits(std::string& text);
  // Appends what follows as long as it is in this chunk and `plain`, without looking at each byte again.
  template <typename Plain>
  void take_run(std::string& out, Plain plain);
  void enter(char open);
  [[noreturn]] void fail(std::string found, std::string right);
  [[noreturn]] void fail_at(int c, std::string right);

  ByteSource& source_;
  FindingList& findings_;
  const CheckLimits& limits_;
  std::string_view chunk_;
  std::string joined_;  // holds the chunk where two had to be looked at together
  size_t next_ = 0;
  Place at_;
  std::vector<bool> first_;  // per open container: nothing was read of it yet
};

// Returns true if `text`, a JSON number, is finite as a double.
bool is_finite_number(const std::string& text);
// Returns true if it is an integer that int64 does not hold.
bool exceeds_int64(const std::string& text);

// Reads a number, and reports one that an importer would turn into something else.
void checked_number(JsonReader& in, FindingList& findings, std::string& text);

}  // namespace tenon::profiler
