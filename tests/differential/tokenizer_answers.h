// The cases of a tokenizer have this in common: what is asked, and the verdict upon an answer. The verdicts are those
// of README.md.
#pragma once

#include <array>
#include <boost/json.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "made_weights.h"
#include "support/pipelines.h"
#include "tenon/core/tokenizer.h"

namespace tenon::differential {

inline boost::json::value read_json(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return boost::json::parse(std::string(std::istreambuf_iterator<char>(file), {}));
}

// A case is [base, path] or [base, path, value]; then come the output and the verdict.
class TokenizerCase {
 public:
  explicit TokenizerCase(const boost::json::value& line) : line_(line.as_array()) {}

  std::string base() const { return std::string(line_.at(0).as_string()); }
  std::string verdict() const { return std::string(line_.back().as_string()); }
  size_t output() const { return boost::json::value_to<size_t>(line_.at(line_.size() - 2)); }
  std::string name() const {
    boost::json::array shown(line_);
    shown.resize(shown.size() - 2);
    return boost::json::serialize(shown);
  }
  bool is_base() const { return path().empty(); }
  // Returns the i-th key of the change's path, the last one if there are fewer; "" if there is no change.
  std::string key(size_t i) const {
    return path().empty() ? "" : std::string(path().at(std::min(i, path().size() - 1)).as_string());
  }
  // Returns the base with the change.
  boost::json::value changed(boost::json::value document) const {
    if (path().empty()) return document;
    boost::json::value* node = &document;
    for (size_t i = 0; i + 1 < path().size(); ++i) {
      const boost::json::value& key = path()[i];
      node = key.is_int64() ? &node->as_array().at(boost::json::value_to<size_t>(key))
                            : &node->as_object().at(key.as_string());
    }
    const boost::json::string& last = path().back().as_string();
    if (line_.size() == 5) {
      node->as_object()[last] = line_.at(2);
    } else {
      node->as_object().erase(last);
    }
    return document;
  }

 private:
  const boost::json::array& path() const { return line_.at(1).as_array(); }
  boost::json::array line_;
};

class TokenizerCases {
 public:
  struct Verdict {
    std::string word, detail;
  };

  explicit TokenizerCases(const std::string& file) : root_(read_json(test::root() / "tests/differential/data" / file)) {
    for (const boost::json::value& line : root_.at("cases").as_array()) {
      all_.emplace_back(line);
      if (all_.back().is_base()) unchanged_[all_.back().base()] = all_.back().output();
    }
  }
  const std::vector<TokenizerCase>& all() const { return all_; }
  const boost::json::value& base(const std::string& name) const { return root_.at("bases").at(name); }

  // `make` opens the case's tokenizer; an error of it has to name `named`.
  Verdict judge(const TokenizerCase& c, const std::string& named,
                const std::function<std::unique_ptr<Tokenizer>()>& make) const {
    const boost::json::value& expected = root_.at("outputs").at(c.output());
    const boost::json::value& unchanged = root_.at("outputs").at(unchanged_.at(c.base()));
    std::string all;
    try {
      all = answers(c.base(), *make());
    } catch (const Error& e) {
      if (std::string(e.what()).find(named) == std::string::npos) return {"names nothing", e.what()};
      return {expected.is_null() ? "refused both" : "refused", e.what()};
    }
    const std::string found = digest(all);
    if (expected.is_null()) return {found == unchanged.as_string() ? "ignored" : "alone", ""};
    if (found != expected.as_string()) return {"DIFFERS", all};
    return {expected == unchanged ? "same" : "equal", ""};
  }

 private:
  // Returns the ids of all texts and the texts of all ids.
  std::string answers(const std::string& base, const Tokenizer& tokenizer) const {
    std::string all;
    for (const boost::json::value& text : root_.at("texts").as_array()) {
      if (&text != root_.at("texts").as_array().begin()) all += ';';
      const auto ids = tokenizer.encode(text.as_string(), {.add_special = true, .parse_special = true});
      for (size_t i = 0; i < ids.size(); ++i) all += (i == 0 ? "" : ",") + std::to_string(ids[i]);
    }
    for (const boost::json::value& list : root_.at("ids").at(base).as_array()) {
      all += '\x1f' + decode(tokenizer, boost::json::value_to<std::vector<int32_t>>(list));
    }
    return all;
  }
  // Makes the digest that digest() of make_tokenizer_cases.py makes of the reference's answers.
  static std::string digest(const std::string& all) {
    std::array<char, 17> digits{};
    std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(seed_of(all)));
    return digits.data();
  }

  boost::json::value root_;
  std::vector<TokenizerCase> all_;
  std::map<std::string, size_t> unchanged_;
};

// Compares each case's verdict with the committed one; with TENON_DIFFERENTIAL_OUT the verdicts are written there.
template <class Judge>
void judge_all(const TokenizerCases& cases, const char* suffix, Judge&& judge) {
  const char* out = std::getenv("TENON_DIFFERENTIAL_OUT");
  std::ofstream file;
  if (out != nullptr) file.open(std::string(out) + suffix);
  for (size_t i = 0; i < cases.all().size(); ++i) {
    const TokenizerCase& c = cases.all()[i];
    const TokenizerCases::Verdict verdict = judge(c);
    if (out != nullptr) {
      file << boost::json::serialize(boost::json::array{i, verdict.word, verdict.detail, c.name()}) << "\n";
    } else {
      EXPECT_EQ(verdict.word, c.verdict()) << c.name() << ": " << verdict.detail;
    }
  }
}

}  // namespace tenon::differential
