// The steps of tokenizer.json in order: added tokens are cut out of the raw text, what is left is normalized, added
// tokens that are normalized are cut out of that, and the rest is cut into pieces and encoded. Decoding puts the
// tokens' bytes together, as the file's decoder says.
//
// A tokenizer never changes: threads share it, and each call has its own scratch.
#include "bpe_tokenizer.h"

#include <algorithm>
#include <charconv>
#include <unordered_map>

#include "byte_alphabet.h"
#include "utf8.h"

namespace tenon::text {
namespace {

std::string replace_all(std::string text, const std::string& from, const std::string& to) {
  if (from.empty()) return text;
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

std::string token_bytes(const TokenDecoder& decoder, std::string text) {
  if (decoder.byte_level) {
    if (auto bytes = ByteAlphabet::get().decode(text)) return std::move(*bytes);
    return text;
  }
  for (const auto& [from, to] : decoder.replacements) text = replace_all(std::move(text), from, to);
  if (decoder.byte_fallback && text.size() == 6 && text.starts_with("<0x") && text[5] == '>') {
    uint8_t byte = 0;
    if (std::from_chars(text.data() + 3, text.data() + 5, byte, 16).ptr == text.data() + 5) {
      return std::string(1, static_cast<char>(byte));
    }
  }
  return text;
}

class BpeTokenizer final : public Tokenizer {
 public:
  explicit BpeTokenizer(BpeTokenizerParts parts)
      : vocabulary_(std::move(parts.vocabulary)),
        model_(vocabulary_, parts.merges, parts.options),
        normalizer_(std::move(parts.normalizer)),
        pre_tokenizer_(std::move(parts.pre_tokenizer)),
        prefix_(std::move(parts.prefix)),
        suffix_(std::move(parts.suffix)),
        control_(static_cast<size_t>(vocabulary_.size())) {
    info_ = std::move(parts.info);
    info_.kind = "bpe";
    info_.vocab_size = vocabulary_.size();
    std::unordered_map<int32_t, std::string> named;  // the decoder does not apply to these
    if (parts.added_names_are_text) {
      for (const AddedToken& token : parts.added) named[token.id] = token.name;
    }
    sort_added(std::move(parts.added), parts.decoder, named);
    bytes_.reserve(control_.size(), control_.size() * 8);
    for (int32_t id = 0; id < vocabulary_.size(); ++id) {
      const auto name = named.find(id);
      bytes_.push_back(name != named.end() ? name->second
                                           : token_bytes(parts.decoder, std::string(vocabulary_.text(id))));
    }
  }

  std::vector<int32_t> encode_parts(std::span<const TextPart> parts, bool add_special) const override {
    const JoinedText joined(parts);
    std::vector<int32_t> ids;
    ids.reserve(joined.text.size() / 3 + prefix_.size() + suffix_.size());
    if (add_special) ids = prefix_;
    Scratch scratch;
    for (const TextOrToken& part : raw_matcher(parts).split(joined.text, joined.special_ranges)) {
      if (part.id >= 0) {
        ids.push_back(part.id);
      } else {
        encode_text(std::string_view(joined.text).substr(part.begin, part.end - part.begin), part.begin == 0,
                    all_special(parts), scratch, ids);
      }
    }
    if (add_special) ids.insert(ids.end(), suffix_.begin(), suffix_.end());
    return ids;
  }

  std::string_view bytes(int32_t id) const override { return in_range(id) ? bytes_[id] : std::string_view(); }
  bool is_control(int32_t id) const override { return in_range(id) && control_[id]; }
  std::optional<int32_t> find(std::string_view token) const override { return vocabulary_.find(token); }

 private:
  struct Scratch {
    PieceScratch pieces;
    BpeScratch bpe;
  };

  bool in_range(int32_t id) const { return id >= 0 && id < vocabulary_.size(); }

  static bool all_special(std::span<const TextPart> parts) {
    return std::all_of(parts.begin(), parts.end(), [](const TextPart& part) { return part.parse_special; });
  }

  // If only some pieces of the text may hold special tokens, the normalized text no longer tells which: then the names
  // of normalized special tokens are looked for in the raw text, too.
  const AddedTokenMatcher& raw_matcher(std::span<const TextPart> parts) const {
    return all_special(parts) ? raw_ : raw_and_special_;
  }

  // A normalized token stands for its normalized name, which may hold a space that the normalizer put there.
  void sort_added(std::vector<AddedToken> added, const TokenDecoder& decoder,
                  std::unordered_map<int32_t, std::string>& named) {
    std::vector<AddedToken> raw;
    std::vector<AddedToken> normalized;
    std::vector<AddedToken> special;
    RegexScratch scratch;
    for (AddedToken& token : added) {
      control_[token.id] = control_[token.id] || token.special;
      if (!token.normalized || normalizer_.empty()) {
        raw.push_back(std::move(token));
        continue;
      }
      if (token.special) special.push_back(token);
      token.name = normalize(normalizer_, token.name, scratch).text;
      if (!token.special) named.emplace(token.id, token_bytes(decoder, token.name));
      normalized.push_back(std::move(token));
    }
    raw_ = AddedTokenMatcher(raw);
    raw.insert(raw.end(), special.begin(), special.end());
    raw_and_special_ = AddedTokenMatcher(std::move(raw));
    normalized_ = AddedTokenMatcher(std::move(normalized));
  }

  void encode_text(std::string_view text, bool at_start, bool special, Scratch& scratch,
                   std::vector<int32_t>& ids) const {
    if (normalizer_.empty()) return encode_words({text, at_start}, scratch, ids);
    const auto [normal, from_start] = normalize(normalizer_, text, scratch.pieces.regex);
    const TextRange whole{0, normal.size()};
    for (const TextOrToken& part : normalized_.split(normal, std::span(&whole, special ? 1 : 0))) {
      if (part.id >= 0) {
        ids.push_back(part.id);
      } else {
        encode_words({std::string_view(normal).substr(part.begin, part.end - part.begin),
                      at_start && from_start && part.begin == 0},
                     scratch, ids);
      }
    }
  }

  void encode_words(Piece text, Scratch& scratch, std::vector<int32_t>& ids) const {
    for (const Piece& piece : pre_tokenizer_.run(text, scratch.pieces)) {
      if (pre_tokenizer_.ends_in_bytes()) {
        model_.encode_bytes(piece.text, scratch.bpe, ids);
      } else {
        model_.encode(piece.text, scratch.bpe, ids);
      }
    }
  }

  Vocabulary vocabulary_;
  BpeModel model_;
  std::vector<NormalizerStep> normalizer_;
  PreTokenizer pre_tokenizer_;
  std::vector<int32_t> prefix_;
  std::vector<int32_t> suffix_;
  std::vector<bool> control_;
  StringTable bytes_;
  AddedTokenMatcher raw_;
  AddedTokenMatcher raw_and_special_;
  AddedTokenMatcher normalized_;
};

}  // namespace

JoinedText::JoinedText(std::span<const TextPart> parts) {
  for (const TextPart& part : parts) {
    const size_t begin = text.size();
    append_well_formed(text, part.text);
    if (!part.parse_special) continue;
    if (!special_ranges.empty() && special_ranges.back().end == begin) {
      special_ranges.back().end = text.size();
    } else {
      special_ranges.push_back({begin, text.size()});
    }
  }
}

std::unique_ptr<Tokenizer> make_bpe_tokenizer(BpeTokenizerParts parts) {
  return std::make_unique<BpeTokenizer>(std::move(parts));
}

}  // namespace tenon::text
