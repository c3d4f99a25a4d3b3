// The alphabet of byte-level BPE has one printable character for every byte. Bytes that print in Latin-1 stand for
// themselves, the others for U+0100, U+0101, ... in order (as in GPT-2).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tenon::text {

class ByteAlphabet {
 public:
  static const ByteAlphabet& get();

  std::string_view character(uint8_t byte) const { return {text_[byte].data(), length_[byte]}; }
  std::string encode(std::string_view bytes) const;
  // Returns the bytes that `text` spells, or nullopt if it holds a character outside the alphabet.
  std::optional<std::string> decode(std::string_view text) const;

 private:
  ByteAlphabet();
  std::array<std::array<char, 2>, 256> text_{};
  std::array<uint8_t, 256> length_{};
  std::array<int16_t, 0x144> byte_{};  // [code point]; -1 = no byte
};

}  // namespace tenon::text
