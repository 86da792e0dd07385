#pragma once
// GPT-2's alphabet, which represents each byte by a printable character (bytes_to_unicode). Byte-level BPE vocabularies store their tokens
// in this alphabet.
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace quire {

// Maps bytes to characters of the alphabet and back.
struct ByteAlphabet {
  std::array<char32_t, 256> character{};  // by byte
  std::array<std::int16_t, 512> byte{};   // by character; -1: the character is not in the alphabet
};

constexpr ByteAlphabet make_byte_alphabet() {
  ByteAlphabet alphabet;
  for (auto& byte : alphabet.byte) byte = -1;
  char32_t stand_in = 256;  // bytes that are not printable become U+0100 and the characters after it, in order
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool prints = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    const char32_t character = prints ? byte : stand_in++;
    alphabet.character[byte] = character;
    alphabet.byte[character] = static_cast<std::int16_t>(byte);
  }
  return alphabet;
}

inline constexpr ByteAlphabet kByteAlphabet = make_byte_alphabet();

// Returns the characters of the bytes, in UTF-8.
[[nodiscard]] inline std::string to_byte_alphabet(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    const char32_t character = kByteAlphabet.character[static_cast<unsigned char>(byte)];
    if (character < 0x80) {
      text += static_cast<char>(character);
    } else {
      text += static_cast<char>(0xC0U | character >> 6U);
      text += static_cast<char>(0x80U | (character & 0x3FU));
    }
  }
  return text;
}

}  // namespace quire
