// Normalizes texts to Unicode's form C with utf8proc, restricted to the Unicode version that Hugging Face `tokenizers` uses. Thread-safe.
// Called while a text is encoded, if the tokenizer normalizes. The cost must be linear in the text, even for a long run of marks.
#include "text/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <span>
#include <vector>

#include "base/check.h"
#include "text/utf8.h"

namespace quire {
namespace {

struct Range {
  char32_t first, last;
};

// Combining marks that Unicode 10 to 14 added.
constexpr std::array<Range, 33> kLaterMarks{
    {{0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},     {0xC3C, 0xC3C},     {0xD3B, 0xD3C},
     {0xEBA, 0xEBA},     {0x1715, 0x1715},   {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},   {0xA82C, 0xA82C},   {0x10D24, 0x10D27},
     {0x10EAB, 0x10EAC}, {0x10F46, 0x10F50}, {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E},
     {0x11839, 0x1183A}, {0x11930, 0x11930}, {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0}, {0x11A34, 0x11A34},
     {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45}, {0x11D97, 0x11D97}, {0x16FF0, 0x16FF1},
     {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF}}};

bool is_later_mark(char32_t character) {
  if (character < kLaterMarks.front().first) return false;
  const auto* range = std::ranges::lower_bound(kLaterMarks, character, {}, &Range::last);
  return range != kLaterMarks.end() && range->first <= character;
}

bool is_ascii(char byte) {
  return static_cast<unsigned char>(byte) < 0x80;
}

std::uint8_t combining_class(std::int32_t character) {
  return static_cast<std::uint8_t>(utf8proc_get_property(character)->combining_class);
}

// Normalizes one part of the text. Characters of the part must not compose with characters outside the part.
class Part {
 public:
  void add(char32_t character) {
    std::array<std::int32_t, kLongestDecomposition> decomposed;
    int unused = UTF8PROC_BOUNDCLASS_START;
    const auto length =
        utf8proc_decompose_char(static_cast<std::int32_t>(character), decomposed.data(), std::ssize(decomposed), kOptions, &unused);
    QUIRE_CHECK(length > 0 && length <= std::ssize(decomposed), "every character has a decomposition");
    characters_.insert(characters_.end(), decomposed.begin(), decomposed.begin() + length);
  }

  void flush(std::string& out) {
    order_marks();
    const auto length = utf8proc_normalize_utf32(characters_.data(), std::ssize(characters_), kOptions);
    QUIRE_CHECK(length >= 0, "valid UTF-8 always has a normal form");
    for (const std::int32_t character : std::span(characters_).first(static_cast<std::size_t>(length)))
      append_utf8(static_cast<char32_t>(character), out);
    characters_.clear();
  }

 private:
  // NOLINTNEXTLINE(clang-analyzer-optin.core.EnumCastOutOfRange): utf8proc's options are joined so
  static constexpr auto kOptions = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  static constexpr std::size_t kLongestDecomposition = 4;

  // Sorts marks into Unicode's canonical order (chapter 3.11). utf8proc also sorts, but by exchanging neighbours, which is quadratic in the
  // length of a run of marks.
  void order_marks() {
    const auto is_starter = [](std::int32_t character) { return combining_class(character) == 0; };
    for (auto at = characters_.begin(); at != characters_.end();) {
      const auto begin = std::find_if_not(at, characters_.end(), is_starter);
      at = std::find_if(begin, characters_.end(), is_starter);
      if (!std::ranges::is_sorted(begin, at, {}, combining_class)) sort_by_class({begin, at});
    }
  }

  // Uses a counting sort, which is stable and linear.
  void sort_by_class(std::span<std::int32_t> marks) {
    std::array<std::size_t, 257> place{};
    for (const std::int32_t mark : marks) ++place[combining_class(mark) + 1U];
    std::partial_sum(place.begin(), place.end(), place.begin());
    scratch_.assign(marks.begin(), marks.end());
    for (const std::int32_t mark : scratch_) marks[place[combining_class(mark)]++] = mark;
  }

  std::vector<std::int32_t> characters_, scratch_;
};

}  // namespace

std::string normalize_nfc(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  Part part;
  for (std::size_t at = 0; at < text.size();) {
    // An ASCII character does not compose with any character before it.
    if (is_ascii(text[at]) && (at + 1 == text.size() || is_ascii(text[at + 1]))) {
      part.flush(out);
      out += text[at++];
      continue;
    }
    if (is_ascii(text[at])) part.flush(out);
    const std::size_t begin = at;
    const char32_t character = next_code_point(text, at);
    if (!is_later_mark(character)) {
      part.add(character);
      continue;
    }
    part.flush(out);
    out.append(text, begin, at - begin);
  }
  part.flush(out);
  return out;
}

}  // namespace quire
