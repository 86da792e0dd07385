#pragma once
// Finds the first stop string in a text that arrives in parts. Holds back the end of the text as long as it may begin a stop string. Owned
// by one thread at a time.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

// Advances one automaton (Knuth, Morris and Pratt) per stop string, byte by byte. The cost is linear in the text for any strings.
class StopStrings {
 public:
  struct Output {
    std::string_view text;                 // text to send now; valid until the next call
    std::optional<std::uint32_t> matched;  // index of the stop string that ended the text
  };

  // With `include_stop`, the matched stop string is part of the text. Empty strings never match.
  explicit StopStrings(std::span<const std::string> stops, bool include_stop = false);

  // Adds text and returns the text that can be sent. The match that ends first is used; if several end at the same byte, the longest. The
  // text then ends before the stop string, or after it with `include_stop`. After a match, further calls return nothing.
  Output push(std::string_view text);

  // Ends the text and returns the part that is held back.
  std::string_view flush();

  [[nodiscard]] bool stopped() const { return stopped_; }
  [[nodiscard]] std::size_t num_held_bytes() const { return held_.size(); }

 private:
  // The automaton of one stop string. After each byte, `state` is the length of the longest prefix of the stop string that is a suffix of
  // the text.
  struct Pattern {
    std::string text;
    std::vector<std::uint32_t> failure;  // [i]: longest proper border of text[0 .. i]
    std::uint32_t state = 0;             // bytes matched so far
  };

  // Returns the number of bytes at the end of the text that may begin a stop string and are therefore held back.
  [[nodiscard]] std::size_t longest_state() const;
  std::optional<std::uint32_t> advance(char byte);

  std::vector<Pattern> patterns_;
  bool include_stop_;
  bool stopped_ = false;
  // The held-back end of the text, which may begin a stop string.
  std::string held_;
  std::string out_;
};

}  // namespace quire
