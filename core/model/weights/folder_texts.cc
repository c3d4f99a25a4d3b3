#include "folder_texts.h"

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <system_error>

#include "json_text.h"
#include "mapped_file.h"
#include "tenon/core/error.h"

namespace tenon::weights {
namespace {

constexpr const char* kNames[] = {
    "config.json",        "generation_config.json",  "tokenizer.json",    "tokenizer.model",     "tokenizer.gguf",
    "vocab.json",         "tokenizer_config.json",   "added_tokens.json", "chat_template.jinja", "merges.txt",
    "chat_template.json", "special_tokens_map.json",
};

}  // namespace

std::map<std::string, std::string> folder_texts(const std::filesystem::path& folder) {
  std::map<std::string, std::string> texts;
  for (const char* name : kNames) {
    std::error_code error;
    if (!std::filesystem::is_regular_file(folder / name, error)) continue;
    const MappedFile file(folder / name);
    texts[name].assign(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  }
  if (!texts.contains("config.json")) throw Error(ErrorCode::kModel, {(folder / "config.json").string()}, "is missing");
  return texts;
}

std::string with_quantization(const std::string& config, const std::string& description) {
  boost::json::value value = parse_json(config, "config.json");
  boost::json::object& root = value.as_object();
  if (const boost::json::value* found = root.if_contains("quantization_config"); found && !found->is_null()) {
    throw Error(ErrorCode::kModel, {"config.json"},
                "has a quantization_config: the weights are quantized already; start from what they were made of");
  }
  root["quantization_config"] = parse_json(description, "quantization_config");
  return boost::json::serialize(value) + "\n";
}

std::string with_names(const std::string& description, const std::string& key, const std::vector<std::string>& names) {
  boost::json::value value = parse_json(description, "quantization_config");
  boost::json::value& list = value.as_object()[key];
  if (list.is_null()) list.emplace_array();
  boost::json::array& all = list.as_array();
  for (const std::string& name : names) {
    if (std::ranges::find(all, boost::json::value(name)) == all.end()) all.emplace_back(name);
  }
  return boost::json::serialize(value);
}

}  // namespace tenon::weights
