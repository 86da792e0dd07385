#pragma once
// Finds the first stop string in a text that arrives in parts, and holds back what may be the beginning of one. Owned by one thread at a
// time.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

// One automaton (Knuth, Morris and Pratt) per stop string, advanced byte by byte: linear in the text whatever the strings are.
class StopStrings {
 public:
  struct Output {
    std::string_view text;                 // to be sent now; valid until the next call
    std::optional<std::uint32_t> matched;  // index of the stop string that ended the text
  };

  // Empty strings never match. `include_stop`: the matched string is part of the text.
  explicit StopStrings(std::span<const std::string> stops, bool include_stop = false);

  // The match that ends first counts, among those the longest; nothing comes after it, and further calls give nothing. A match ends the
  // text where the stop string begins (or, with include_stop, where it ends).
  Output push(std::string_view text);

  // The end of the text: what was held back.
  std::string_view flush();

  [[nodiscard]] bool stopped() const { return stopped_; }
  [[nodiscard]] std::size_t num_held_bytes() const { return held_.size(); }

 private:
  // One stop string's automaton; after a byte it is in the state of the longest beginning that the text ends with.
  struct Pattern {
    std::string text;
    std::vector<std::uint32_t> failure;  // [i]: longest proper border of text[0 .. i]
    std::uint32_t state = 0;             // bytes matched so far
  };

  // How much of the text's end may still become a stop string: that much is held back.
  [[nodiscard]] std::size_t longest_state() const;
  std::optional<std::uint32_t> advance(char byte);

  std::vector<Pattern> patterns_;
  bool include_stop_;
  bool stopped_ = false;
  // The end of the text so far that may begin a stop string: it is sent when it turns out not to.
  std::string held_;
  std::string out_;
};

}  // namespace quire
