// These are the tokens that files beside a tokenizer.json add. The order in which ids are given to tokens that no file
// numbers is that of transformers: first the known keys, then other keys that end in "_token", then the lists.
#include "folder_tokens.h"

#include <algorithm>
#include <array>
#include <boost/json/object.hpp>
#include <limits>
#include <string>

namespace tenon::text {
namespace {

// In this order tokens get ids that no file gives them; then come the other keys that end alike, then the lists.
constexpr std::array<std::string_view, 7> kKnownKeys{"bos_token", "eos_token", "unk_token", "sep_token",
                                                     "pad_token", "cls_token", "mask_token"};
constexpr std::array<std::string_view, 2> kLists{"extra_special_tokens", "additional_special_tokens"};

// Returns the id of the vocabulary, or the next one.
int32_t id_for(const std::string& name, const TokenizerJson& file) {
  const auto found = std::find(file.tokens.begin(), file.tokens.end(), name);
  return static_cast<int32_t>(found - file.tokens.begin());
}

// The place has a string, or an object that says more.
void add_named(const JsonPlace& place, TokenizerJson& file) {
  if (!place.is_string() && !place.is_object()) return;  // Other values name no token.
  const JsonPlace content = place.is_object() ? place["content"] : place;
  if (!content.is_string() || content.string().empty() || file.added_names.contains(std::string(content.string()))) {
    return;
  }
  AddedToken token;
  if (place.is_object()) {
    token = parse_added_token(place, 0);
    token.normalized = place["normalized"].boolean_or(false);
  }
  token.name = content.string();
  token.special = true;
  token.id = id_for(token.name, file);
  add_token(file, std::move(token), place);
}

// The tokens stand in a list, or in an object that has a name for each.
void add_all(const JsonPlace& place, TokenizerJson& file) {
  for (const JsonPlace& token : place.is_array() ? place.elements() : std::vector<JsonPlace>()) add_named(token, file);
  if (!place.is_object()) return;
  for (const auto& entry : place.object()) add_named(place[entry.key()], file);
}

bool names_a_token(std::string_view key) {
  return key.ends_with("_token") && !key.starts_with("add_");
}

}  // namespace

void state_token(TokenizerJson& file, AddedToken token, const JsonPlace& place) {
  if (token.name.empty()) return;
  if (const int32_t id = id_for(token.name, file); token.id != id) {
    place.fail("\"" + token.name + "\" would be token " + std::to_string(id) + " by tokenizer.json");
  }
  const auto known = std::find_if(file.parts.added.begin(), file.parts.added.end(),
                                  [&](const AddedToken& other) { return other.name == token.name; });
  if (known == file.parts.added.end()) return add_token(file, std::move(token), place);
  *known = std::move(token);
}

void add_older_tokens(const JsonPlace& root, TokenizerJson& file) {
  for (const auto& entry : root.object()) {
    const JsonPlace place = root[entry.key()];
    AddedToken token;
    token.name = entry.key();
    token.normalized = true;
    if (token.name.empty() || file.added_names.contains(token.name)) continue;
    token.id = id_for(token.name, file);
    if (place.integer() != token.id) {
      place.expected(std::to_string(token.id) + ", the token's id by tokenizer.json");
    }
    add_token(file, std::move(token), place);
  }
}

void add_named_tokens(const JsonPlace& config, const JsonPlace& map, TokenizerJson& file) {
  const auto stated = [&](std::string_view key) { return map[key].empty() ? config[key] : map[key]; };
  for (const std::string_view key : kKnownKeys) add_named(stated(key), file);
  for (const JsonPlace& root : {config, map}) {
    for (const auto& entry : root.object()) {
      const JsonPlace place = stated(entry.key());
      // The configuration names other tokens by strings alone.
      if (names_a_token(entry.key()) && (place.is_string() || !map[entry.key()].empty())) add_named(place, file);
    }
  }
  add_all(stated("model_specific_special_tokens"), file);
  for (const std::string_view key : kLists) add_all(stated(key), file);
}

void expect_unsplit(const JsonPlace& root) {
  const JsonPlace split = root["split_special_tokens"];
  if (split.empty() || (split.is_boolean() && !split.boolean())) return;
  split.expected("false: the names of special tokens are found in a text where a caller allows it");
}

}  // namespace tenon::text
