// This reads the files of a folder that say what its tokenizer is: tokenizer.json or tokenizer.model has the
// vocabulary, and the files around it have BOS, EOS and templates. Where two files contradict each other in what
// transformers and other programs would make of it, that is an error.
#include "huggingface_tokenizer.h"

#include <boost/json/object.hpp>
#include <charconv>
#include <functional>
#include <system_error>

#include "end_tokens.h"
#include "folder_tokens.h"
#include "json_reader.h"
#include "sentencepiece_tokenizer.h"
#include "tokenizer_json.h"

namespace tenon::text {
namespace {

using Find = std::function<std::optional<int32_t>(std::string_view)>;

bool is_file(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error);
}

// Reads one of the small files; without it, the result is an empty object.
class Document {
 public:
  Document(const std::filesystem::path& folder, const char* name) : file_((folder / name).string()) {
    if (is_file(file_)) value_ = parse_json(read_file(file_), file_);
  }
  JsonPlace root() const { return {value_, file_}; }

 private:
  std::string file_;
  boost::json::value value_ = boost::json::object();
};

// These are the files beside the vocabulary.
struct Folder {
  explicit Folder(const std::filesystem::path& folder)
      : path(folder),
        config(folder, "tokenizer_config.json"),
        special(folder, "special_tokens_map.json"),
        generation(folder, "generation_config.json"),
        model(folder, "config.json") {}

  std::filesystem::path path;
  Document config;
  Document special;
  Document generation;
  Document model;

  // "bos_token" and the like are a string, or an object with the string as "content".
  std::optional<int32_t> special_token(std::string_view key, const Find& find) const {
    for (const JsonPlace& root : {config.root(), special.root()}) {
      const JsonPlace token = root[key];
      if (token.empty()) continue;
      const JsonPlace text = token.is_object() ? token["content"] : token;
      if (const auto id = find(text.string())) return id;
    }
    return std::nullopt;
  }

  std::vector<int32_t> stated_ends() const {
    std::vector<int32_t> ids;
    for (const JsonPlace& root : {generation.root(), model.root()}) {
      const JsonPlace eos = root["eos_token_id"];
      if (eos.empty()) continue;
      for (const JsonPlace& id : eos.is_array() ? eos.elements() : std::vector{eos}) {
        if (id.integer() < 0 || id.integer() > INT32_MAX) id.expected("a token id");
        ids.push_back(static_cast<int32_t>(id.integer()));
      }
      break;
    }
    return ids;
  }

  struct NamedTemplate {
    std::string text, file;  // "" = there is none
  };
  // Reads the template of a name from the files of their own, which come first, or from the configuration.
  NamedTemplate chat_template(std::string_view name) const {
    const auto file = name == "default" ? path / "chat_template.jinja"
                                        : path / "additional_chat_templates" / (std::string(name) + ".jinja");
    if (is_file(file)) return {read_file(file), file.string()};
    const std::string in_config = (path / "tokenizer_config.json").string();
    const JsonPlace place = config.root()["chat_template"];
    if (!place.empty() && !place.is_array()) {
      return name == "default" ? NamedTemplate{std::string(place.string()), in_config} : NamedTemplate();
    }
    for (const JsonPlace& named : place.elements()) {
      if (named["name"].string() == name) return {std::string(named["template"].string()), in_config};
    }
    return {};
  }

  // Returns the tokens that only chat templates ask for.
  std::vector<std::pair<std::string, std::string>> special_tokens() const {
    std::vector<std::pair<std::string, std::string>> found;
    for (const char* name : {"unk_token", "pad_token", "sep_token", "cls_token", "mask_token"}) {
      for (const JsonPlace& root : {config.root(), special.root()}) {
        const JsonPlace token = root[name];
        if (token.empty()) continue;
        found.emplace_back(name, (token.is_object() ? token["content"] : token).string_or(""));
        break;
      }
    }
    return found;
  }

  // Ids of stated ends that the vocabulary lacks are left out.
  void fill(TokenizerInfo& info, const Find& find, size_t vocabulary) const {
    info.bos = special_token("bos_token", find);
    info.eos = special_token("eos_token", find);
    std::vector<int32_t> ends = stated_ends();
    std::erase_if(ends, [&](int32_t id) { return static_cast<size_t>(id) >= vocabulary; });
    if (!info.eos && !ends.empty()) info.eos = ends.front();
    add_end_tokens(info, ends);
    add_end_tokens(info, known_end_tokens(find));
    const auto take = [](NamedTemplate found, std::string& text, std::string& file) {
      text = std::move(found.text);
      file = std::move(found.file);
    };
    take(chat_template("default"), info.chat_template, info.chat_template_file);
    take(chat_template("tool_use"), info.tool_chat_template, info.tool_chat_template_file);
    info.special_tokens = special_tokens();
  }
};

// Returns "added_tokens_decoder" of tokenizer_config.json, {"id": {...}}, by id.
std::vector<std::pair<JsonPlace, AddedToken>> config_tokens(const Folder& folder) {
  std::vector<std::pair<JsonPlace, AddedToken>> tokens;
  const JsonPlace decoder = folder.config.root()["added_tokens_decoder"];
  if (decoder.empty()) return tokens;
  for (const auto& entry : decoder.object()) {
    const std::string_view key(entry.key().data(), entry.key().size());
    int64_t id = -1;
    const auto end = key.data() + key.size();
    if (std::from_chars(key.data(), end, id).ptr != end) decoder[key].fail("the key should be a token id");
    tokens.emplace_back(decoder[key], parse_added_token(decoder[key], id));
  }
  std::sort(tokens.begin(), tokens.end(), [](const auto& a, const auto& b) { return a.second.id < b.second.id; });
  return tokens;
}

// Where the configuration asks for a token around each text and the post-processor has none, or the other way round,
// programs that read the folder do not agree on which of them counts.
void expect_agreement(const Folder& folder, std::string_view key, const std::optional<int32_t>& token,
                      const std::vector<int32_t>& ids) {
  const JsonPlace asks = folder.config.root()[key];
  if (asks.empty() || !token) return;
  const bool has = std::find(ids.begin(), ids.end(), *token) != ids.end();
  if (asks.boolean() == has) return;
  asks.fail(std::string("is ") + (has ? "false" : "true") + ", and the post_processor of tokenizer.json adds " +
            (has ? "the token" : "no such token") +
            ": they contradict each other; take the key out, or make them agree");
}

bool holds(const std::vector<int32_t>& ids, const std::optional<int32_t>& token) {
  return token && std::find(ids.begin(), ids.end(), *token) != ids.end();
}

}  // namespace

bool has_tokenizer_json(const std::filesystem::path& folder) {
  return is_file(folder / "tokenizer.json");
}
bool has_tokenizer_model(const std::filesystem::path& folder) {
  return is_file(folder / "tokenizer.model");
}

TokenizerJson read_tokenizer_json(const std::filesystem::path& path) {
  const std::string name = (path / "tokenizer.json").string();
  TokenizerJson file = parse_tokenizer_json(read_file(name), name);
  const Folder folder(path);  // The places below are in its documents.
  const JsonPlace config = folder.config.root(), special = folder.special.root();
  for (const JsonPlace& root : {config, special}) expect_unsplit(root);
  const bool states_all = !config["added_tokens_decoder"].empty();
  for (auto& [place, token] : config_tokens(folder)) state_token(file, std::move(token), place);
  const Document older(path, "added_tokens.json");
  if (!states_all) add_older_tokens(older.root(), file);
  const boost::json::value nothing = boost::json::object();
  add_named_tokens(config, states_all ? JsonPlace(nothing, name) : special, file);
  return file;
}

std::unique_ptr<Tokenizer> open_huggingface_bpe(const std::filesystem::path& path) {
  const Folder folder(path);
  TokenizerJson file = read_tokenizer_json(path);
  BpeTokenizerParts& parts = file.parts;
  parts.vocabulary = Vocabulary(file.tokens);
  const auto find = [&](std::string_view token) { return parts.vocabulary.find(token); };
  folder.fill(parts.info, find, file.tokens.size());
  expect_agreement(folder, "add_bos_token", parts.info.bos, parts.prefix);
  expect_agreement(folder, "add_eos_token", parts.info.eos, parts.suffix);
  parts.info.adds_bos = holds(parts.prefix, parts.info.bos);
  parts.info.adds_eos = holds(parts.suffix, parts.info.eos);
  return make_bpe_tokenizer(std::move(parts));
}

SentencePieceParts read_sentencepiece(const std::filesystem::path& path) {
  const Folder folder(path);
  for (const JsonPlace& root : {folder.config.root(), folder.special.root()}) expect_unsplit(root);
  SentencePieceParts parts;
  parts.file = (path / "tokenizer.model").string();
  parts.serialized = read_file(parts.file);
  parts.model = parse_sentencepiece(parts.serialized, parts.file);
  std::unordered_map<std::string, int32_t> ids;
  for (size_t id = 0; id < parts.model.pieces.size(); ++id) ids.emplace(parts.model.pieces[id].text, id);
  const size_t limit = 2 * parts.model.pieces.size() + 65536;
  const auto add = [&](const JsonPlace& place, AddedToken token) {
    if (static_cast<size_t>(token.id) >= limit)
      place.fail("id " + std::to_string(token.id) + " is far beyond the vocabulary");
    const auto [known, added] = ids.emplace(token.name, token.id);
    if (known->second != token.id)
      place.fail("\"" + token.name + "\" is token " + std::to_string(known->second) + " already");
    parts.added.push_back(std::move(token));
  };
  for (auto& [place, token] : config_tokens(folder)) add(place, std::move(token));
  const Document older(path, "added_tokens.json");
  for (const auto& entry : older.root().object()) {
    if (ids.contains(std::string(entry.key()))) continue;
    const JsonPlace place = older.root()[entry.key()];
    AddedToken token;
    token.id = place.integer() < 0 || place.integer() > INT32_MAX ? INT32_MAX : static_cast<int32_t>(place.integer());
    token.name = entry.key();
    add(place, std::move(token));
  }
  return parts;
}

std::unique_ptr<Tokenizer> open_huggingface_sentencepiece(const std::filesystem::path& path) {
  const Folder folder(path);
  SentencePieceParts parts = read_sentencepiece(path);
  std::unordered_map<std::string, int32_t> ids;
  for (size_t id = 0; id < parts.model.pieces.size(); ++id) ids.emplace(parts.model.pieces[id].text, id);
  for (const AddedToken& token : parts.added) ids.emplace(token.name, token.id);
  const auto find = [&](std::string_view name) -> std::optional<int32_t> {
    const auto found = ids.find(std::string(name));
    return found == ids.end() ? std::nullopt : std::optional(found->second);
  };
  folder.fill(parts.info, find, parts.model.pieces.size() + parts.added.size());
  // A folder without a configuration is the model's first publication, whose tokens these are.
  if (!parts.info.bos) parts.info.bos = find("<s>");
  if (!parts.info.eos) parts.info.eos = find("</s>");
  add_end_tokens(parts.info, {});
  parts.info.adds_bos = parts.info.bos && folder.config.root()["add_bos_token"].boolean_or(true);
  parts.info.adds_eos = parts.info.eos && folder.config.root()["add_eos_token"].boolean_or(false);
  return make_sentencepiece_tokenizer(std::move(parts));
}

}  // namespace tenon::text
