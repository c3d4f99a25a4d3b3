#include "byte_alphabet.h"

#include "utf8.h"

namespace tenon::text {

ByteAlphabet::ByteAlphabet() {
  byte_.fill(-1);
  uint16_t next = 0x100;
  for (uint16_t byte = 0; byte < 256; ++byte) {
    const bool prints = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    const uint16_t code = prints ? byte : next++;
    std::string character;
    append_utf8(character, code);
    character.copy(text_[byte].data(), 2);
    length_[byte] = static_cast<uint8_t>(character.size());
    byte_[code] = static_cast<int16_t>(byte);
  }
}

const ByteAlphabet& ByteAlphabet::get() {
  static const ByteAlphabet alphabet;
  return alphabet;
}

std::string ByteAlphabet::encode(std::string_view bytes) const {
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const char c : bytes) text += character(static_cast<uint8_t>(c));
  return text;
}

std::optional<std::string> ByteAlphabet::decode(std::string_view text) const {
  std::string bytes;
  for (size_t at = 0; at < text.size();) {
    const Utf8Unit unit = first_unit(text.substr(at));
    if (unit.kind != Utf8Kind::kCharacter) return std::nullopt;
    const char32_t code = code_point(text.substr(at, unit.length));
    if (code >= byte_.size() || byte_[code] < 0) return std::nullopt;
    bytes += static_cast<char>(byte_[code]);
    at += unit.length;
  }
  return bytes;
}

}  // namespace tenon::text
