// Every broken file is refused with its place and what was found; none does harm.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support.h"
#include "tenon/core/error.h"
#include "tokenizer_json.h"

namespace tenon {
namespace {

using test::data_path;
using testing::AllOf;
using testing::HasSubstr;

std::string json_error(const std::string& text) {
  try {
    text::parse_tokenizer_json(text, "tokenizer.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kModel);
    return error.what();
  }
  return "";
}

std::string with_model(const std::string& model, const std::string& rest = "") {
  const std::string decoder = rest.find("decoder") == rest.npos ? R"(, "decoder": {"type": "Fuse"})" : "";
  return R"({"model": {"type": "BPE", )" + model + "}" + decoder + rest + "}";
}

constexpr const char* kSmall = R"("vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"])";

TEST(MalformedJson, SmallestFileIsGood) {
  EXPECT_EQ(json_error(with_model(kSmall)), "");
}

TEST(MalformedJson, SyntaxErrorsHaveLineAndColumn) {
  EXPECT_THAT(json_error("{\n  \"model\": }"), HasSubstr("tokenizer.json:2:12: error: not valid JSON"));
  EXPECT_THAT(json_error("{\"model\""), HasSubstr("not valid JSON: incomplete"));
  EXPECT_THAT(json_error(""), HasSubstr("not valid JSON"));
  EXPECT_THAT(json_error("{} x"), HasSubstr("not valid JSON"));
  EXPECT_THAT(json_error("{\"model\": {}, \"model\": {}}"), HasSubstr("key \"model\" stands twice"));
  EXPECT_THAT(json_error(std::string(100000, '[')), HasSubstr("not valid JSON"));
}

TEST(MalformedJson, ModelsAreChecked) {
  EXPECT_THAT(json_error("[]"), HasSubstr("found an array, expected an object"));
  EXPECT_THAT(json_error("{}"), HasSubstr("model: found nothing, expected an object"));
  EXPECT_THAT(json_error(R"({"model": {"type": "Unigram", "vocab": []}})"),
              HasSubstr("model.type: unknown model \"Unigram\"; supported: BPE"));
  EXPECT_THAT(json_error(with_model(R"("vocab": {"a": "x"}, "merges": [])")),
              HasSubstr("model.vocab.a: found \"x\", expected an id"));
  EXPECT_THAT(json_error(with_model(R"("vocab": {"a": -1}, "merges": [])")), HasSubstr("id -1 is out of range"));
  EXPECT_THAT(json_error(with_model(R"("vocab": {"a": 4611686018427387904}, "merges": [])")),
              HasSubstr("out of range"));
  EXPECT_THAT(json_error(with_model(R"("vocab": {"a": 0, "b": 0}, "merges": [])")),
              HasSubstr("belongs to \"a\" already"));
  EXPECT_THAT(json_error(with_model(R"("vocab": {"": 0}, "merges": [])")), HasSubstr("the empty text is no token"));
  EXPECT_THAT(json_error(with_model(R"("vocab": {"a": 0}, "merges": ["a b"])")),
              HasSubstr("model.merges[0]: \"b\" is not in the vocabulary"));
  EXPECT_THAT(json_error(with_model(R"("vocab": {"a": 0}, "merges": ["a"])")),
              HasSubstr("model.merges[0]: found \"a\", expected"));
  EXPECT_THAT(json_error(with_model(R"("vocab": {"a": 0}, "merges": [["a", 1]])")), HasSubstr("model.merges[0]"));
  EXPECT_THAT(json_error(with_model(std::string(kSmall) + R"(, "unk_token": "?")")), HasSubstr("model.unk_token"));
  EXPECT_THAT(json_error(with_model(std::string(kSmall) + R"(, "end_of_word_suffix": "</w>")")),
              HasSubstr("model.end_of_word_suffix: not supported"));
}

TEST(MalformedJson, UnknownStepsAreNamedWithWhatIsSupported) {
  const auto section = [](const std::string& rest) { return json_error(with_model(kSmall, ", " + rest)); };
  EXPECT_THAT(section(R"("normalizer": {"type": "BertNormalizer"})"),
              AllOf(HasSubstr("normalizer: unknown normalizer \"BertNormalizer\""), HasSubstr("NFC")));
  EXPECT_THAT(section(R"("pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "UnicodeScripts"}]})"),
              AllOf(HasSubstr("pre_tokenizer.pretokenizers[0]: unknown"), HasSubstr("ByteLevel")));
  EXPECT_THAT(section(R"("decoder": {"type": "WordPiece"})"), AllOf(HasSubstr("decoder: unknown"), HasSubstr("Fuse")));
  EXPECT_THAT(section(R"("post_processor": {"type": "BertProcessing"})"), HasSubstr("TemplateProcessing"));
  EXPECT_THAT(section(R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated"})"),
              HasSubstr("pre_tokenizer.pattern.Regex: "));
  EXPECT_THAT(section(R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Odd"})"),
              HasSubstr("found \"Odd\", expected Removed"));
  EXPECT_THAT(section(R"("pre_tokenizer": {"type": "Split", "pattern": 3})"), HasSubstr("pre_tokenizer.pattern"));
  EXPECT_THAT(section(R"("added_tokens": [{"id": 0, "content": "x"}])"),
              HasSubstr("added_tokens[0]: id 0 belongs to \"a\" already"));
  EXPECT_THAT(section(R"("added_tokens": [{"id": 2000000000, "content": "x"}])"),
              HasSubstr("far beyond the vocabulary"));
  EXPECT_THAT(section(R"("post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x"}},
                         {"Sequence": {"id": "A"}}], "special_tokens": {"x": {"ids": [7]}}})"),
              HasSubstr("token 7 does not exist"));
  EXPECT_THAT(section(R"("post_processor": {"type": "TemplateProcessing", "single": []})"), HasSubstr("is missing"));
}

// Each of these gave other ids or other text than the package tokenizers, or text where it gives none.
TEST(MalformedJson, WhatIsNotReadOrMeansNothingIsRefused) {
  const auto section = [](const std::string& rest) { return json_error(with_model(kSmall, ", " + rest)); };
  EXPECT_THAT(section(R"("normalizer": {"type": "NFC", "odd": 1})"),
              HasSubstr("normalizer.odd: found 1, which is not read, so it may change how text is split"));
  EXPECT_THAT(section(R"("added_tokens": [{"id": 3, "content": "x", "odd": {"a": 1}}])"),
              HasSubstr("added_tokens[0].odd: found an object, which is not read"));
  EXPECT_THAT(section(R"("odd": [1])"), HasSubstr("tokenizer.json: error: odd: found an array, which is not read"));
  EXPECT_EQ(section(R"("version": "1.0", "truncation": {"max_length": 3}, "padding": null, "odd": null)"), "");
  EXPECT_THAT(section(R"("decoder": null)"), HasSubstr("decoder: found null, expected a decoder"));
  EXPECT_THAT(section(R"("decoder": {"type": "Sequence"})"), HasSubstr("decoder.decoders: found nothing"));
  EXPECT_THAT(section(R"("decoder": {"type": "Replace", "pattern": {"String": ""}, "content": "x"})"),
              HasSubstr("with a text to replace"));
  EXPECT_THAT(section(R"("decoder": {"type": "Metaspace", "replacement": "ab"})"),
              HasSubstr("decoder.replacement: found \"ab\", expected one character"));
  EXPECT_THAT(section(R"("pre_tokenizer": {"type": "Metaspace", "prepend_scheme": null})"),
              HasSubstr("pre_tokenizer.prepend_scheme: found null, expected always, first or never"));
  EXPECT_THAT(section(R"("normalizer": {"type": "Sequence", "normalizers": null})"),
              HasSubstr("normalizer.normalizers: found null, expected an array"));
  EXPECT_THAT(section(R"("post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x"}},
                         {"Sequence": {"id": "A"}}], "special_tokens": {"x": {}}})"),
              HasSubstr("post_processor.special_tokens.x.ids: found nothing, expected an array"));
  EXPECT_THAT(json_error(with_model(std::string(kSmall) + R"(, "dropout": 0.1)")),
              HasSubstr("model.dropout: found 0.1"));
  EXPECT_EQ(json_error(with_model(std::string(kSmall) + R"(, "dropout": 0)")), "");
}

template <class Weights>
std::string open_error(const Weights& weights) {
  try {
    make_tokenizer(weights);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

test::MapWeights small_gguf() {
  test::MapWeights weights;
  weights.values["tokenizer.ggml.model"] = std::string("gpt2");
  weights.values["tokenizer.ggml.pre"] = std::string("gpt-2");
  weights.values["tokenizer.ggml.tokens"] = std::vector<std::string>{"a", "b", "ab"};
  weights.values["tokenizer.ggml.merges"] = std::vector<std::string>{"a b"};
  return weights;
}

std::string gguf_error(const std::string& key, MetadataValue value) {
  test::MapWeights weights = small_gguf();
  weights.values["tokenizer.ggml." + key] = std::move(value);
  return open_error(weights);
}

TEST(MalformedGguf, EveryKeyIsChecked) {
  EXPECT_EQ(open_error(small_gguf()), "");
  EXPECT_THAT(open_error(test::MapWeights()), HasSubstr("model.gguf: error: the file has no tokenizer"));
  EXPECT_THAT(gguf_error("model", std::string("bert")),
              HasSubstr("unknown tokenizer \"bert\"; supported: gpt2, llama"));
  EXPECT_THAT(gguf_error("pre", std::string("odd")), AllOf(HasSubstr("\"odd\""), HasSubstr("qwen2")));
  EXPECT_THAT(gguf_error("tokens", std::vector<std::string>{}), HasSubstr("tokenizer.ggml.tokens: is missing"));
  EXPECT_THAT(gguf_error("tokens", int64_t{3}), HasSubstr("tokenizer.ggml.tokens"));
  EXPECT_THAT(gguf_error("token_type", std::vector<int64_t>{1}),
              HasSubstr("1 entries for the 3 of tokenizer.ggml.tokens"));
  EXPECT_THAT(gguf_error("token_type", std::vector<int64_t>{1, 1, 9}), HasSubstr("entry 2 is 9; known: 1 to 6"));
  EXPECT_THAT(gguf_error("merges", std::vector<std::string>{"ab"}),
              HasSubstr("entry 0, \"ab\": expected \"LEFT RIGHT\""));
  EXPECT_THAT(gguf_error("merges", std::vector<std::string>{"a c"}), HasSubstr("\"c\" is not in the vocabulary"));
  EXPECT_THAT(gguf_error("merges", std::vector<std::string>{""}), HasSubstr("entry 0"));
  EXPECT_THAT(gguf_error("bos_token_id", int64_t{3}), HasSubstr("3 is no token; the vocabulary has 3"));
  EXPECT_THAT(gguf_error("eos_token_id", int64_t{-1}), HasSubstr("-1 is no token"));
  test::MapWeights no_pre = small_gguf();
  no_pre.values.erase("tokenizer.ggml.pre");
  EXPECT_THAT(open_error(no_pre), HasSubstr("tokenizer.ggml.pre: is missing"));
}

TEST(MalformedGguf, SentencePieceVocabulariesAreChecked) {
  test::MapWeights weights = small_gguf();
  weights.values["tokenizer.ggml.model"] = std::string("llama");
  EXPECT_THAT(open_error(weights), HasSubstr("tokenizer.ggml.scores: expected 3 numbers"));
  weights.values["tokenizer.ggml.scores"] = std::vector<double>{0, 0, 0};
  EXPECT_THAT(open_error(weights), HasSubstr("SentencePiece refuses the model"));
  weights.values["tokenizer.ggml.token_type"] = std::vector<int64_t>{2, 1, 1};
  EXPECT_EQ(open_error(weights), "");
  for (const auto& rules : {std::vector<int64_t>{1}, std::vector<int64_t>{8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
                            std::vector<int64_t>(300, 255)}) {
    weights.values["tokenizer.ggml.precompiled_charsmap"] = rules;
    EXPECT_THAT(open_error(weights), HasSubstr("normalization rules are malformed"));
  }
}

TEST(MalformedModel, TruncatedAndScrambledFilesAreRefusedOrRead) {
  const std::string good = test::read_text(data_path("unigram") / "tokenizer.model");
  test::TemporaryFolder folder;
  folder.write("tokenizer.model", "not a model");
  EXPECT_THAT(open_error(folder.path()), HasSubstr("tokenizer.model: error: not a SentencePiece model"));
  folder.write("tokenizer.model", "");
  EXPECT_THAT(open_error(folder.path()), HasSubstr("no pieces"));
  for (size_t size = 1; size < good.size(); size += 97) {
    folder.write("tokenizer.model", good.substr(0, size));
    open_error(folder.path());
  }
  for (size_t at = 0; at < good.size(); at += 13) {
    std::string broken = good;
    broken[at] = static_cast<char>(broken[at] ^ 0x55);
    folder.write("tokenizer.model", broken);
    if (open_error(folder.path()).empty()) make_tokenizer(folder.path())->encode("Fine \uFB01ne A\u0300\u0301 x");
  }
}

TEST(MissingFiles, AreNamed) {
  test::TemporaryFolder folder;
  EXPECT_THAT(open_error(folder.path()), HasSubstr("neither tokenizer.json nor tokenizer.model"));
  EXPECT_THAT(open_error(test::MapWeights("huggingface", {folder.path() / "model.safetensors"})),
              HasSubstr("no tokenizer"));
  folder.write("tokenizer.json", with_model(kSmall));
  folder.write("tokenizer_config.json", R"({"bos_token": 3})");
  EXPECT_THAT(open_error(folder.path()),
              HasSubstr("tokenizer_config.json: error: bos_token: found 3, expected a string"));
}

}  // namespace
}  // namespace tenon
