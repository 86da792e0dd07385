#pragma once
// Finds the first stop string in a text that arrives in parts. Holds back the end of the text while it may begin a stop string. One thread
// at a time owns an object.
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

  // Empty strings never match. With `include_stop` the matched string is part of the text.
  explicit StopStrings(std::span<const std::string> stops, bool include_stop = false);

  // Returns the text that can be sent. The match that ends first counts; if several end there, the longest. A match ends the text before
  // the stop string, or after it with `include_stop`. After a match, further calls return nothing.
  Output push(std::string_view text);

  // Ends the text and returns the part that was held back.
  std::string_view flush();

  [[nodiscard]] bool stopped() const { return stopped_; }
  [[nodiscard]] std::size_t num_held_bytes() const { return held_.size(); }

 private:
  // The automaton of one stop string. After each byte, `state` is the length of the longest prefix of the stop string that the text ends
  // with.
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
  // The end of the text, which may begin a stop string. It is sent as soon as it cannot.
  std::string held_;
  std::string out_;
};

}  // namespace quire
