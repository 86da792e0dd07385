#include "text/template/word_wrap.h"

#include <algorithm>

#include "text/template/unicode.h"

namespace quire::jinja {
namespace {

// Returns whether textwrap treats `c` as white space. textwrap considers only ASCII.
bool is_blank(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

bool is_letter_at(std::string_view text, std::size_t at) {
  if (at >= text.size()) return false;
  const char32_t c = next_code_point(text, at);
  return c == '_' || is_alpha(c);
}

// Returns whether a word may break after the hyphen at `at`: two letters precede the hyphen and one letter follows.
bool breaks_after(std::string_view text, std::size_t at) {
  if (text[at] != '-' || at < 2 || !is_letter_at(text, at + 1)) return false;
  std::size_t last = at - 1;
  while (last > 0 && (static_cast<unsigned char>(text[last]) & 0xC0) == 0x80) --last;
  if (last == 0 || !is_letter_at(text, last)) return false;
  std::size_t before = last - 1;
  while (before > 0 && (static_cast<unsigned char>(text[before]) & 0xC0) == 0x80) --before;
  return is_letter_at(text, before);
}

// Splits the line into words and the white space between them.
std::vector<std::string_view> chunks_of(std::string_view line, bool breaks_hyphens) {
  std::vector<std::string_view> chunks;
  for (std::size_t begin = 0; begin < line.size();) {
    std::size_t end = begin + 1;
    const bool is_space = is_blank(line[begin]);
    while (end < line.size() && is_blank(line[end]) == is_space) {
      if (!is_space && breaks_hyphens && breaks_after(line, end - 1)) break;
      ++end;
    }
    chunks.push_back(line.substr(begin, end - begin));
    begin = end;
  }
  return chunks;
}

// Returns the number of bytes of a long word that fit into `room` characters. If words may break at hyphens, ends the part after a hyphen.
std::size_t part_of(std::string_view word, std::size_t room, const WrapOptions& options) {
  const std::size_t bytes = byte_offset(word, room);
  if (!options.breaks_hyphens) return bytes;
  const std::size_t hyphen = word.substr(0, bytes).rfind('-');
  const bool is_behind_letters =
      hyphen != std::string_view::npos && word.substr(0, hyphen).find_first_not_of('-') != std::string_view::npos;
  return is_behind_letters ? hyphen + 1 : bytes;
}

}  // namespace

std::vector<std::string> wrap_words(std::string_view line, std::size_t width, const WrapOptions& options) {
  std::vector<std::string_view> chunks = chunks_of(line, options.breaks_hyphens);
  std::reverse(chunks.begin(), chunks.end());  // the next chunk is at the back
  // Counts at most `room` characters, because a chunk may be the whole text.
  const auto fits = [](std::string_view chunk, std::size_t room) { return byte_offset(chunk, room) == chunk.size(); };
  std::vector<std::string> lines;
  while (!chunks.empty()) {
    if (!lines.empty() && is_blank(chunks.back().front())) chunks.pop_back();
    std::vector<std::string_view> row;
    std::size_t size = 0;
    for (; !chunks.empty() && fits(chunks.back(), width - size); chunks.pop_back()) {
      row.push_back(chunks.back());
      size += count_code_points(chunks.back());
    }
    if (!chunks.empty() && !fits(chunks.back(), width)) {
      if (options.breaks_long) {
        // If there is no room, the part is empty. As in textwrap, the row then keeps its trailing blanks.
        row.push_back(chunks.back().substr(0, part_of(chunks.back(), width - size, options)));
        chunks.back().remove_prefix(row.back().size());
      } else if (row.empty()) {
        row.push_back(chunks.back());
        chunks.pop_back();
      }
    }
    if (!row.empty() && (row.back().empty() || is_blank(row.back().front()))) row.pop_back();
    if (row.empty()) continue;
    std::string& text = lines.emplace_back();
    for (const std::string_view chunk : row) text += chunk;
  }
  return lines;
}

}  // namespace quire::jinja
