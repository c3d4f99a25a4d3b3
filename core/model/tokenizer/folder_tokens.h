// Files beside a tokenizer.json add tokens to its own, and say more of those that it has. These functions read them as
// transformers does: tokenizer_config.json, special_tokens_map.json, added_tokens.json. All throw Error(kModel).
#pragma once

#include "json_reader.h"
#include "tokenizer_json.h"

namespace tenon::text {

// Takes an entry of "added_tokens_decoder", which come by rising ids: a token of that name is from now on as the entry
// says. One that is new follows the vocabulary.
void state_token(TokenizerJson& file, AddedToken token, const JsonPlace& place);

// Adds the tokens of added_tokens.json, {"name": id}.
void add_older_tokens(const JsonPlace& root, TokenizerJson& file);

// Adds the tokens that a key names, "pad_token" and the like, and those in the lists of extra ones. Where
// both files have a key the map's counts. A token that no file has added so far becomes a special one, under
// its id of the vocabulary or the next one.
void add_named_tokens(const JsonPlace& config, const JsonPlace& map, TokenizerJson& file);

// Fails where "split_special_tokens" asks for names of special tokens to be read as text.
void expect_unsplit(const JsonPlace& root);

}  // namespace tenon::text
