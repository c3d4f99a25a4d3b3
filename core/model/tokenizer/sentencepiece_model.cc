// Reads and writes sentencepiece_model.proto as far as a tokenizer needs it, by the wire format of protocol buffers.
//
// The file goes to SentencePiece's library, which trusts it: so everything that the library would follow is checked
// here first.
#include "sentencepiece_model.h"

#include <bit>
#include <cstring>

#include "tenon/core/error.h"

namespace tenon::text {
namespace {

// These are field numbers of sentencepiece_model.proto.
enum ModelField : uint32_t { kPieces = 1, kTrainerSpec = 2, kNormalizerSpec = 3 };
enum PieceField : uint32_t { kPiece = 1, kScore = 2, kType = 3 };
enum TrainerField : uint32_t { kModelType = 3, kByteFallback = 35 };
enum NormalizerField : uint32_t { kName = 1, kCharsmap = 2, kAddDummyPrefix = 3, kRemoveExtraWhitespaces = 4 };
constexpr uint64_t kBpe = 2;

// This is one field of a protocol buffers message.
struct Field {
  uint32_t number = 0;
  uint64_t value = 0;     // a varint or fixed field has it
  std::string_view data;  // a length-delimited field has it
};

class FieldReader {
 public:
  FieldReader(std::string_view bytes, const std::string& file) : bytes_(bytes), file_(file) {}

  bool next(Field& field) {
    if (at_ == bytes_.size()) return false;
    const uint64_t tag = read_varint();
    field = {static_cast<uint32_t>(tag >> 3), 0, {}};
    switch (tag & 7) {
      case 0:
        field.value = read_varint();
        break;
      case 1:
        field.value = read_fixed(8);
        break;
      case 2:
        field.data = take(read_varint());
        break;
      case 5:
        field.value = read_fixed(4);
        break;
      default:
        fail();
    }
    return true;
  }

 private:
  [[noreturn]] void fail() const {
    throw Error(ErrorCode::kModel, SourcePosition{file_},
                "not a SentencePiece model: broken message at byte " + std::to_string(at_) + " of " +
                    std::to_string(bytes_.size()));
  }

  std::string_view take(uint64_t count) {
    if (count > bytes_.size() - at_) fail();
    at_ += count;
    return bytes_.substr(at_ - count, count);
  }

  uint64_t read_fixed(size_t count) {
    uint64_t value = 0;
    const std::string_view data = take(count);
    for (size_t i = 0; i < count; ++i) value |= uint64_t{static_cast<uint8_t>(data[i])} << (8 * i);
    return value;
  }

  uint64_t read_varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const uint64_t byte = read_fixed(1);
      value |= (byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    fail();
  }

  std::string_view bytes_;
  const std::string& file_;
  size_t at_ = 0;
};

SentencePiece parse_piece(std::string_view bytes, const std::string& file, size_t id) {
  SentencePiece piece;
  Field field;
  for (FieldReader reader(bytes, file); reader.next(field);) {
    if (field.number == kPiece) piece.text = field.data;
    if (field.number == kScore) piece.score = std::bit_cast<float>(static_cast<uint32_t>(field.value));
    if (field.number != kType) continue;
    if (field.value < 1 || field.value > 6) {
      throw Error(ErrorCode::kModel, SourcePosition{file},
                  "piece " + std::to_string(id) + " is of type " + std::to_string(field.value) + "; known: 1 to 6");
    }
    piece.type = static_cast<PieceType>(field.value);
  }
  return piece;
}

class MessageWriter {
 public:
  void varint(uint32_t number, uint64_t value) {
    put(number << 3);
    put(value);
  }
  void real(uint32_t number, float value) {
    put(number << 3 | 5);
    const auto bits = std::bit_cast<uint32_t>(value);
    for (int i = 0; i < 4; ++i) bytes_ += static_cast<char>(bits >> (8 * i));
  }
  void data(uint32_t number, std::string_view value) {
    put(number << 3 | 2);
    put(value.size());
    bytes_ += value;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void put(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

}  // namespace

SentencePieceModel parse_sentencepiece(std::string_view bytes, const std::string& file) {
  SentencePieceModel model;
  Field field;
  Field inner;
  for (FieldReader reader(bytes, file); reader.next(field);) {
    if (field.number == kPieces) {
      model.pieces.push_back(parse_piece(field.data, file, model.pieces.size()));
    } else if (field.number == kTrainerSpec) {
      for (FieldReader spec(field.data, file); spec.next(inner);) {
        if (inner.number == kByteFallback) model.byte_fallback = inner.value != 0;
      }
    } else if (field.number == kNormalizerSpec) {
      for (FieldReader spec(field.data, file); spec.next(inner);) {
        if (inner.number == kCharsmap) model.charsmap = inner.data;
        if (inner.number == kAddDummyPrefix) model.add_dummy_prefix = inner.value != 0;
        if (inner.number == kRemoveExtraWhitespaces) model.remove_extra_whitespaces = inner.value != 0;
      }
    }
  }
  if (model.pieces.empty())
    throw Error(ErrorCode::kModel, SourcePosition{file}, "not a SentencePiece model: no pieces");
  check_charsmap(model.charsmap, file);
  return model;
}

std::string serialize_sentencepiece(const SentencePieceModel& model) {
  MessageWriter out;
  for (const SentencePiece& piece : model.pieces) {
    MessageWriter message;
    message.data(kPiece, piece.text);
    message.real(kScore, piece.score);
    message.varint(kType, static_cast<uint64_t>(piece.type));
    out.data(kPieces, message.bytes());
  }
  MessageWriter trainer;
  trainer.varint(kModelType, kBpe);
  trainer.varint(kByteFallback, model.byte_fallback);
  out.data(kTrainerSpec, trainer.bytes());
  MessageWriter normalizer;
  normalizer.data(kName, "identity");
  normalizer.data(kCharsmap, model.charsmap);
  normalizer.varint(kAddDummyPrefix, model.add_dummy_prefix);
  normalizer.varint(kRemoveExtraWhitespaces, model.remove_extra_whitespaces);
  out.data(kNormalizerSpec, normalizer.bytes());
  return out.bytes();
}

// The rules are: the size of a double array (little endian, 4 bytes), the array (by Yata et al., 4 bytes a unit), then
// replacements that end in NUL. The library follows any link, so every state that a text can reach is visited.
void check_charsmap(std::string_view charsmap, const std::string& file) {
  if (charsmap.empty()) return;
  const auto fail = [&] {
    throw Error(ErrorCode::kModel, SourcePosition{file}, "the precompiled normalization rules are malformed");
  };
  const auto word = [&](size_t at) {
    uint32_t value = 0;
    for (size_t i = 0; i < 4; ++i) value |= uint32_t{static_cast<uint8_t>(charsmap[at + i])} << (8 * i);
    return value;
  };
  if (charsmap.size() < 4 || word(0) > charsmap.size() - 4 || word(0) % 4 != 0 || word(0) == 0) fail();
  const size_t units = word(0) / 4;
  const size_t replacements = charsmap.size() - 4 - word(0);
  if (replacements == 0 || charsmap.back() != '\0') fail();
  const auto unit = [&](size_t i) { return word(4 + 4 * i); };
  const auto offset = [](uint32_t u) { return size_t{u >> 10} << ((u & 0x200) >> 6); };

  std::vector<bool> seen(units);
  std::vector<size_t> open;
  const auto visit = [&](size_t state) {
    if ((state | 0xFF) >= units) fail();
    if (!seen[state]) open.push_back(state);
    seen[state] = true;
  };
  visit(offset(unit(0)));
  while (!open.empty()) {
    const size_t state = open.back();
    open.pop_back();
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t u = unit(state ^ byte);
      if ((u & 0x800000FF) != byte) continue;
      const size_t next = state ^ byte ^ offset(u);
      visit(next);
      if ((u & 0x100) != 0 && (unit(next) & 0x7FFFFFFF) >= replacements) fail();
    }
  }
}

}  // namespace tenon::text
