// The files beside a tokenizer.json are read beside transformers, and GGUF's tokenizer keys beside the tokenizer.json
// that says the same, one key changed at a time: the ids and the text are theirs, or the file is refused by an error
// that names the key.
#include <gtest/gtest.h>

#include <algorithm>

#include "model/weights/metadata_ledger.h"
#include "support/weights_writer.h"
#include "tokenizer_answers.h"

namespace tenon::differential {
namespace {

namespace json = boost::json;
using testing::GgufType;
using testing::GgufWriter;

TEST(TokenizerFilesDifferential, AFoldersFilesMeanWhatTransformersTakesThemFor) {
  const TokenizerCases cases("tokenizer_folders.json");
  judge_all(cases, ".folders", [&](const TokenizerCase& c) {
    return cases.judge(c, c.key(1), [&] {
      const testing::ScratchFolder folder;
      std::filesystem::copy(test::root() / "tests/data/tokenizer" / c.base() / "tokenizer.json", folder.path());
      const json::value files = c.changed(cases.base(c.base()));
      for (const auto& file : files.as_object()) {
        folder.put(std::string(file.key()), json::serialize(file.value()));
      }
      return make_tokenizer(folder.path());
    });
  });
}

// `value` is [type, value].
template <class T>
void add_as(GgufWriter& file, std::string_view key, const json::value& value) {
  if (value.is_array()) {
    file.add(key, json::value_to<std::vector<T>>(value));
  } else {
    file.add(key, json::value_to<T>(value));
  }
}
void add_value(GgufWriter& file, std::string_view key, const json::array& value) {
  const std::string_view type = value.at(0).as_string();
  if (type.starts_with("str")) return add_as<std::string>(file, key, value.at(1));
  if (type.starts_with("f32")) return add_as<float>(file, key, value.at(1));
  if (type.starts_with("i32")) return add_as<int32_t>(file, key, value.at(1));
  if (type == "u64") return add_as<uint64_t>(file, key, value.at(1));
  if (type == "bool") {
    file.add(key, value.at(1).as_bool());
    return;
  }
  add_as<uint32_t>(file, key, value.at(1));
}

// A key that nobody knows is an error, as it is when a model is built.
void expect_known_keys(const Weights& weights) {
  weights::MetadataLedger ledger(weights);
  std::vector<Diagnostic> unknown = ledger.unknown_keys({}, {});
  std::erase_if(unknown, [](const Diagnostic& d) { return d.message.find("\"tokenizer.") == std::string::npos; });
  if (!unknown.empty()) throw Error(ErrorCode::kModel, std::move(unknown));
}

TEST(TokenizerFilesDifferential, GgufsKeysMeanWhatTheirTokenizerJsonDoes) {
  const TokenizerCases cases("tokenizer_gguf.json");
  judge_all(cases, ".gguf_tokenizers", [&](const TokenizerCase& c) {
    return cases.judge(c, c.key(0), [&] {
      const testing::ScratchFolder folder;
      GgufWriter file;
      const json::value keys = c.changed(cases.base(c.base()));
      for (const auto& pair : keys.as_object()) {
        add_value(file, pair.key(), pair.value().as_array());
      }
      const auto weights = open_weights(folder.put("model.gguf", file.bytes()));
      expect_known_keys(*weights);
      return make_tokenizer(*weights);
    });
  });
}

}  // namespace
}  // namespace tenon::differential
