// These are weights that are nothing but metadata, and the golden files.
#pragma once

#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "tenon/core/tokenizer.h"
#include "tenon/core/weights.h"

namespace tenon::test {

class MapWeights final : public Weights {
 public:
  explicit MapWeights(std::string convention = "gguf", std::vector<std::filesystem::path> files = {"model.gguf"})
      : convention_(std::move(convention)), files_(std::move(files)) {}

  std::map<std::string, MetadataValue, std::less<>> values;

  std::string_view convention() const override { return convention_; }
  const std::vector<std::filesystem::path>& files() const override { return files_; }
  const std::vector<WeightTensor>& tensors() const override { return tensors_; }
  const WeightTensor* find(std::string_view) const override { return nullptr; }
  std::vector<const WeightTensor*> find_under(std::string_view) const override { return {}; }
  const MetadataValue* metadata(std::string_view key) const override {
    const auto found = values.find(key);
    return found == values.end() ? nullptr : &found->second;
  }
  std::vector<std::string> metadata_keys() const override { return {}; }
  const std::byte* mapped(const WeightTensor&) const override { return nullptr; }
  void read(const WeightTensor&, uint64_t, std::span<std::byte>) const override {}

 private:
  std::string convention_;
  std::vector<std::filesystem::path> files_;
  std::vector<WeightTensor> tensors_;
};

inline std::filesystem::path data_path(const std::string& name) {
  return std::filesystem::path(TENON_TEST_DATA) / "tokenizer" / name;
}

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

inline boost::json::value read_json(const std::filesystem::path& path) {
  return boost::json::parse(read_text(path));
}

inline std::string text_of(const boost::json::value& value) {
  return std::string(value.as_string().data(), value.as_string().size());
}

inline std::vector<int32_t> ids_of(const boost::json::value& value) {
  return boost::json::value_to<std::vector<int32_t>>(value);
}

// Returns a byte-level vocabulary of which only some tokens are known; the other ids are unused.
inline MapWeights byte_level_weights(const boost::json::object& tokens, const boost::json::object& special,
                                     std::vector<std::string> merges, const std::string& pre, size_t size) {
  std::vector<std::string> texts(size);
  std::vector<int64_t> types(size, 5);
  for (size_t id = 0; id < size; ++id) texts[id] = "[unused " + std::to_string(id) + "]";
  const auto put = [&](const boost::json::object& some, int64_t type) {
    for (const auto& entry : some) {
      const auto id = static_cast<size_t>(entry.value().as_int64());
      texts.at(id) = std::string(entry.key());
      types.at(id) = type;
    }
  };
  put(tokens, 1);
  put(special, 3);
  MapWeights weights;
  weights.values["tokenizer.ggml.model"] = std::string("gpt2");
  weights.values["tokenizer.ggml.pre"] = pre;
  weights.values["tokenizer.ggml.tokens"] = std::move(texts);
  weights.values["tokenizer.ggml.token_type"] = std::move(types);
  weights.values["tokenizer.ggml.merges"] = std::move(merges);
  return weights;
}

// This folder vanishes with the test.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "tenon-tokenizer-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path_ = pattern;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
  }

 private:
  std::filesystem::path path_;
};

// Returns SmolLM's tokenizer with control tokens as gpt-oss has them, from id 1000 on: <|start|>, <|channel|>,
// <|message|>, <|constrain|>, <|end|>, <|call|>, <|return|>.
inline std::unique_ptr<Tokenizer> tokenizer_with_channels() {
  boost::json::object tokens;
  for (const char* name : {"start", "channel", "message", "constrain", "end", "call", "return"}) {
    tokens[std::to_string(1000 + tokens.size())] = {{"content", "<|" + std::string(name) + "|>"}, {"special", true}};
  }
  TemporaryFolder folder;
  folder.write("tokenizer.json", read_text(data_path("smollm") / "tokenizer.json"));
  folder.write("tokenizer_config.json", boost::json::serialize(boost::json::object{{"eos_token", "<|return|>"},
                                                                                   {"added_tokens_decoder", tokens}}));
  return make_tokenizer(folder.path());
}

}  // namespace tenon::test
