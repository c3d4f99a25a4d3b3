// A template from a stranger neither hangs nor crashes: its steps, its texts and its depth are limited, whatever it
// does. Each template here ran for minutes, took all memory or all of the stack where one cost was not counted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../jinja/template.h"
#include "tenon/core/error.h"

namespace tenon {
namespace {

using testing::HasSubstr;

// This is a tenth of the default limits, so that the tests are quick.
constexpr uint64_t kSteps = 1'000'000, kBytes = 30'000'000;

std::string error_of(const std::string& source) {
  jinja::RenderOptions options;
  options.limits.steps = kSteps;
  options.limits.bytes = kBytes;
  try {
    jinja::Template(source, "template").render({}, options);
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing is wrong";
}

std::string repeated(const std::string& text, size_t times) {
  std::string all;
  for (size_t i = 0; i < times; ++i) all += text;
  return all;
}

std::string numbered(const std::string& before, const std::string& after, size_t count) {
  std::string all;
  for (size_t i = 0; i < count; ++i) all += before + std::to_string(i) + after;
  return all;
}

std::string in_loops(const std::string& body) {
  return "{% for i in range(100000) %}{% for j in range(100000) %}" + body + "{% endfor %}{% endfor %}";
}

TEST(ChatTemplateLimits, StepsEnd) {
  const std::string big = "{% set a = 'a' * 1000000 %}";
  for (const std::string& source :
       {in_loops(""), in_loops("{{ 1 }}"), in_loops("{{ loop.index in range(100000) }}"),
        // Keys that are no texts are compared with each other.
        in_loops("{% set d = dict(range(100000) | batch(2) | list) %}"),
        "{% set d = dict(range(4000) | batch(2) | list) %}" + in_loops("{{ d[1] }}{{ d.get(2) }}{{ 3 in d }}"),
        "{% set d = dict(range(4000) | batch(2) | list) %}" + in_loops("{{ d == dict(d) }}"),
        big + in_loops("{{ a is lower }}"), big + in_loops("{{ a.rfind(a[:500000] ~ 'b') }}"),
        big + in_loops("{{ a.find(a[:500000] ~ 'b') }}"), big + in_loops("{{ (a[:500000] ~ 'b') in a }}"),
        big + in_loops("{{ a.startswith(('b', a)) }}"),
        // Thousands of names are searched through.
        numbered("{%set a", "=1%}", 30000) + in_loops("{{ a29999 }}")}) {
    EXPECT_THAT(error_of(source), HasSubstr("the template takes more than 1000000 steps")) << source.substr(0, 200);
  }
  EXPECT_THAT(error_of(big + "{{ a.strip(('b' * 1000000) ~ 'a') }}"), HasSubstr("steps"));
}

TEST(ChatTemplateLimits, TextsEnd) {
  for (const std::string& source : {std::string("{{ 'a' * 1000000000 }}"), std::string("{{ 'a'.ljust(1000000000) }}"),
                                    std::string("{{ range(10000) | list | tojson(indent=1000000) }}"),
                                    std::string("{{ range(10000) | list | tojson(separators=('a' * 1000000, '')) }}"),
                                    "{% set a = ['" + repeated("a", 200) + "'] %}" +
                                        repeated("{% set a = [a, a, a, a, a, a, a, a] %}", 8) + "{{ a }}{{ a }}",
                                    "{% set a = 'a' * 1000000 %}" + in_loops("{{ a }}")}) {
    EXPECT_THAT(error_of(source), HasSubstr("the template makes more than 30000000 bytes of text"))
        << source.substr(0, 200);
  }
}

TEST(ChatTemplateLimits, DepthEnds) {
  EXPECT_THAT(error_of("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), HasSubstr("more than 1000 deep"));
  const std::string nested = "lists and dictionaries are nested more than 100 deep";
  const std::string begin = "{% set n = namespace(v=[]) %}{% for i in range(100000) %}", end = "{% endfor %}";
  EXPECT_THAT(error_of(begin + "{% set n.v = [n.v] %}" + end), HasSubstr(nested));
  EXPECT_THAT(error_of(begin + "{% set n.v = {'a': n.v} %}" + end), HasSubstr(nested));
  EXPECT_THAT(error_of(begin + "{% for j in [n.v] %}{% set n.v = loop %}{% endfor %}" + end), HasSubstr(nested));
  EXPECT_THAT(error_of(begin + "{% set n.v = [n.v].count %}" + end), HasSubstr(nested));
  // Expressions that are deep in the source are refused when it is read.
  EXPECT_THAT(error_of("{{ " + repeated("(", 100000) + "1" + repeated(")", 100000) + " }}"),
              HasSubstr("nested more than"));
  EXPECT_THAT(error_of("{{ " + repeated("not ", 100000) + " }}"), HasSubstr("nested more than"));
  EXPECT_THAT(error_of("{{ a" + repeated(".b", 100000) + " }}"), HasSubstr("parts"));
  EXPECT_THAT(error_of(repeated("{% if a %}", 100000)), HasSubstr("nested more than"));
  std::string deep = "a";
  for (int i = 0; i < 45; ++i) deep = "(" + deep + repeated("+1", 290) + ")";
  EXPECT_THAT(error_of("{% if false %}{{ " + deep + " }}{% endif %}"), HasSubstr("nothing is wrong"));
}

TEST(ChatTemplateLimits, SizesEnd) {
  EXPECT_THAT(error_of(repeated(" ", (1U << 20U) + 1)), HasSubstr("the template has more than 1048576 bytes"));
  EXPECT_THAT(error_of("{{ range(100001) }}"), HasSubstr("Range too big"));
  // A message of the template's does not become as long as what it quotes.
  const std::string error = error_of("{{ raise_exception('é' * 100000) }}");
  EXPECT_THAT(error, HasSubstr("ééé [...]"));
  EXPECT_LT(error.size(), 1100U);
}

}  // namespace
}  // namespace tenon
