// This reads tokenizer.json, the format of Hugging Face's package tokenizers, as far as BPE goes. Every key is read,
// listed as harmless, or an error: a key that is ignored could change ids unnoticed. Ids may have gaps, but no two
// tokens one id.
#include "tokenizer_json.h"

#include <algorithm>
#include <limits>

#include "utf8.h"

namespace tenon::text {
namespace {

// These change no id: the format's version, how a caller wants texts cut and padded, offsets into the text, texts in
// pairs, and what a decoder or a post-processor of bytes has from the pre-tokenizer of the same name.
constexpr std::string_view kHarmless[] = {
    "version",
    "truncation",
    "padding",
    "model.vocab",
    "model.merges",
    "*trim_offsets",
    "post_processor*.pair",
    "post_processor*.special_tokens",
    "post_processor*.add_prefix_space",
    "post_processor*.use_regex",
    "decoder*.add_prefix_space",
    "decoder*.use_regex",
    "decoder*.split",
    "*.str_rep",
    "*.type_id",
};

void parse_vocabulary(const JsonPlace& place, TokenizerJson& file) {
  std::vector<std::string>& tokens = file.tokens;
  for (const auto& entry : place.object()) {
    const std::string_view name(entry.key().data(), entry.key().size());
    const auto fail = [&](const std::string& message) { place[name].fail(message); };
    const auto* id = entry.value().if_int64();
    if (id == nullptr) place[name].expected("an id");
    if (*id < 0 || static_cast<uint64_t>(*id) >= file.id_limit) fail("id " + std::to_string(*id) + " is out of range");
    if (name.empty()) fail("the empty text is no token");
    const auto at = static_cast<size_t>(*id);
    if (tokens.size() <= at) tokens.resize(at + 1);
    if (!tokens[at].empty()) fail("id " + std::to_string(at) + " belongs to \"" + tokens[at] + "\" already");
    tokens[at] = name;
  }
}

std::pair<std::string_view, std::string_view> parse_pair(const JsonPlace& merges, size_t i) {
  const boost::json::value& value = merges.array()[i];
  if (const auto* text = value.if_string()) {
    const std::string_view pair(text->data(), text->size());
    const size_t space = pair.find(' ');
    if (space != std::string_view::npos) return {pair.substr(0, space), pair.substr(space + 1)};
  } else if (const auto* both = value.if_array(); both && both->size() == 2) {
    const auto* left = (*both)[0].if_string();
    const auto* right = (*both)[1].if_string();
    if (left && right) return {{left->data(), left->size()}, {right->data(), right->size()}};
  }
  merges.elements()[i].expected("\"LEFT RIGHT\" or [\"LEFT\", \"RIGHT\"]");
}

std::vector<MergeRule> parse_merges(const JsonPlace& place, const Vocabulary& vocabulary) {
  std::vector<MergeRule> rules;
  const size_t count = place.array().size();
  rules.reserve(count);
  std::string joined;
  for (size_t i = 0; i < count; ++i) {
    const auto [left, right] = parse_pair(place, i);
    joined.assign(left).append(right);
    const auto id = [&](std::string_view token) {
      if (const auto found = vocabulary.find(token)) return *found;
      place.elements()[i].fail("\"" + std::string(token) + "\" is not in the vocabulary");
    };
    rules.push_back({id(left), id(right), id(joined)});
  }
  return rules;
}

void parse_model(const JsonPlace& model, size_t added, TokenizerJson& file) {
  BpeTokenizerParts& parts = file.parts;
  // The first version of the format had no type: whatever has merges is BPE.
  const std::string type = model["type"].string_or(model["merges"].empty() ? "unknown" : "BPE");
  if (type != "BPE") model["type"].fail("unknown model \"" + type + "\"; supported: BPE");
  for (const std::string_view affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!model[affix].string_or("").empty()) model[affix].fail("not supported for byte-level or fallback BPE");
  }
  // Ids may have gaps, but nothing like the memory that an absurd one would claim.
  file.id_limit = 2 * (model["vocab"].object().size() + added) + 65536;
  parse_vocabulary(model["vocab"], file);
  const Vocabulary vocabulary(file.tokens);
  parts.merges = parse_merges(model["merges"], vocabulary);
  if (const JsonPlace dropout = model["dropout"]; !dropout.empty() && dropout.number() != 0) {
    dropout.fail("found " + std::to_string(dropout.number()) + ", expected none: merges are left out at random");
  }
  parts.options.ignore_merges = model["ignore_merges"].boolean_or(false);
  parts.options.byte_fallback = model["byte_fallback"].boolean_or(false);
  parts.options.fuse_unknown = model["fuse_unk"].boolean_or(false);
  if (const std::string unknown = model["unk_token"].string_or(""); !unknown.empty()) {
    parts.options.unknown = vocabulary.find(unknown);
    if (!parts.options.unknown) model["unk_token"].fail("\"" + unknown + "\" is not in the vocabulary");
  }
}

void parse_decoder(const JsonPlace& place, BpeTokenizerParts& parts) {
  const std::string_view type = place["type"].string();
  TokenDecoder& decoder = parts.decoder;
  if (type == "Sequence") {
    for (const JsonPlace& step : place["decoders"].required_elements()) parse_decoder(step, parts);
  } else if (type == "ByteLevel") {
    decoder.byte_level = true;
  } else if (type == "ByteFallback") {
    decoder.byte_fallback = true;
  } else if (type == "Replace") {
    const JsonPlace pattern = place["pattern"];
    if (pattern["String"].string_or("").empty()) pattern.expected(R"({"String": ...} with a text to replace)");
    decoder.replacements.emplace_back(pattern["String"].string(), place["content"].string());
  } else if (type == "Metaspace") {
    decoder.replacements.emplace_back(metaspace_character(place), " ");
    const bool prefix = place["add_prefix_space"].boolean_or(true);
    parts.info.strips_first_space = place["prepend_scheme"].string_or(prefix ? "always" : "never") != "never";
  } else if (type == "Strip") {
    const bool one_space = place["content"].string() == " " && place["stop"].integer() == 0 &&
                           place["start"].integer() >= 0 && place["start"].integer() <= 1;
    if (!one_space) place.fail("only one space at the start can be stripped");
    parts.info.strips_first_space = place["start"].integer() == 1;
  } else if (type != "Fuse") {
    place.fail("unknown decoder \"" + std::string(type) +
               "\"; supported: Sequence, ByteLevel, ByteFallback, Replace, Metaspace, Strip, Fuse");
  }
}

void check_id(const JsonPlace& place, int64_t id, const TokenizerJson& file) {
  if (id < 0 || static_cast<uint64_t>(id) >= file.tokens.size()) {
    place.fail("token " + std::to_string(id) + " does not exist; the vocabulary ends at " +
               std::to_string(file.tokens.size()));
  }
}

void parse_template(const JsonPlace& place, TokenizerJson& file) {
  std::vector<int32_t> prefix;
  std::vector<int32_t> suffix;
  bool text_seen = false;
  for (const JsonPlace& item : place["single"].required_elements()) {
    if (const JsonPlace sequence = item["Sequence"]; !sequence.empty()) {
      if (text_seen || sequence["id"].string() != "A") sequence.fail("only one sequence, \"A\", is supported");
      text_seen = true;
      continue;
    }
    const std::string_view name = item["SpecialToken"]["id"].string();
    for (const JsonPlace& id : place["special_tokens"][name]["ids"].required_elements()) {
      check_id(id, id.integer(), file);
      (text_seen ? suffix : prefix).push_back(static_cast<int32_t>(id.integer()));
    }
  }
  if (!text_seen) place["single"].fail("the text itself, {\"Sequence\": {\"id\": \"A\"}}, is missing");
  BpeTokenizerParts& parts = file.parts;
  parts.prefix.insert(parts.prefix.begin(), prefix.begin(), prefix.end());
  parts.suffix.insert(parts.suffix.end(), suffix.begin(), suffix.end());
}

void parse_post_processor(const JsonPlace& place, TokenizerJson& file) {
  const std::string_view type = place["type"].string();
  if (type == "Sequence") {
    for (const JsonPlace& step : place["processors"].required_elements()) parse_post_processor(step, file);
  } else if (type == "TemplateProcessing") {
    parse_template(place, file);
  } else if (type != "ByteLevel") {  // that one concerns offsets alone
    place.fail("unknown post-processor \"" + std::string(type) +
               "\"; supported: Sequence, TemplateProcessing, ByteLevel");
  }
}

}  // namespace

AddedToken parse_added_token(const JsonPlace& place, int64_t id) {
  if (id < 0 || id > std::numeric_limits<int32_t>::max()) place.fail("id " + std::to_string(id) + " is out of range");
  AddedToken token;
  token.id = static_cast<int32_t>(id);
  token.name = place["content"].string();
  token.special = place["special"].boolean_or(false);
  token.normalized = place["normalized"].boolean_or(!token.special);
  token.single_word = place["single_word"].boolean_or(false);
  token.lstrip = place["lstrip"].boolean_or(false);
  token.rstrip = place["rstrip"].boolean_or(false);
  return token;
}

void add_token(TokenizerJson& file, AddedToken token, const JsonPlace& place) {
  if (token.name.empty() || !file.added_names.insert(token.name).second) return;
  const auto id = static_cast<size_t>(token.id);
  if (id >= file.id_limit) place.fail("id " + std::to_string(id) + " is far beyond the vocabulary");
  if (file.tokens.size() <= id) file.tokens.resize(id + 1);
  if (file.tokens[id].empty()) file.tokens[id] = token.name;
  if (file.tokens[id] != token.name) {
    place.fail("id " + std::to_string(id) + " belongs to \"" + file.tokens[id] + "\" already");
  }
  file.parts.added.push_back(std::move(token));
}

TokenizerJson parse_tokenizer_json(std::string_view text, const std::string& name) {
  const boost::json::value document = parse_json(text, name);
  std::set<std::string> asked;
  const JsonPlace root(document, name, &asked);
  const std::vector<JsonPlace> added = root["added_tokens"].elements();
  TokenizerJson file;
  BpeTokenizerParts& parts = file.parts;
  parse_model(root["model"], added.size(), file);
  for (const JsonPlace& place : added) add_token(file, parse_added_token(place, place["id"].integer()), place);
  parts.normalizer = parse_normalizer(root["normalizer"]);
  parts.pre_tokenizer = parse_pre_tokenizer(root["pre_tokenizer"]);
  // Without a decoder, the package joins the names of tokens by blanks, which no published vocabulary means.
  const JsonPlace decoder = root["decoder"];
  if (decoder.empty()) decoder.expected("a decoder, such as {\"type\": \"ByteLevel\"}");
  parse_decoder(decoder, parts);
  if (const JsonPlace processor = root["post_processor"]; !processor.empty()) parse_post_processor(processor, file);
  root.expect_nothing_else(kHarmless);
  return file;
}

}  // namespace tenon::text
