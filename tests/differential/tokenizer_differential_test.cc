// Tenon's reading of tokenizer.json beside the package tokenizers, one member of the file changed at a time: the ids
// and the text are the package's, or the file is refused by an error that names the section. The verdicts are those of
// differential_test.cc.
#include <gtest/gtest.h>

#include <array>
#include <boost/json.hpp>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "made_weights.h"
#include "support/pipelines.h"
#include "support/weights_writer.h"
#include "tenon/core/tokenizer.h"

namespace tenon::differential {
namespace {

namespace json = boost::json;

json::value read_json(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return json::parse(std::string(std::istreambuf_iterator<char>(file), {}));
}

// [base, path] or [base, path, value]; then the output and the verdict.
class TokenizerCase {
 public:
  explicit TokenizerCase(const json::value& line) : line_(line.as_array()) {}

  std::string base() const { return std::string(line_.at(0).as_string()); }
  std::string verdict() const { return std::string(line_.back().as_string()); }
  size_t output() const { return json::value_to<size_t>(line_.at(line_.size() - 2)); }
  std::string name() const {
    json::array shown(line_);
    shown.resize(shown.size() - 2);
    return json::serialize(shown);
  }
  // Where the change is; "" if there is none.
  std::string section() const { return path().empty() ? "" : std::string(path().front().as_string()); }
  std::string changed(json::value document) const {
    if (path().empty()) return json::serialize(document);
    json::value* node = &document;
    for (size_t i = 0; i + 1 < path().size(); ++i) {
      const json::value& key = path()[i];
      node =
          key.is_int64() ? &node->as_array().at(json::value_to<size_t>(key)) : &node->as_object().at(key.as_string());
    }
    const json::string& last = path().back().as_string();
    if (line_.size() == 5) {
      node->as_object()[last] = line_.at(2);
    } else {
      node->as_object().erase(last);
    }
    return json::serialize(document);
  }

 private:
  const json::array& path() const { return line_.at(1).as_array(); }
  json::array line_;
};

class TokenizerCases {
 public:
  struct Answers {
    std::string digest, all;
  };
  TokenizerCases() : root_(read_json(test::root() / "tests/differential/data/tokenizers.json")) {
    for (const json::value& line : root_.at("cases").as_array()) {
      all_.emplace_back(line);
      if (all_.back().section().empty()) unchanged_[all_.back().base()] = all_.back().output();
    }
  }
  const std::vector<TokenizerCase>& all() const { return all_; }

  // The ids of all texts and the texts of all ids, as the digest that make_tokenizer_cases.py makes of the package's.
  Answers run(const std::string& base, const Tokenizer& tokenizer) const {
    std::string all;
    for (const json::value& text : root_.at("texts").as_array()) {
      if (&text != root_.at("texts").as_array().begin()) all += ';';
      const auto ids = tokenizer.encode(text.as_string(), {.add_special = true, .parse_special = true});
      for (size_t i = 0; i < ids.size(); ++i) all += (i == 0 ? "" : ",") + std::to_string(ids[i]);
    }
    for (const json::value& list : root_.at("ids").at(base).as_array()) {
      all += '\x1f' + decode(tokenizer, json::value_to<std::vector<int32_t>>(list));
    }
    std::array<char, 17> digits{};
    std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(seed_of(all)));
    return {digits.data(), all};
  }

  std::pair<std::string, std::string> judge(const TokenizerCase& c) {
    const json::value& expected = root_.at("outputs").at(c.output());
    const json::value& unchanged = root_.at("outputs").at(unchanged_.at(c.base()));
    Answers found;
    try {
      const testing::ScratchFolder folder;
      folder.put("tokenizer.json", c.changed(base(c.base())));
      found = run(c.base(), *make_tokenizer(folder.path()));
    } catch (const Error& e) {
      if (std::string(e.what()).find(c.section()) == std::string::npos) return {"names nothing", e.what()};
      return {expected.is_null() ? "refused both" : "refused", e.what()};
    }
    if (expected.is_null()) return {found.digest == unchanged.as_string() ? "ignored" : "alone", ""};
    if (found.digest != expected.as_string()) return {"DIFFERS", found.all};
    return {expected == unchanged ? "same" : "equal", ""};
  }

 private:
  const json::value& base(const std::string& name) {
    json::value& document = bases_[name];
    if (document.is_null()) document = read_json(test::root() / "tests/data/tokenizer" / name / "tokenizer.json");
    return document;
  }

  json::value root_;
  std::vector<TokenizerCase> all_;
  std::map<std::string, size_t> unchanged_;
  std::map<std::string, json::value> bases_;
};

TEST(TokenizerDifferential, TheIdsAreThoseOfTokenizersOrTheFileIsRefused) {
  TokenizerCases cases;
  const char* out = std::getenv("TENON_DIFFERENTIAL_OUT");
  std::ofstream file;
  if (out != nullptr) file.open(std::string(out) + ".tokenizers");
  for (size_t i = 0; i < cases.all().size(); ++i) {
    const TokenizerCase& c = cases.all()[i];
    const auto [word, detail] = cases.judge(c);
    if (out != nullptr) {
      file << json::serialize(json::array{i, word, detail, c.name()}) << "\n";
    } else {
      EXPECT_EQ(word, c.verdict()) << c.name() << ": " << detail;
    }
  }
}

}  // namespace
}  // namespace tenon::differential
