#pragma once
// Finds tokens that are written out in a text before anything else looks at it. Immutable after create.
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "quire/base/ids.h"
#include "quire/base/model_info.h"
#include "text/vocabulary.h"

namespace quire {

class AddedTokens {
 public:
  struct Match {
    std::size_t begin = 0;
    std::size_t end = 0;
    TokenId token = -1;
  };

  // `vocabulary` must outlive this. `flagged`: those of its tokens that take white space around them along, or stand alone as words.
  AddedTokens(const Vocabulary& vocabulary, std::span<const TokenizerSpec::AddedToken> flagged);

  // The leftmost token in `text` at or after `from`, the longest where several begin. User-defined tokens always count, control and unknown
  // ones with `parse_special`. The match covers white space that the token strips, but none before `from`. `text` must be valid UTF-8.
  [[nodiscard]] std::optional<Match> find(std::string_view text, std::size_t from, bool parse_special) const;

 private:
  // A token that is looked for in texts. `special`: control and unknown ones, which only count with `parse_special`.
  struct Entry {
    std::string_view text;
    TokenId token;
    bool special;
    bool strip_left = false, strip_right = false, single_word = false;
  };

  // Null: none begins there.
  [[nodiscard]] const Entry* longest_at(std::string_view text, std::size_t at, bool parse_special) const;

  std::vector<Entry> entries_;                   // sorted by text
  std::array<std::uint32_t, 257> first_byte_{};  // entries_[first_byte_[b] .. first_byte_[b + 1]) begin with byte b
};

}  // namespace quire
