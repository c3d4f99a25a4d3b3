// A question's form is told by its fields, "endings" or "choices", so files need no option. All that is wrong is
// reported at once, each by file and line, or by its number in a list.
#include "questions.h"

#include <boost/json.hpp>
#include <charconv>
#include <optional>

#include "tenon/core/error.h"

namespace tenon::app {
namespace {

namespace json = boost::json;

constexpr size_t kMostFindings = 20;

[[noreturn]] void wrong(const std::string& message) {
  throw Error(ErrorCode::kRequest, message);
}

const json::value& member(const json::object& object, const char* name) {
  const json::value* const found = object.if_contains(name);
  if (found == nullptr) wrong("has no \"" + std::string(name) + '"');
  return *found;
}

std::string text_of(const json::object& object, const char* name) {
  const json::value& value = member(object, name);
  if (!value.is_string()) wrong('"' + std::string(name) + "\" is no text");
  return std::string(value.as_string());
}

std::vector<std::string> texts_of(const json::object& object, const char* name) {
  const json::value& value = member(object, name);
  std::vector<std::string> texts;
  if (value.is_array()) {
    for (const json::value& text : value.as_array()) {
      if (!text.is_string()) wrong('"' + std::string(name) + "\" holds something that is no text");
      texts.emplace_back(text.as_string());
    }
  }
  if (texts.size() < 2) wrong('"' + std::string(name) + "\" is no list of two texts or more");
  return texts;
}

// Reads a number, a number as text or, where letters may stand for numbers, "A" to "Z".
std::optional<uint64_t> number_of(const json::value& value, bool letters) {
  if (value.is_int64() || value.is_uint64()) {
    boost::system::error_code negative;
    const auto number = value.to_number<uint64_t>(negative);
    return negative ? std::nullopt : std::optional(number);
  }
  if (!value.is_string()) return std::nullopt;
  const json::string& text = value.as_string();
  if (letters && text.size() == 1 && text[0] >= 'A' && text[0] <= 'Z') return static_cast<uint64_t>(text[0] - 'A');
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.begin(), text.end(), number);
  return error == std::errc() && end == text.end() ? std::optional(number) : std::nullopt;
}

size_t answer_of(const json::object& object, const char* name, bool letters, size_t choices) {
  const std::optional<uint64_t> number = number_of(member(object, name), letters);
  if (!number || *number >= choices) {
    wrong('"' + std::string(name) + "\" is " + json::serialize(member(object, name)) + ", and not one of 0 to " +
          std::to_string(choices - 1));
  }
  return *number;
}

Question hella_swag(const json::object& object) {
  Question q;
  if (object.contains("activity_label")) q.context = text_of(object, "activity_label") + ": ";
  q.context += text_of(object, "ctx");
  for (const std::string& ending : texts_of(object, "endings")) q.endings.push_back(" " + ending);
  q.answer = answer_of(object, "label", false, q.endings.size());
  return q;
}

Question mmlu(const json::object& object) {
  constexpr size_t kLetters = 26;
  Question q;
  q.context = text_of(object, "question");
  const std::vector<std::string> choices = texts_of(object, "choices");
  if (choices.size() > kLetters) wrong("\"choices\" has more than 26");
  for (size_t i = 0; i < choices.size(); ++i) {
    const std::string letter(1, static_cast<char>('A' + i));
    q.context += "\n" + letter + ". " + choices[i];
    q.endings.push_back(" " + letter);
  }
  q.context += "\nAnswer:";
  q.answer = answer_of(object, "answer", true, q.endings.size());
  return q;
}

Question question_of(const json::value& value) {
  if (!value.is_object()) wrong("is no JSON object");
  const json::object& object = value.as_object();
  if (object.contains("endings")) return hella_swag(object);
  if (object.contains("choices")) return mmlu(object);
  wrong("has neither \"endings\" (HellaSwag's form) nor \"choices\" (MMLU's)");
}

json::value parsed(const std::string& text) {
  boost::system::error_code problem;
  json::value value = json::parse(text, problem);
  if (problem) wrong("is no JSON: " + problem.message());
  return value;
}

class Reader {
 public:
  explicit Reader(std::string file) : file_(std::move(file)) {}

  template <class Make>
  void add(uint32_t line, Make&& make) {
    if (findings_.size() == kMostFindings) return;
    try {
      questions_.push_back(question_of(make()));
      questions_.back().line = line;
    } catch (const Error& e) {
      find(line, e.diagnostics().front().message);
    }
  }
  std::vector<Question> finish() {
    if (findings_.empty() && questions_.empty()) find(0, "there are no questions in it");
    if (!findings_.empty()) throw Error(ErrorCode::kRequest, findings_);
    return std::move(questions_);
  }

 private:
  void find(uint32_t line, const std::string& message) {
    Diagnostic& finding = findings_.emplace_back();
    finding.where.file = file_;
    finding.where.line = line;
    finding.message = message;
  }

  std::string file_;
  std::vector<Question> questions_;
  std::vector<Diagnostic> findings_;
};

}  // namespace

std::vector<Question> read_questions(const std::string& text, const std::string& file) {
  Reader reader(file);
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && text[first] == '[') {
    boost::system::error_code problem;
    const json::value list = json::parse(text, problem);
    if (problem) throw Error(ErrorCode::kRequest, {file, 0, 0}, "is no list in JSON: " + problem.message());
    uint32_t number = 0;
    for (const json::value& value : list.as_array()) reader.add(++number, [&] { return value; });
    return reader.finish();
  }
  uint32_t line = 0;
  for (size_t begin = 0; begin < text.size(); ++line) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string one = text.substr(begin, end - begin);
    begin = end + 1;
    if (one.find_first_not_of(" \t\r") != std::string::npos) reader.add(line + 1, [&] { return parsed(one); });
  }
  return reader.finish();
}

}  // namespace tenon::app
