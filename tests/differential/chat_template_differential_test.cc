// Templates are rendered as Python's jinja2 renders them, in the environment of the package transformers: its recorded
// answers are in data/jinja.json (a feature a template) and data/chat_templates.json (published templates).
#include <gtest/gtest.h>

#include <array>
#include <boost/json.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "model/jinja/json_value.h"
#include "model/jinja/template.h"
#include "tenon/core/error.h"

namespace tenon {
namespace {

namespace json = boost::json;

std::string read_file(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

json::value read_answers(const char* name) {
  return json::parse(read_file(std::filesystem::path(TENON_SOURCE_DIR "/tests/differential/data") / name));
}

std::string hash_of(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  std::array<char, 17> digits{};
  std::snprintf(digits.data(), digits.size(), "%016lx", hash);
  return digits.data();
}

// The clock is that of chat_environment.py.
jinja::RenderOptions options() {
  jinja::RenderOptions result;
  result.now.tm_year = 2025 - 1900;
  result.now.tm_mon = 2;
  result.now.tm_mday = 9;
  result.now.tm_yday = 67;
  result.now.tm_hour = 14;
  result.now.tm_min = 5;
  result.now.tm_sec = 7;
  return result;
}

struct Outcome {
  std::string text, error;  // one of them is empty
};

Outcome render(const std::string& source, const jinja::Value& variables) {
  Outcome outcome;
  try {
    outcome.text = jinja::Template(source, "template").render(*variables.as_dict(), options()).bytes();
  } catch (const Error& error) {
    outcome.error = error.what();
    EXPECT_TRUE(outcome.error.starts_with("template:")) << "no place in: " << outcome.error;
  }
  return outcome;
}

// These jinja2 renders, and they are refused here, with an error that says so.
const std::map<std::string, std::string> kRefused = {
    {"{{ 10 ** 18 * 10 }}", "beyond 64 bits"},
    {"{{ 9223372036854775807 + 1 }}", "beyond 64 bits"},
    {"{{ unicode.upper() }}", "changing the case of \"ß\" is not supported"},
    {"{{ text.swapcase() }}", "the method \"swapcase\" is not supported"},
    {"{{ '{:>5}'.format(1) }}", "format specification is not supported"},
    {"{{ text.encode() }}", "the method \"encode\" is not supported"},
    {"{{ range(0) }}", "a range cannot be printed"},
    {"{{ 'abc' is sameas 'abc' }}", "sameas of a str is not supported"},
    {"{{ '1_0' | int }}", "no underscores"},
    {"{{ self }}", "\"self\" is not supported"},
    {"{#", "the comment does not end"},
    {"{% raw %}", "the raw block does not end"},
    {"{% block a %}x{% endblock %}", "the tag \"block\" is not supported"},
    {"{{ 1if yes }}", "numbers are decimal"},
    {"{% for a in list %}{{ loop.changed(a) }}{% endfor %}", "loop.changed is not supported"},
    {"{% for a in list recursive %}{{ a }}{% endfor %}", "recursive loops are not supported"},
    {"{% set loop = 1 %}{{ loop }}", "\"loop\" cannot be set"},
    {"{% macro f() %}x{% endmacro %}{% set g = f %}{{ g() }}{{ f }}", "a Macro cannot be printed"},
};

TEST(ChatTemplateDifferential, FeaturesAreThoseOfJinja) {
  const json::value answers = read_answers("jinja.json");
  const jinja::Value variables = jinja::from_json(answers.at("variables"));
  size_t refused = 0;
  for (const json::value& one : answers.at("cases").as_array()) {
    const std::string source(one.at("template").as_string());
    const Outcome found = render(source, variables);
    const auto known = kRefused.find(source);
    if (known != kRefused.end()) {
      EXPECT_NE(found.error.find(known->second), std::string::npos) << source << "\n" << found.error;
      ++refused;
    } else if (const json::value* text = one.as_object().if_contains("text")) {
      EXPECT_EQ(found.text, std::string(text->as_string())) << source << "\n" << found.error;
      EXPECT_EQ(found.error, "") << source;
    } else {
      EXPECT_NE(found.error, "") << source << "\n" << one.at("error");
    }
  }
  EXPECT_EQ(refused, kRefused.size());
}

TEST(ChatTemplateDifferential, PublishedTemplatesRenderAsByJinja) {
  const std::filesystem::path folder = TENON_SOURCE_DIR "/build/chat_templates";
  if (!std::filesystem::is_directory(folder)) {
    GTEST_SKIP() << "the templates are not there; scripts/fetch_chat_templates.sh fetches them";
  }
  const json::value recorded = read_answers("chat_templates.json");
  const json::object& conversations = recorded.at("conversations").as_object();
  size_t texts = 0;
  for (const auto& [name, answers] : recorded.at("answers").as_object()) {
    const std::string source = read_file(folder / std::string(name));
    EXPECT_NE(source, "") << name;
    size_t index = 0;
    for (const auto& [conversation, variables] : conversations) {
      const Outcome found = render(source, jinja::from_json(variables));
      const std::string wanted(answers.at(index++).as_string());
      EXPECT_EQ(found.error.empty() ? hash_of(found.text) : "error", wanted) << name << " with " << conversation << "\n"
                                                                             << found.error << "\n"
                                                                             << found.text;
      texts += found.error.empty() ? 1 : 0;
    }
  }
  EXPECT_GT(texts, 2000u);
}

}  // namespace
}  // namespace tenon
