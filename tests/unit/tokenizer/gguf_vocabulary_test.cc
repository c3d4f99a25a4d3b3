// These tests make keys of GGUF of a folder's tokenizer, and open a tokenizer from them again.
#include "gguf_vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <boost/json.hpp>
#include <fstream>
#include <map>

#include "json_reader.h"
#include "pre_tokenizer_table.h"
#include "tenon/core/error.h"
#include "tenon/core/tokenizer.h"

namespace tenon::text {
namespace {

std::filesystem::path data(const std::string& name) {
  return std::filesystem::path(TENON_SOURCE_DIR) / "tests/data/tokenizer" / name;
}

template <class T>
const T& at(const weights::MetadataMap& all, const std::string& key) {
  return std::get<T>(all.at("tokenizer.ggml." + key));
}

TEST(GgufVocabulary, FindsTheNameOfAPublishedPreTokenizer) {
  const std::map<std::string, std::string> names = {{"gpt2", "gpt-2"},
                                                    {"llama-bpe", "llama-bpe"},
                                                    {"smollm", "smollm"},
                                                    {"qwen2", "qwen2"},
                                                    {"deepseek-coder", "deepseek-coder"}};
  for (const auto& [folder, pre] : names) {
    const weights::MetadataMap all = gguf_vocabulary(data(folder), 0);
    EXPECT_EQ(at<std::string>(all, "pre"), pre) << folder;
    EXPECT_EQ(at<std::string>(all, "model"), "gpt2");
    EXPECT_EQ(at<std::vector<std::string>>(all, "tokens").size(), at<std::vector<int64_t>>(all, "token_type").size());
  }
}

TEST(GgufVocabulary, TakesPiecesOfSentencePiece) {
  const weights::MetadataMap all = gguf_vocabulary(data("sentencepiece"), 0);
  EXPECT_EQ(at<std::string>(all, "model"), "llama");
  EXPECT_EQ(at<std::vector<double>>(all, "scores").size(), at<std::vector<std::string>>(all, "tokens").size());
}

TEST(GgufVocabulary, FillsUpToTheRowsOfTheEmbedding) {
  const size_t size = at<std::vector<std::string>>(gguf_vocabulary(data("smollm"), 0), "tokens").size();
  const weights::MetadataMap all = gguf_vocabulary(data("smollm"), size + 3);
  EXPECT_EQ(at<std::vector<std::string>>(all, "tokens").back(), "[PAD" + std::to_string(size + 2) + "]");
  EXPECT_EQ(at<std::vector<int64_t>>(all, "token_type").back(), 5);
}

TEST(GgufVocabulary, RefusesWhatGgufCannotSay) {
  for (const auto& [folder, why] :
       std::map<std::string, std::string>{{"llama2", "tokenizer.model"}, {"steps", "tokenizer.model"}}) {
    try {
      gguf_vocabulary(data(folder), 0);
      ADD_FAILURE() << folder;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kModel);
      EXPECT_THAT(error.what(), ::testing::AllOf(::testing::HasSubstr(folder), ::testing::HasSubstr(why)));
    }
  }
}

// GGUF does not name this pre-tokenizer.
TEST(GgufVocabulary, RefusesAnotherCut) {
  boost::json::object tokenizer = boost::json::parse(read_file(data("gpt2/tokenizer.json"))).as_object();
  tokenizer["pre_tokenizer"] =
      boost::json::parse(R"({"type": "Sequence", "pretokenizers": [{"type": "Punctuation"}, {"type": "ByteLevel"}]})");
  std::string pattern = "/tmp/tenon-vocabulary-XXXXXX";
  const std::filesystem::path folder = mkdtemp(pattern.data());
  std::ofstream(folder / "tokenizer.json") << boost::json::serialize(tokenizer);
  try {
    gguf_vocabulary(folder, 0);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("known are gpt-2, llama-bpe, smollm"));
  }
  std::filesystem::remove_all(folder);
}

// Else the first of two would always be taken.
TEST(GgufVocabulary, TellsAllNamesApart) {
  const std::vector<std::string_view> names = published_pre_tokenizers();
  std::map<std::string, std::string> seen;
  for (const std::string_view name : names) {
    std::string cut;
    for (const std::string& piece : sample_pieces(std::string(name))) cut += piece + '\0';
    EXPECT_TRUE(seen.emplace(cut, name).second) << name << " and " << seen[cut];
  }
}

}  // namespace
}  // namespace tenon::text
