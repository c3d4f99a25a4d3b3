// This makes a Tokenizer of SentencePiece's library. Added tokens are cut out before the library sees the text, and so
// are the model's control pieces, which count as special. The library is not asked to add BOS or EOS. Ids of added
// tokens may lie beyond its pieces: their bytes are their names.
#include "sentencepiece_tokenizer.h"

#include <sentencepiece_processor.h>

#include <charconv>
#include <unordered_map>
#include <unordered_set>

#include "bpe_tokenizer.h"
#include "tenon/core/error.h"
#include "utf8.h"
#include "vocabulary.h"

namespace tenon::text {
namespace {

std::string piece_bytes(const SentencePiece& piece) {
  if (piece.type == PieceType::kControl || piece.type == PieceType::kUnknown) return piece.text;
  uint8_t byte = 0;
  const char* text = piece.text.data();
  if (piece.type == PieceType::kByte && piece.text.size() == 6 &&
      std::from_chars(text + 3, text + 5, byte, 16).ptr == text + 5) {
    return std::string(1, static_cast<char>(byte));
  }
  std::string bytes;
  for (std::string_view rest = piece.text; !rest.empty();) {
    const bool space = rest.starts_with(kMetaspace);
    bytes += space ? ' ' : rest[0];
    rest.remove_prefix(space ? kMetaspace.size() : 1);
  }
  return bytes;
}

class SentencePieceTokenizer final : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(SentencePieceParts parts) {
    load(parts);
    std::unordered_set<int32_t> added_ids;
    size_t size = parts.model.pieces.size();
    for (const AddedToken& token : parts.added) {
      added_ids.insert(token.id);
      size = std::max(size, static_cast<size_t>(token.id) + 1);
    }
    std::vector<std::string> bytes(size);
    control_.resize(size);
    for (size_t id = 0; id < parts.model.pieces.size(); ++id) {
      const SentencePiece& piece = parts.model.pieces[id];
      bytes[id] = piece_bytes(piece);
      control_[id] = piece.type == PieceType::kControl || piece.type == PieceType::kUnknown;
      ids_.emplace(piece.text, static_cast<int32_t>(id));
      if (piece.type == PieceType::kControl && !added_ids.contains(static_cast<int32_t>(id))) {
        AddedToken token;
        token.id = static_cast<int32_t>(id);
        token.name = piece.text;
        token.special = true;
        parts.added.push_back(std::move(token));
      }
    }
    for (const AddedToken& token : parts.added) {
      if (static_cast<size_t>(token.id) >= parts.model.pieces.size()) bytes[token.id] = token.name;
      control_[token.id] = token.special;
      ids_[token.name] = token.id;
    }
    for (const std::string& text : bytes) bytes_.push_back(text);
    added_ = AddedTokenMatcher(std::move(parts.added));
    info_ = std::move(parts.info);
    info_.kind = "sentencepiece";
    info_.vocab_size = static_cast<int32_t>(size);
    info_.strips_first_space = parts.model.add_dummy_prefix;
  }

  std::vector<int32_t> encode_parts(std::span<const TextPart> parts, bool add_special) const override {
    const JoinedText joined(parts);
    std::vector<int32_t> ids;
    if (add_special && info_.adds_bos) ids.push_back(*info_.bos);
    std::vector<int> run;
    for (const TextOrToken& part : added_.split(joined.text, joined.special_ranges)) {
      if (part.id >= 0) {
        ids.push_back(part.id);
        continue;
      }
      const auto status =
          processor_.Encode(std::string_view(joined.text).substr(part.begin, part.end - part.begin), &run);
      if (!status.ok()) throw Error(ErrorCode::kRequest, "SentencePiece cannot encode the text: " + status.ToString());
      ids.insert(ids.end(), run.begin(), run.end());
    }
    if (add_special && info_.adds_eos) ids.push_back(*info_.eos);
    return ids;
  }

  std::string_view bytes(int32_t id) const override { return in_range(id) ? bytes_[id] : std::string_view(); }
  bool is_control(int32_t id) const override { return in_range(id) && control_[id]; }
  std::optional<int32_t> find(std::string_view token) const override {
    const auto found = ids_.find(std::string(token));
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  bool in_range(int32_t id) const { return id >= 0 && id < info_.vocab_size; }

  void load(const SentencePieceParts& parts) {
    std::string why;
    try {
      const auto status = processor_.LoadFromSerializedProto(parts.serialized);
      if (status.ok()) return;
      why = status.ToString();
    } catch (const std::exception& error) {
      why = error.what();
    }
    throw Error(ErrorCode::kModel, SourcePosition{parts.file}, "SentencePiece refuses the model: " + why);
  }

  sentencepiece::SentencePieceProcessor processor_;
  std::unordered_map<std::string, int32_t> ids_;
  StringTable bytes_;
  std::vector<bool> control_;
  AddedTokenMatcher added_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(SentencePieceParts parts) {
  return std::make_unique<SentencePieceTokenizer>(std::move(parts));
}

}  // namespace tenon::text
