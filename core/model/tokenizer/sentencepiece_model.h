// The file format of SentencePiece (sentencepiece_model.proto) is read to check a file, and written to hand over a GGUF
// vocabulary.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::text {

// The numbers are the format's own, in tokenizer.model and in GGUF's token_type alike.
enum class PieceType : uint8_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

struct SentencePiece {
  std::string text;
  float score = 0;
  PieceType type = PieceType::kNormal;
};

struct SentencePieceModel {
  std::vector<SentencePiece> pieces;  // [id]
  bool byte_fallback = false;
  bool add_dummy_prefix = true;  // true: a space stands in front of every text
  bool remove_extra_whitespaces = true;
  std::string charsmap;  // precompiled normalization rules; "" = none
};

// Throws Error(kModel) naming `file`.
SentencePieceModel parse_sentencepiece(std::string_view bytes, const std::string& file);
// Writes the model as one of type BPE.
std::string serialize_sentencepiece(const SentencePieceModel& model);
// Throws Error(kModel) naming `file` unless every look-up in the rules stays inside them.
void check_charsmap(std::string_view charsmap, const std::string& file);

}  // namespace tenon::text
