// Validates, repairs and iterates over UTF-8. Called wherever text enters. All functions are pure. Repaired text equals the result of
// Python's bytes.decode("utf-8", errors="replace"), as in vLLM's answers.
#include "text/utf8.h"

#include <algorithm>

namespace quire {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

struct Lead {
  std::uint8_t length = 0;  // 0: the byte cannot begin a character
  unsigned char lowest = 0x80, highest = 0xBF;
};

Lead classify(unsigned char byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {};
}

}  // namespace

void Utf8Repair::push_byte(unsigned char byte, std::string& out) {
  if (num_held_ > 0) {
    if (byte >= lowest_ && byte <= highest_) {
      held_[num_held_++] = static_cast<char>(byte);
      lowest_ = 0x80;
      highest_ = 0xBF;
      if (num_held_ < length_) return;
      out.append(held_.data(), num_held_);
      num_held_ = 0;
      return;
    }
    out += kReplacement;
    num_held_ = 0;
  }
  const Lead lead = classify(byte);
  if (lead.length == 0) {
    out += kReplacement;
  } else if (lead.length == 1) {
    out += static_cast<char>(byte);
  } else {
    held_[0] = static_cast<char>(byte);
    num_held_ = 1;
    length_ = lead.length;
    lowest_ = lead.lowest;
    highest_ = lead.highest;
  }
}

void Utf8Repair::push(std::string_view bytes, std::string& out) {
  for (const char byte : bytes) push_byte(static_cast<unsigned char>(byte), out);
}

void Utf8Repair::flush(std::string& out) {
  if (num_held_ > 0) out += kReplacement;
  num_held_ = 0;
}

bool is_valid_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const Lead lead = classify(static_cast<unsigned char>(text[at]));
    if (lead.length == 0 || at + lead.length > text.size()) return false;
    for (std::size_t i = 1; i < lead.length; ++i) {
      const auto byte = static_cast<unsigned char>(text[at + i]);
      const bool in_range = i == 1 ? byte >= lead.lowest && byte <= lead.highest : (byte & 0xC0) == 0x80;
      if (!in_range) return false;
    }
    at += lead.length;
  }
  return true;
}

std::string repair_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  Utf8Repair repair;
  repair.push(text, out);
  repair.flush(out);
  return out;
}

namespace {

bool is_continuation(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

}  // namespace

std::size_t previous_character(std::string_view text, std::size_t end) {
  do --end;
  while (end > 0 && is_continuation(text[end]));
  return end;
}

std::size_t count_characters(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, [](char byte) { return !is_continuation(byte); }));
}

char32_t next_code_point(std::string_view text, std::size_t& at) {
  const std::size_t length = utf8_char_length(text, at);
  const auto lead = static_cast<unsigned char>(text[at]);
  char32_t code_point = length == 1 ? lead : lead & (0x7F >> length);
  for (std::size_t i = 1; i < length; ++i) code_point = code_point << 6 | (static_cast<unsigned char>(text[at + i]) & 0x3F);
  at += length;
  return code_point;
}

void append_utf8(char32_t code_point, std::string& out) {
  const auto put = [&out](char32_t value) { out += static_cast<char>(value); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

}  // namespace quire
